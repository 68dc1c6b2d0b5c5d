"""A plan computes what its graph does, in memory that values share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planned_graphs import graphs, numpy_plan, recurrence, run_plan, values_for

from autotune.networks.graph import (
    Graph,
    Value,
    binary,
    constant,
    evaluate,
    input_value,
    matmul,
    reshape,
    sort,
    take,
    unary,
)
from autotune.runtime.plan import Call, Check, Copy, HostCall, Place, Repeat

X = input_value("x", (4, 16), "float32")


@settings(max_examples=50)
@given(graphs(), st.integers(0, 5))
def test_a_plan_computes_what_its_graph_does(graph: Graph, seed: int) -> None:
    inputs = values_for(graph, seed)
    wanted = evaluate(graph, inputs)
    found = run_plan(numpy_plan(graph), graph, inputs)
    for name, right in wanted.items():
        np.testing.assert_array_equal(found[name], right)


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("keeps", range(4))
@pytest.mark.parametrize("columns", [3, 16])
def test_states_of_loops_may_change_places(order: int, keeps: int, columns: int) -> None:
    for nests, backwards in ((False, False), (True, True)):
        x = input_value("x", (3, columns), "float32")
        made = recurrence(x, order, keeps, nests, backwards)
        graph = Graph((x,), {str(number): it for number, it in enumerate(made)})
        inputs = values_for(graph)
        found = run_plan(numpy_plan(graph), graph, inputs)
        for name, right in evaluate(graph, inputs).items():
            np.testing.assert_array_equal(found[name], right)


def chain(count: int) -> Value:
    made = X
    for _ in range(count):
        made = unary("tanh", made)
    return made


def test_a_chain_takes_the_memory_of_two_values() -> None:
    assert numpy_plan(Graph((X,), {"y": chain(20)})).arena_bytes == 2 * 4 * 16 * 4


def test_outputs_are_computed_where_the_caller_has_them_or_copied() -> None:
    made = chain(2)
    weights = constant(np.ones((2, 2), np.float32))
    outputs = {"a": made, "b": reshape(made, (64,)), "c": X, "d": weights}
    *calls, second, third, fourth = numpy_plan(Graph((X,), outputs)).steps
    assert [type(it) for it in calls] == [Call, Call]
    assert isinstance(calls[1], Call) and calls[1].arguments[-1] == Place("output", 0)
    assert second == Copy(Place("output", 0), Place("output", 1), 256)
    assert third == Copy(Place("input", 0), Place("output", 2), 256)
    assert fourth == Copy(Place("constant", 0), Place("output", 3), 16)


def test_equal_constants_are_one() -> None:
    first, second = (constant(np.full((16, 16), 2.0, np.float32)) for _ in range(2))
    third = constant(np.full((16, 16), 3.0, np.float32))
    made = [unary("tanh", matmul(X, it)) for it in (first, second, third, first)]
    plan = numpy_plan(Graph((X,), {str(at): it for at, it in enumerate(made)}))
    assert len(plan.constants) == 2 and plan.read_constants == {0, 1}


def test_an_order_that_needs_little_memory_is_found() -> None:
    """Sixteen large values, each of which is soon small: one of them is there at a time."""
    large = [binary("mul", X, float(number + 1)) for number in range(16)]
    wide = [take(it, constant(np.zeros(64, np.int64)), 0) for it in large]
    small = [take(it, constant(np.zeros(1, np.int64)), 0) for it in wide]
    graph = Graph((X,), {str(at): it for at, it in enumerate(small)})
    assert numpy_plan(graph).arena_bytes == 64 * 16 * 4 + 4 * 16 * 4


def test_conditions_are_checked_before_the_step_that_needs_them() -> None:
    picks = input_value("picks", (2,), "int64")
    plan = numpy_plan(Graph((X, picks), {"y": take(X, picks, 0)}))
    assert [type(it) for it in plan.steps] == [Check, Call]
    values = numpy_plan(Graph((X,), {"y": sort(X)[1]})).steps
    assert [type(it) for it in values] == [HostCall]


def test_slices_lie_where_they_are_unless_they_are_unaligned() -> None:
    """In the first case what is kept is copied to the next state, and nothing else is moved."""
    for columns, copies in ((16, 1), (3, 2)):
        x = input_value("x", (4, columns), "float32")
        _, _, kept = recurrence(x, 0, 1, False, False)
        steps = numpy_plan(Graph((x,), {"y": kept})).steps
        body = next(it for it in steps if isinstance(it, Repeat)).steps
        moved = [
            it for it in body if isinstance(it, Copy) and (it.source.strides or it.target.strides)
        ]
        assert len(moved) == copies
