"""Parameters and constraints in JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autotune.errors import InvalidValueError
from autotune.ir.converter import from_json, to_json
from autotune.ir.expressions import const, var
from autotune.sketches import (
    AtLeast,
    AtMost,
    Categorical,
    Constraint,
    Factor,
    OneOf,
    Ordinal,
    Param,
    ProductEquals,
)

TILE = var("i.2") * var("j.2")


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (Param, Factor("i.0"), ["factor", "i.0", None]),
        (Param, Factor("i.3", (16,)), ["factor", "i.3", [16]]),
        (Param, Ordinal("unroll", (0, 16, 64)), ["ordinal", "unroll", [0, 16, 64]]),
        (Param, Categorical("layout", ("NC", "CN")), ["categorical", "layout", ["NC", "CN"]]),
        (
            Constraint,
            AtMost(TILE, 32, "registers", hard=False),
            {
                "constraint": "at_most",
                "expression": ["mul", "i.2", "j.2"],
                "limit": 32,
                "source": "registers",
                "hard": False,
            },
        ),
        (Constraint, ProductEquals(("i.0", "i.1"), const(64)), None),
        (Constraint, ProductEquals(("i.0", "i.1"), var("i.extent"), "test", hard=False), None),
        (Constraint, AtMost(TILE + 1, 32, "vector registers", hard=False), None),
        (Constraint, AtLeast(TILE, 4, "cores"), None),
        (Constraint, OneOf(TILE % 5, (0, 1), "taste", hard=False), None),
    ],
)
def test_json_round_trip(kind: Any, value: Any, data: Any) -> None:
    written = to_json(value)
    assert data is None or written == data
    assert from_json(kind, json.loads(json.dumps(written))) == value


def test_the_value_of_a_categorical_is_a_position() -> None:
    assert Categorical("layout", ("NC", "CN", "N")).values == (0, 1, 2)


_ONE = {"constraint": "at_most", "expression": 1, "limit": 1, "source": ""}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        *((kind, data) for kind in (Param, Constraint) for data in (None, [])),
        (Param, "factor"),
        (Param, ["factor"]),
        (Param, ["factor", "x"]),
        (Param, ["real", "x", [1]]),
        (Param, [["factor"], "x", None]),
        (Param, ["ordinal", "x", 3]),
        (Param, ["ordinal", "x", [1], 2]),
        (Constraint, "at_most"),
        (Constraint, {}),
        (Constraint, {"constraint": "at_most"}),
        (Constraint, {**_ONE, "constraint": ["at_most"]}),
        (Constraint, {**_ONE, "constraint": "less"}),
        (Constraint, {**_ONE, "expression": None}),
        (Constraint, {**_ONE, "more": 1}),
        (Constraint, {"constraint": "one_of", "expression": 1, "values": 3, "source": ""}),
        (Constraint, {"constraint": "product_equals", "factors": None, "total": 4}),
    ],
    ids=str,
)
def test_malformed_json_is_refused(kind: Any, data: Any) -> None:
    with pytest.raises(InvalidValueError, match="not a parameter" if kind is Param else "."):
        from_json(kind, data)
