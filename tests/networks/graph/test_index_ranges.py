"""Programs of others that read where data says: what indices they may be given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    const,
    var,
)
from autotune.ir.workloads import Stage, Tensor, Workload
from autotune.networks import graph as ops
from autotune.networks.graph import Graph, evaluate, input_value
from autotune.networks.graph.making import index_requirements, spatial

ROWS, COLUMNS, READ = 5, 3, 4


def _table(index: Any, dtype: str = "int64") -> Workload:
    """Rows of a table at places that ``index`` makes of an element of the second input."""
    table, places = Tensor("t", (ROWS, COLUMNS), "float32"), Tensor("p", (READ,), dtype)
    body = index(Load("p", (var("i0"),)))
    stage = Stage(Tensor("y", (READ, COLUMNS), "float32"), spatial((READ, COLUMNS)), body)
    return Workload("others", (table, places), (stage,), ("y",))


def _at(place: ScalarExpr) -> Gather:
    return Gather("t", (place, IndexValue(var("i1"))))


def _number(value: int) -> Constant:
    return Constant(value, "int64")


def _wrapped(it: ScalarExpr) -> ScalarExpr:
    moved = Binary("add", it, _number(ROWS))
    return Select(Binary("lt", it, _number(0)), moved, it)


def _clipped(it: ScalarExpr) -> ScalarExpr:
    return Binary("min", Binary("max", it, _number(0)), _number(ROWS - 1))


@pytest.mark.parametrize(
    ("index", "dtype", "bounds"),
    [
        (_at, "int64", [(0, 4)]),
        (lambda it: _at(Cast("int64", it)), "int32", [(0, 4)]),
        (lambda it: _at(Cast("int64", it)), "uint8", [(0, 4)]),
        (lambda it: _at(_wrapped(it)), "int64", [(-5, 4)]),
        (lambda it: _at(Binary("sub", it, _number(2))), "int64", [(2, 6)]),
        (lambda it: _at(Binary("max", it, _number(0))), "int64", [(None, 4)]),
        (lambda it: _at(_clipped(it)), "int64", []),
        (lambda it: _at(Binary("mod", it, _number(ROWS))), "int64", []),
        (lambda it: Select(Binary("ge", it, _number(0)), _at(it), Constant(0.0, "float32")),
         "int64", []),
    ],
)  # fmt: skip
def test_a_range_is_what_reads_elements_that_there_are(
    index: Any, dtype: str, bounds: list[tuple[int, int]]
) -> None:
    found = index_requirements(_table(index, dtype))
    assert [(it.operand, it.low, it.high) for it in found] == [(1, *each) for each in bounds]


@given(st.integers(-9, 9), st.integers(-9, 9))
def test_an_index_is_refused_where_it_reads_beside_the_table(shift: int, place: int) -> None:
    workload = _table(lambda it: _at(Binary("add", it, _number(shift))))
    table, places = input_value("t", (ROWS, COLUMNS), "float32"), input_value("p", (4,), "int64")
    (y,) = ops.workload(workload, [table, places])
    feeds = {
        "t": np.arange(15, dtype=np.float32).reshape(ROWS, COLUMNS),
        "p": np.array([-shift, -shift, place, -shift]),
    }
    graph = Graph((table, places), {"y": y})
    if 0 <= place + shift < ROWS:
        np.testing.assert_array_equal(evaluate(graph, feeds)["y"], feeds["t"][feeds["p"] + shift])
    else:
        with pytest.raises(InvalidValueError, match=f"others: index {place} is not from"):
            evaluate(graph, feeds)


def test_each_of_several_indices_of_a_place_has_its_own_range() -> None:
    table, places = Tensor("t", (ROWS, COLUMNS), "float32"), Tensor("p", (READ, 2), "int64")
    both = tuple(Load("p", (var("i0"), const(at))) for at in range(2))
    stage = Stage(Tensor("y", (READ,), "float32"), spatial((READ,)), Gather("t", both))
    found = index_requirements(Workload("others", (table, places), (stage,), ("y",)))
    given = np.array([[4, 2], [0, 0]])
    for it in found:
        it.check(given, "others")
    for wrong in ([5, 0], [0, 3], [-1, 0], [0, -1]):
        with pytest.raises(InvalidValueError, match="index"):
            for it in found:
                it.check(np.array([wrong]), "others")
