from __future__ import annotations

import json
from typing import Any

import pytest

from autotune.errors import InvalidValueError
from autotune.ir.converter import from_json, to_json
from autotune.ir.expressions import const, var
from autotune.sketches import AtLeast, AtMost, Constraint, OneOf, ProductEquals

TILE = var("i.2") * var("j.2")


@pytest.mark.parametrize(
    "constraint",
    [
        ProductEquals(("i.0", "i.1"), const(64)),
        ProductEquals(("i.0", "i.1"), var("i.extent"), "test", hard=False),
        AtMost(TILE + 1, 32, "vector registers", hard=False),
        AtLeast(TILE, 4, "cores"),
        OneOf(TILE % 5, (0, 1), "taste", hard=False),
    ],
)
def test_json_round_trip(constraint: Constraint) -> None:
    data = json.loads(json.dumps(to_json(constraint)))
    assert from_json(Constraint, data) == constraint


def test_the_form_in_json() -> None:
    assert to_json(AtMost(TILE, 32, "registers", hard=False)) == {
        "constraint": "at_most",
        "expression": ["mul", "i.2", "j.2"],
        "limit": 32,
        "source": "registers",
        "hard": False,
    }


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "at_most",
        {},
        {"constraint": "at_most"},
        {"constraint": ["at_most"], "expression": 1, "limit": 1, "source": ""},
        {"constraint": "less", "expression": 1, "limit": 1, "source": ""},
        {"constraint": "at_most", "expression": None, "limit": 1, "source": ""},
        {"constraint": "at_most", "expression": 1, "limit": 1, "source": "", "more": 1},
        {"constraint": "one_of", "expression": 1, "values": 3, "source": ""},
        {"constraint": "product_equals", "factors": None, "total": 4},
    ],
    ids=str,
)
def test_malformed_json_is_refused(data: Any) -> None:
    with pytest.raises(InvalidValueError):
        from_json(Constraint, data)
