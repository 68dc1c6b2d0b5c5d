"""Winograd's convolution: what it computes, which convolutions it takes, and when it is chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convolution_networks import convolved, networks, same_outputs, weights
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Window, evaluate, input_value
from autotune.networks.passes import winograd
from autotune.networks.passes.channels_last import channels_last
from autotune.networks.passes.expected_costs import Costs, KeptSpeedups
from autotune.networks.passes.winograd import (
    ALONG_AN_AXIS,
    TAPS,
    TILES,
    WORKLOADS,
    Tile,
    choose_winograd,
    with_tile,
)
from autotune.targets import Target, preset

ORDERS = {"first": lambda graph: graph, "last": channels_last}


def convolution(
    shape: tuple[int, ...],
    features: int,
    padding: tuple[int, int, int, int] = (1, 1, 1, 1),
    dtype: str = "float32",
    groups: int = 1,
    **others: Any,
) -> Graph:
    """A network of one convolution of 3 x 3 taps."""
    x = input_value("x", shape, dtype)
    window = Window.of((3, 3), low=padding[:2], high=padding[2:], **others)
    kernel = weights((features, shape[1] // groups, 3, 3), dtype)
    return Graph((x,), {"y": ops.convolution(x, kernel, window, groups)})


def names(graph: Graph) -> list[str]:
    """Names of its nodes."""
    return [node.label for node in graph.nodes]


def direct(
    data: NDArray[Any], kernel: NDArray[Any], padding: tuple[int, int, int, int]
) -> NDArray[Any]:
    """The convolution in float64."""
    top, left, bottom, right = padding
    whole = np.pad(data.astype(float), [(0, 0), (0, 0), (top, bottom), (left, right)])
    windows = np.lib.stride_tricks.sliding_window_view(whole, (3, 3), (2, 3))
    return np.asarray(np.einsum("nchwij,fcij->nfhw", windows, kernel.astype(float)))


@settings(max_examples=12)
@given(
    tile=st.sampled_from([Tile(1, 2), Tile(4, 1), *TILES]),
    order=st.sampled_from(sorted(ORDERS)),
    batch=st.integers(1, 2),
    sizes=st.tuples(*[st.integers(3, 9)] * 2),
    channels=st.tuples(*[st.integers(1, 5)] * 2),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
)
def test_outputs_are_as_near_to_the_direct_convolution_as_the_bound_says(
    tile: Tile,
    order: str,
    batch: int,
    sizes: tuple[int, int],
    channels: tuple[int, int],
    padding: tuple[int, int, int, int],
) -> None:
    shape = batch, channels[0], *sizes
    after = with_tile(ORDERS[order](convolution(shape, channels[1], padding)), tile)
    assert {WORKLOADS[0], WORKLOADS[2]} <= {*names(after)}
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found = evaluate(after, {"x": data})["y"]
    kernel = weights((channels[1], channels[0], 3, 3)).constant
    assert kernel is not None
    (rows, columns), eps = tile.axes, np.finfo(np.float32).eps
    additions = channels[0] * rows.taps_left * columns.taps_left
    additions += 2 * rows.window * columns.window + 4
    terms = 9 * channels[0] * np.abs(data).max() * np.abs(kernel).max()
    want = direct(data, kernel, padding)
    assert found.shape == want.shape
    assert np.abs(found - want).max() <= tile.growth * terms * additions * eps / 2


@settings(max_examples=6)
@given(graph=networks(), tile=st.sampled_from(TILES))
def test_random_networks_compute_the_same(graph: Graph, tile: Tile) -> None:
    same_outputs(graph, with_tile(graph, tile), 1e-3, 1e-3)


@pytest.mark.parametrize(
    "others",
    [
        {"strides": (2, 2)},
        {"dilations": (2, 2)},
        {"groups": 2},
        {"groups": 8},
        {"dtype": "float64"},
        {"dtype": "float16"},
    ],
)
def test_other_convolutions_stay(others: Any) -> None:
    for order in ORDERS.values():
        graph = order(convolution((1, 8, 8, 8), 8, **others))
        assert names(with_tile(graph, Tile(2, 2))) == names(graph)


def test_other_windows_and_variable_weights_stay() -> None:
    x, w = input_value("x", (1, 4, 8, 8), "float32"), input_value("w", (4, 4, 3, 3), "float32")
    variable = Graph((x, w), {"y": ops.convolution(x, w, Window.of((3, 3)))})
    rows = Graph((x,), {"y": ops.convolution(x, weights((4, 4, 3, 1)), Window.of((3, 1)))})
    line = input_value("x", (1, 4, 8), "float32")
    single = Graph((line,), {"y": convolved(line, 4, 3)})
    for graph in (variable, rows, single):
        assert [*with_tile(graph, Tile(2, 2)).nodes] == [*graph.nodes]


class Answers(KeptSpeedups):
    """Has an answer for every convolution."""

    speedups: tuple[float | None, ...] = (None, None, None)

    def find(self, key: str) -> tuple[float | None]:
        """Of the tile in the key."""
        (place,) = (i for i, tile in enumerate(TILES) if f"by {tile};" in key)
        return (self.speedups[place],)


def never(self: Any, workload: Any) -> float:
    raise AssertionError("asked for what is known")


@pytest.mark.parametrize(
    ("speedups", "chosen"),
    [
        ((1.2, None, 1.29), None),
        ((1.5, 2.0, None), 1),
        ((None, 2.0, 2.1), 1),
        ((1.5, 2.0, 2.3), 2),
    ],
)
def test_kept_answers_choose(
    target: Target,
    monkeypatch: pytest.MonkeyPatch,
    speedups: tuple[float | None, ...],
    chosen: int | None,
) -> None:
    """The fastest tile; one of less error where that is hardly slower."""
    monkeypatch.setattr(Costs, "of", never)
    monkeypatch.setattr(Answers, "speedups", speedups)
    graph = convolution((1, 128, 28, 28), 128)
    after, note = choose_winograd(graph, target, Answers(Path("unused")))
    if chosen is None:
        assert (after, note) == (graph, "")
    else:
        tile, speedup = TILES[chosen], speedups[chosen]
        assert note == f"1 by {tile}; expected to be up to {speedup:.2f} times as fast"
        assert WORKLOADS[0] in names(after)


@pytest.mark.parametrize(("size", "channels"), [(8, 8), (256, 1)])
def test_convolutions_that_cannot_gain_stay_unasked(
    target: Target, monkeypatch: pytest.MonkeyPatch, size: int, channels: int
) -> None:
    monkeypatch.setattr(Costs, "of", never)
    graph = convolution((1, channels, size, size), 128)
    assert choose_winograd(graph, target) == (graph, "")


def test_devices_have_direct_convolutions() -> None:
    graph = convolution((1, 128, 28, 28), 128)
    assert choose_winograd(graph, preset("a100"), Answers(Path("unused"))) == (graph, "")


def test_equal_convolutions_are_asked_for_once_and_kept(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(Costs, "of", lambda self, workload: asked.append(workload) or 1.0)
    x = input_value("x", (1, 64, 28, 28), "float32")
    graph = Graph((x,), {"y": convolved(convolved(convolved(x, 64, 3), 64, 3), 64, 3)})
    kept = KeptSpeedups(tmp_path / "speedups.json")
    for _ in range(2):
        choose_winograd(graph, target, kept)
    answers = json.loads(kept.path.read_text())["speedups"]
    assert len(answers) == len(winograd.TILES)
    assert len({*asked}) == len(asked) - 2  # the direct convolution, once for each tile


@pytest.mark.parametrize("step", [2, 4])
def test_a_transformed_axis_correlates(step: int) -> None:
    """``A^T ((G g) * (B^T d))`` is linear in both: basis vectors show all of it."""
    axis = ALONG_AN_AXIS[step]
    assert axis.window == step + TAPS - 1 and axis.step == step
    for data in np.eye(axis.window):
        for taps in np.eye(TAPS):
            found = axis.outputs @ ((axis.taps[:, 0] @ taps) * (axis.inputs @ data))
            np.testing.assert_allclose(found, np.correlate(data, taps), atol=1e-12)


@pytest.mark.parametrize(("tile", "growth"), [((1, 1), 1), ((1, 2), 8 / 3), ((4, 4), 256)])
def test_the_growth_of_the_error_is_the_documented_one(tile: Any, growth: float) -> None:
    assert Tile(*tile).growth == pytest.approx(growth)
