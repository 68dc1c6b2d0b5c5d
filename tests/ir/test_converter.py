"""The converter: nothing is coerced, errors have a place, and kinds can be added."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.converter import from_json, new_converter, tagged_objects, to_json
from autotune.store.records import Outcome, Record
from autotune.testing.sample_records import sample_record


@frozen
class Circle:
    """A kind that is there from the beginning."""

    radius: int


@frozen
class Square:
    """A kind that is added later."""

    side: int


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": [1, "2"]}, "not an outcome: samples is not a number: '2'"),
        ({"timings": {"run": True}}, "not an outcome: timings is not a number: True"),
        ({"timings": []}, "not an outcome: timings is not an object"),
        ({"drift": None}, "not an outcome: drift is not a number: None"),
        ({"message": 5}, "not an outcome: message is not a text: 5"),
    ],
)
def test_nothing_is_coerced(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        from_json(Outcome, {**to_json(Outcome("ok", 1.0)), **changes})


def test_an_error_names_its_place() -> None:
    data = sample_record().to_json()
    del data["key"]["threads"]
    with pytest.raises(InvalidValueError, match=r"not a record: key lacks 'threads'"):
        from_json(Record, data)
    with pytest.raises(InvalidValueError, match="a record of schema None; this version reads"):
        from_json(Record, [])


def test_errors_of_classes_stay_what_they_are() -> None:
    data = sample_record().to_json()
    data["workload"]["inputs"][0][2] = "float31"
    with pytest.raises((InvalidValueError, UnknownNameError), match="'float31'; available"):
        from_json(Record, data)


def test_a_kind_may_be_added_later() -> None:
    shapes = Circle | Square
    kinds: dict[str, type[Any]] = {"circle": Circle}
    converter = new_converter(detailed=False)
    tagged_objects(converter, shapes, "shape", "shape", kinds, {"disc": "circle"})
    assert converter.structure({"shape": "disc", "radius": 1}, shapes) == Circle(1)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="unknown shape 'square'; known: circle"):
        converter.structure({"shape": "square", "side": 2}, shapes)  # type: ignore[arg-type]
    kinds["square"] = Square
    assert converter.unstructure(Square(2)) == {"shape": "square", "side": 2}
    assert converter.structure({"shape": "square", "side": 2}, shapes) == Square(2)  # type: ignore[arg-type]
