from __future__ import annotations

import json
from typing import Any

import pytest

from autotune.errors import InvalidValueError
from autotune.ir.converter import from_json, to_json
from autotune.sketches import Categorical, Factor, Ordinal, Param


@pytest.mark.parametrize(
    ("param", "data"),
    [
        (Factor("i.0"), ["factor", "i.0", None]),
        (Factor("i.3", (16,)), ["factor", "i.3", [16]]),
        (Ordinal("unroll", (0, 16, 64)), ["ordinal", "unroll", [0, 16, 64]]),
        (Categorical("layout", ("NC", "CN")), ["categorical", "layout", ["NC", "CN"]]),
    ],
)
def test_json_round_trip(param: Param, data: Any) -> None:
    assert to_json(param) == data
    assert from_json(Param, json.loads(json.dumps(data))) == param


def test_the_value_of_a_categorical_is_a_position() -> None:
    assert Categorical("layout", ("NC", "CN", "N")).values == (0, 1, 2)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "factor",
        ["factor"],
        ["factor", "x"],
        ["real", "x", [1]],
        [["factor"], "x", None],
        ["ordinal", "x", 3],
        ["ordinal", "x", [1], 2],
    ],
    ids=str,
)
def test_malformed_json_is_refused(data: Any) -> None:
    with pytest.raises(InvalidValueError, match="not a parameter"):
        from_json(Param, data)
