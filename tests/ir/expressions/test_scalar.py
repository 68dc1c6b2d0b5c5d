from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.ir.converter import from_json, to_json
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    gathers,
    loads,
    operation_counts,
    substitute,
    transform,
    var,
)
from autotune.ir.expressions.scalar import ARITHMETIC, COMPARISONS, LOGIC, UNARY, children, walk

DTYPES = st.sampled_from(["float32", "float64", "int32", "int8", "bool"])
INDICES = st.sampled_from([var("i"), var("j"), var("i") * 2 + var("k") - 1, const(0)])
LEAVES: st.SearchStrategy[ScalarExpr] = st.one_of(
    st.builds(
        Constant,
        st.integers(-9, 9) | st.floats(allow_nan=False) | st.booleans(),
        DTYPES,
    ),
    st.builds(Load, st.sampled_from("AB"), st.lists(INDICES, max_size=3).map(tuple)),
    st.builds(IndexValue, INDICES),
)
BODIES = st.recursive(
    LEAVES,
    lambda body: st.one_of(
        st.builds(Cast, DTYPES, body),
        st.builds(Unary, st.sampled_from(UNARY), body),
        st.builds(Binary, st.sampled_from((*ARITHMETIC, *COMPARISONS, *LOGIC)), body, body),
        st.builds(Select, body, body, body),
        st.builds(Gather, st.sampled_from("AB"), st.lists(body, max_size=2).map(tuple)),
    ),
    max_leaves=8,
)

A, B = Load("A", (var("i"), var("k"))), Load("B", (var("k"),))
INSIDE = Binary("ge", IndexValue(var("i")), IndexValue(const(1)))


@given(BODIES)
def test_json_round_trip(body: ScalarExpr) -> None:
    data = json.loads(json.dumps(to_json(body), allow_nan=False))
    assert from_json(ScalarExpr, data) == body
    assert to_json(from_json(ScalarExpr, data)) == data


@given(BODIES)
def test_walking_visits_every_node_once_parents_first(body: ScalarExpr) -> None:
    nodes = list(walk(body))
    assert nodes[0] is body
    assert len(nodes) == 1 + sum(len(children(node)) for node in nodes)
    assert loads(body) == tuple(node for node in nodes if isinstance(node, Load))
    assert gathers(body) == tuple(node for node in nodes if isinstance(node, Gather))


@given(BODIES)
def test_replacing_nothing_changes_nothing(body: ScalarExpr) -> None:
    assert transform(body, lambda node: None) == body


@given(BODIES)
def test_replaced_nodes_are_used_as_they_are(body: ScalarExpr) -> None:
    def rename(node: ScalarExpr) -> ScalarExpr | None:
        return Load(f"{node.tensor}2", node.indices) if isinstance(node, Load) else None

    before, after = loads(body), loads(transform(body, rename))
    assert [load.tensor for load in after] == [f"{load.tensor}2" for load in before]
    assert [load.indices for load in after] == [load.indices for load in before]


FLOATS = st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.0])


@given(FLOATS, FLOATS)
def test_literals_are_equal_if_they_are_written_alike(one: float, other: float) -> None:
    first, second = Constant(one, "float32"), Constant(other, "float32")
    assert (first == second) == (repr(one) == repr(other))
    assert first != second or hash(first) == hash(second)


def test_infinities_are_written_as_text() -> None:
    for value, text in ((math.inf, "inf"), (-math.inf, "-inf")):
        body = Constant(value, "float32")
        assert to_json(body) == ["constant", text, "float32"]
        assert from_json(ScalarExpr, ["constant", text, "float32"]) == body


def test_operations_are_counted_by_kind() -> None:
    body = Binary("add", Binary("mul", A, B), Unary("exp", Binary("mul", A, A)))
    assert operation_counts(body) == {"add": 1, "mul": 2, "exp": 1}
    assert operation_counts(Cast("int32", A)) == {"cast": 1}
    assert operation_counts(A) == {}
    assert operation_counts(Constant(1.0, "float32")) == {}


def test_predicates_on_indices_cost_nothing() -> None:
    padded = Select(INSIDE, Unary("exp", A), Constant(0.0, "float32"))
    assert operation_counts(padded) == {"select": 1, "exp": 1}


def test_predicates_on_values_are_counted() -> None:
    positive = Binary("gt", A, Constant(0.0, "float32"))
    assert operation_counts(Select(positive, A, B)) == {"select": 1, "gt": 1}
    both = Binary("and", INSIDE, positive)
    assert operation_counts(Select(both, A, B)) == {"select": 1, "and": 1, "ge": 1, "gt": 1}


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        "add",
        ["constant"],
        ["constant", 1],
        ["constant", "abc", "float32"],
        ["load"],
        ["load", "A"],
        ["load", "A", 3],
        ["load", "A", [None]],
        ["index"],
        ["index", None],
        ["cast", "int32"],
        ["select", ["index", "i"], ["index", "i"]],
        ["exp"],
        ["exp", ["index", "i"], ["index", "i"]],
        ["add", ["index", "i"]],
        ["sinh", ["index", "i"]],
    ],
    ids=str,
)
def test_malformed_json_is_refused(data: Any) -> None:
    with pytest.raises(InvalidValueError):
        from_json(ScalarExpr, data)


def test_gathers_have_computed_indices() -> None:
    """Loads of indices are loads of the body, and their arithmetic is none of it."""
    wrapped = Binary("add", Load("I", (var("i"),)), Constant(7, "int64"))
    gather = Gather("T", (wrapped, IndexValue(var("j"))))
    body = Binary("mul", gather, Constant(2.0, "float32"))
    assert to_json(gather) == [
        "gather",
        "T",
        [["add", ["load", "I", ["i"]], ["constant", 7, "int64"]], ["index", "j"]],
    ]
    assert gathers(body) == (gather,)
    assert loads(body) == (Load("I", (var("i"),)),)
    assert operation_counts(body) == {"mul": 1}
    moved = substitute(body, {"i": var("k") * 2, "j": 3})
    assert loads(moved) == (Load("I", (var("k") * 2,)),)
    assert gathers(moved)[0].indices[1] == IndexValue(const(3))


def test_literals_are_equal_that_are_one_number_in_every_operation() -> None:
    zeros = {Constant(0.0, "float32"), Constant(-0.0, "float32"), Constant(0, "float32")}
    assert len(zeros) == 2
    assert Constant(float("nan"), "float32") == Constant(float("nan"), "float32")
    assert Constant(1.0, "float32") != Constant(1.0, "float64")
