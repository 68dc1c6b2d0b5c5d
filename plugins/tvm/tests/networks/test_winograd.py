"""Winograd's convolution: what it computes, which convolutions it takes, and when it is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from autotune_tvm.networks.passes import winograd
from autotune_tvm.networks.passes.winograd import with_tile
from autotune_tvm.networks.passes.winograd_tiles import ALONG_AN_AXIS, TAPS, Tile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from relax_networks import const, network, op, run, weights

LAST = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
TILES = [Tile(1, 2), Tile(4, 1), *winograd.TILES]


def convolution(
    data: tuple[int, ...], features: int, padding: Any = 1, *, relu: bool = False, **others: Any
) -> Any:
    """A network of one convolution of 3 x 3 taps with the channels last."""
    kernel = const(weights(3, 3, data[-1] // others.get("groups", 1), features))

    def body(emit: Any, x: Any) -> Any:
        y = emit(op.nn.conv2d(x, kernel, padding=padding, **{**LAST, **others}))
        if not relu:
            return y
        return emit(op.nn.relu(emit(op.add(y, const(weights(features))))))

    return network([(data, "float32")], body)


def functions(module: Any) -> list[str]:
    """Names of the compiled functions."""
    names = [str(variable.name_hint) for variable in module.get_global_vars()]
    return sorted(name for name in names if name != "main")


@pytest.mark.parametrize("step", [2, 4])
def test_a_transformed_axis_correlates(step: int) -> None:
    """``A^T ((G g) * (B^T d))`` is linear in both: basis vectors show all of it."""
    axis = ALONG_AN_AXIS[step]
    assert axis.window == step + TAPS - 1 and axis.step == step
    for data in np.eye(axis.window):
        for taps in np.eye(TAPS):
            found = axis.outputs @ ((axis.taps[:, 0] @ taps) * (axis.inputs @ data))
            np.testing.assert_allclose(found, np.correlate(data, taps), atol=1e-12)


def direct(data: NDArray[Any], kernel: NDArray[Any], padding: tuple[int, ...]) -> NDArray[Any]:
    """The convolution in float64."""
    top, left, bottom, right = padding
    whole = np.pad(data.astype(float), [(0, 0), (top, bottom), (left, right), (0, 0)])
    height, width = whole.shape[1] - 2, whole.shape[2] - 2
    parts = [
        whole[:, i : i + height, j : j + width] @ kernel[i, j].astype(float)
        for i in range(3)
        for j in range(3)
    ]
    return np.sum(parts, 0)


@settings(max_examples=5)
@given(
    tile=st.sampled_from(TILES),
    batch=st.integers(1, 2),
    sizes=st.tuples(*[st.integers(3, 9)] * 2),
    channels=st.tuples(*[st.integers(1, 5)] * 2),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
)
def test_outputs_are_those_of_the_direct_convolution(
    tile: Tile,
    batch: int,
    sizes: tuple[int, int],
    channels: tuple[int, int],
    padding: tuple[int, int, int, int],
) -> None:
    shape = batch, *sizes, channels[0]
    after = with_tile(convolution(shape, channels[1], padding), tile)
    assert "winograd_input" in functions(after)
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (found,) = run(after, data)
    want = direct(data, weights(3, 3, *channels), padding)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize(
    "others",
    [
        {"strides": 2},
        {"dilation": 2},
        {"groups": 2},
        {"data_layout": "NCHW", "kernel_layout": "HWIO", "padding": 3},
    ],
)
def test_other_convolutions_stay(others: Any) -> None:
    padding = others.pop("padding", 1)
    assert functions(with_tile(convolution((1, 8, 8, 8), 8, padding, **others), Tile(2, 2))) == []


def test_variable_weights_and_other_types_stay() -> None:
    def variable(emit: Any, x: Any, w: Any) -> Any:
        return emit(op.nn.conv2d(x, w, padding=1, **LAST))

    shapes = [((1, 8, 8, 4), "float32"), ((3, 3, 4, 4), "float32")]
    assert functions(with_tile(network(shapes, variable), Tile(2, 2))) == []
    kernel = const(weights(3, 3, 4, 4).astype(np.float64))

    def double(emit: Any, x: Any) -> Any:
        return emit(op.nn.conv2d(x, kernel, padding=1, **LAST))

    module = network([((1, 8, 8, 4), "float64")], double)
    assert functions(with_tile(module, Tile(2, 2))) == []
