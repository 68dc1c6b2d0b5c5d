"""Networks of convolutions, as graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from network_graphs import drawn

from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Value, Window, constant, evaluate, input_value


def weights(shape: Sequence[int], dtype: str = "float32", seed: int = 0) -> Value:
    """A constant of random elements; floats are of the order of 0.3."""
    if dtype == "int8":
        return constant(drawn(shape, dtype, seed))
    numbers = np.random.default_rng(seed).standard_normal(tuple(shape)) * 0.3
    return constant(numbers.astype(np.float32) if dtype == "float32" else numbers, dtype)


def convolved(x: Value, features: int, kernel: int, stride: int = 1, groups: int = 1) -> Value:
    """A convolution that keeps the size of its image where the stride is 1, its bias and relu."""
    rank = x.rank - 2
    w = weights((features, x.shape[1] // groups, *[kernel] * rank))
    low = [kernel // 2] * rank
    y = ops.convolution(x, w, Window.of([kernel] * rank, [stride] * rank, low), groups)
    return ops.clamp(ops.binary("add", y, weights((features, *[1] * rank), seed=1)), 0.0)


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """Networks of up to six convolutions, and of what lies between and behind convolutions."""
    shape = draw(st.integers(1, 2)), draw(st.sampled_from([2, 3, 4])), *draw(_SIZES)
    x = input_value("x", shape, "float32")
    y, before = x, x
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(_KINDS))
        if kind == "convolution":
            features, kernel = draw(st.sampled_from([2, 4, 6])), draw(st.sampled_from([1, 3]))
            y = convolved(y, features, kernel, draw(st.integers(1, 2)))
        elif kind == "depthwise":
            y = convolved(y, y.shape[1], 3, 1, y.shape[1])
        elif kind == "grouped" and y.shape[1] % 2 == 0:
            y = convolved(y, 4, 3, 1, 2)
        elif kind == "residual" and before.shape == y.shape:
            y = ops.binary("add", y, before)
        elif kind == "pool" and min(y.shape[2:]) > 1:
            y = ops.window_reduce("max", y, Window.of((2, 2), (1, 2), (0, 1)))
        elif kind == "excite":
            y = ops.binary("mul", y, ops.unary("sigmoid", ops.mean(y, [2, 3])))
        elif kind == "concat":
            y = ops.concat([y, ops.unary("neg", y)], draw(st.integers(1, 3)))
        elif kind == "flat":
            y = ops.reshape(ops.softmax(ops.reshape(y, (*y.shape[:2], -1)), 2), y.shape)
        elif kind == "turn":
            y = ops.transpose(y, draw(st.permutations([0, 1, 2, 3])))
        if draw(st.booleans()):
            before = y
    outputs = {"y": y, "before": before, "mean": ops.mean(y, [2, 3], False)}
    return Graph((x,), outputs)


_SIZES = st.tuples(st.integers(2, 6), st.integers(2, 6))
_KINDS = (
    *("convolution", "convolution", "depthwise", "grouped", "residual", "pool", "excite"),
    *("concat", "flat", "turn"),
)


def same_outputs(graph: Graph, other: Graph, rtol: float = 1e-4, atol: float = 1e-4) -> None:
    """Check that two graphs of the same inputs compute the same."""
    given = {it.name: drawn(it.shape, it.dtype) for it in graph.inputs}
    found = evaluate(other, given)
    for name, array in evaluate(graph, given).items():
        assert found[name].shape == array.shape and found[name].dtype == array.dtype
        scale = max(1.0, float(np.abs(array).max(initial=0)))
        np.testing.assert_allclose(found[name], array, rtol=rtol, atol=atol * scale)
