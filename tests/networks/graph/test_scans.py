from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.networks.graph import Graph, Loop, Value, binary, constant, input_value, loop, scan
from tests.support.network_graphs import check_compiled, drawn, folded


@settings(max_examples=25)
@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=3), data=st.data())
@pytest.mark.parametrize("dtype", ["float64", "int8"])
def test_running_sums(dtype: str, shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = drawn(shape, dtype)
    sums = np.cumsum(x, axis, dtype=dtype)
    behind = np.flip(np.cumsum(np.flip(x, axis), axis, dtype=dtype), axis)
    found = folded(
        lambda a: [
            scan("add", a, axis),
            scan("add", a, axis, reverse=True),
            scan("add", a, axis, exclusive=True),
            scan("max", a, axis, exclusive=True, reverse=True),
        ],
        x,
    )
    for one, right in zip(found, (sums, behind, sums - x), strict=False):
        np.testing.assert_allclose(one, right, rtol=1e-12, atol=1e-12)
    last = np.take(found[3], -1, axis)
    assert (last == (-np.inf if dtype == "float64" else -128)).all()


def _step(
    states: Sequence[Value], slices: Sequence[Value], fixed: Sequence[Value]
) -> tuple[list[Value], list[Value]]:
    after = binary("add", states[0], binary("mul", slices[0], fixed[0]))
    return [after], [after, slices[0]]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_is_one_step_that_runs_again(reverse: bool) -> None:
    start, slices, factor = drawn((4,), "float32"), drawn((6, 4), "float32", 1), np.float32(3)
    wanted, state = [], start
    for row in slices[::-1] if reverse else slices:
        state = (state + (row * factor)).astype(np.float32)
        wanted.append(state)

    def build(a: Value, b: Value, c: Value) -> list[Value]:
        last, kept = loop(_step, 6, [a], [b], [c], [reverse], [reverse, False])
        return [*last, *kept]

    last, kept, read = folded(build, start, slices, factor)
    np.testing.assert_allclose(last, state, rtol=1e-5)
    np.testing.assert_allclose(kept, wanted[::-1] if reverse else wanted, rtol=1e-5)
    np.testing.assert_array_equal(read, slices[::-1] if reverse else slices)
    given = ((start, "float32"), (slices, "float32"), (np.asarray(factor), "float32"))
    check_compiled(build, *given)


def test_a_loop_is_one_node_whose_workloads_are_counted_by_trip() -> None:
    start, slices = input_value("h", (4,), "float32"), input_value("x", (1000, 4), "float32")
    (last,), _ = loop(_step, 1000, [start], [slices], [constant(np.float32(2))])
    graph = Graph((start, slices), {"h": last})
    assert [type(node.operation) for node in graph.nodes] == [Loop]
    assert {it.name: count for it, count in graph.workloads.items()} == {"mul": 1000, "add": 1000}


def test_what_no_loop_can_be_is_said() -> None:
    x = input_value("x", (3, 4), "float32")
    with pytest.raises(InvalidValueError, match="at least once"):
        loop(_step, 0, [x], [x], [x])
    with pytest.raises(InvalidValueError, match="has no 4 slices"):
        loop(_step, 4, [x], [x], [x])
    with pytest.raises(InvalidValueError, match="after a step"):
        loop(_step, 3, [input_value("h", (), "float32")], [x], [x])
    beside = input_value("beside", (4,), "float32")
    with pytest.raises(InvalidValueError, match="'beside'.* is no input"):
        loop(lambda s, b, f: ([beside], []), 3, [beside], [x])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_compiled_scans_are_right(dtype: str) -> None:
    x = drawn((3, 18), dtype)
    check_compiled(
        lambda a: [scan("add", a, 1), scan("max", a, 0, True), scan("add", a, 1, True, True)],
        (x, dtype),
    )
