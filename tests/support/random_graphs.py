"""Graphs of random operations, and what passes have to leave as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Value, Window, constant, evaluate, input_value
from autotune.networks.passes.pipeline import GraphPass
from autotune.targets import Target, preset

MACHINE: Target = preset("znver4").with_cores(2)
_SHAPES = ((2, 3, 4), (1, 4, 6), (2, 1, 4, 5), (6, 4), (4,))
_UNARY = ("tanh", "abs", "neg", "sigmoid", "floor")
_BINARY = ("add", "sub", "mul", "max", "min")


def weights(*shape: int, seed: int = 0) -> Value:
    """A constant of random numbers."""
    return constant(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def labels(graph: Graph) -> list[str]:
    """Name of each node of a graph."""
    return [node.label for node in graph.nodes]


def _unary(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    return ops.unary(draw(st.sampled_from(_UNARY)), x)


def _clamped(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    return ops.clamp(x, -1, draw(st.sampled_from([0.5, 6])))


def _with_number(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    return ops.binary(draw(st.sampled_from(_BINARY)), x, draw(st.sampled_from([1.0, -0.5, 2.0])))


def _binary(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    fitting = [it for it in values if _broadcasts(it.shape, x.shape)]
    other = draw(st.sampled_from(fitting))
    pair = (x, other) if draw(st.booleans()) else (other, x)
    return ops.binary(draw(st.sampled_from(_BINARY)), *pair)


def _broadcasts(one: Sequence[int], other: Sequence[int]) -> bool:
    try:
        return prod(np.broadcast_shapes(tuple(one), tuple(other))) <= 500
    except ValueError:
        return False


def _affine(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    shape = [1] * x.rank
    if x.rank:
        axis = draw(st.integers(0, x.rank - 1))
        shape[axis] = x.shape[axis]
    op = draw(st.sampled_from(["add", "mul", "sub"]))
    return ops.binary(op, x, weights(*shape, seed=draw(st.integers(0, 3))))


def _reduced(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    if not x.rank:
        return x
    axis = draw(st.integers(0, x.rank - 1))
    if draw(st.booleans()):
        return ops.mean(x, [axis], draw(st.booleans()))
    return ops.reduce(draw(st.sampled_from(["add", "max"])), x, [axis], draw(st.booleans()))


def _of_rows(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    if not x.rank:
        return x
    axis = draw(st.sampled_from([x.rank - 1, 0]))
    return ops.softmax(x, axis) if draw(st.booleans()) else ops.normalized(x, [axis], 0.1)


def _transposed(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    return ops.transpose(x, draw(st.permutations(range(x.rank))))


def _reshaped(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    rest, shape = x.size, []
    for _ in range(draw(st.integers(0, 3))):
        shape.append(draw(st.sampled_from([it for it in range(1, rest + 1) if rest % it == 0])))
        rest //= shape[-1]
    return ops.reshape(x, [*shape, rest])


def _part(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    if not x.rank:
        return x
    axis = draw(st.integers(0, x.rank - 1))
    start = draw(st.integers(0, x.shape[axis] - 1))
    return ops.slice_axis(x, axis, start, None, draw(st.sampled_from([1, 2])))


def _joined(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    if not x.rank or x.size > 200:
        return x
    fitting = [it for it in values if it.shape == x.shape]
    return ops.concat([x, draw(st.sampled_from(fitting))], draw(st.integers(0, x.rank - 1)))


def _padded(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    if not x.rank or x.size > 200:
        return x
    low = [draw(st.integers(0, 1)) for _ in range(x.rank)]
    return ops.pad(x, low, [1] + [0] * (x.rank - 1))


def _product(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    if not x.rank:
        return x
    return ops.matmul(x, weights(x.shape[-1], draw(st.integers(1, 4))))


def _convolved(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    if x.rank < 3:
        return x
    groups = draw(st.sampled_from([1, x.shape[1]]))
    window = Window.of([2] + [1] * (x.rank - 3), low=[1] + [0] * (x.rank - 3))
    kernel = weights(2 * groups, x.shape[1] // groups, *window.kernel)
    return ops.convolution(x, kernel, window, groups)


def _taken(draw: Any, x: Value, values: Sequence[Value]) -> Value:
    if not x.rank:
        return x
    axis = draw(st.integers(0, x.rank - 1))
    index = draw(st.integers(-x.shape[axis], x.shape[axis] - 1))
    found = np.asarray(index if draw(st.booleans()) else [index, 0], np.int64)
    return ops.take(x, constant(found), axis)


_STEPS: tuple[Callable[[Any, Value, Sequence[Value]], Value], ...] = (
    *(_unary, _clamped, _with_number, _binary, _binary, _affine, _affine),
    *(_reduced, _of_rows, _transposed, _reshaped, _reshaped, _part, _joined, _padded),
    *(_product, _convolved, _taken),
)


@st.composite
def random_graphs(draw: Any) -> Graph:
    """Graphs of up to a dozen operations, of which some results are read several times."""
    shape = draw(st.sampled_from(_SHAPES))
    inputs = (input_value("x", shape, "float32"), input_value("y", shape, "float32"))
    values: list[Value] = [*inputs]
    for _ in range(draw(st.integers(2, 10))):
        recent = values[-3:]
        step = draw(st.sampled_from(_STEPS))
        x = draw(st.sampled_from(recent))
        if x.size <= 500:
            values.append(step(draw, x, values))
    outputs = {"last": values[-1]}
    if draw(st.booleans()):
        outputs["other"] = draw(st.sampled_from(values))
    return Graph(inputs, outputs)


def check_equal(graph: Graph, *passes: GraphPass) -> Graph:
    """Check that passes leave the results of a graph as they are, but for the order of sums."""
    rng = np.random.default_rng(0)
    given = {
        it.name: rng.standard_normal(it.shape).astype(np.float32)
        if it.dtype == "float32"
        else rng.integers(0, 2, it.shape).astype(it.dtype)
        for it in graph.inputs
    }
    expected = evaluate(graph, given)
    for each in passes:
        graph, note = each(graph, MACHINE)
        assert isinstance(note, str)
    found = evaluate(graph, given)
    assert [*found] == [*expected]
    for name, array in expected.items():
        assert found[name].shape == array.shape and found[name].dtype == array.dtype
        scale = np.max(np.abs(array), initial=1.0, where=np.isfinite(array))
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=2e-5 * scale)
    return graph
