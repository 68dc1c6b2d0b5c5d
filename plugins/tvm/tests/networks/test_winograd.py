"""Winograd's convolution: what it computes, which convolutions it takes, and when it is chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autotune_tvm.networks.extraction import extract_tasks
from autotune_tvm.networks.passes import winograd
from autotune_tvm.networks.passes.expected_costs import Costs
from autotune_tvm.networks.passes.winograd import choose_winograd, with_tile
from autotune_tvm.networks.pipeline import run_passes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from relax_networks import const, network, op, run, weights

from autotune.networks.kept_speedups import KeptSpeedups
from autotune.networks.passes.winograd_tiles import Tile
from autotune.targets import Target, preset

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


@settings(max_examples=4)
@given(
    tile=st.sampled_from(TILES),
    batch=st.integers(1, 2),
    sizes=st.tuples(*[st.integers(3, 9)] * 2),
    channels=st.tuples(*[st.integers(1, 5)] * 2),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
)
def test_outputs_are_as_near_to_the_direct_convolution_as_the_bound_says(
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
    kernel = weights(3, 3, *channels)
    (rows, columns), eps = tile.axes, np.finfo(np.float32).eps
    additions = channels[0] * rows.taps_left * columns.taps_left
    additions += 2 * rows.window * columns.window + 4
    terms = 9 * channels[0] * np.abs(data).max() * np.abs(kernel).max()
    bound = tile.growth * terms * additions * eps / 2
    want = direct(data, kernel, padding)
    assert found.shape == want.shape and np.abs(found - want).max() <= bound


@pytest.mark.parametrize(("size", "programs"), [(8, 3), (7, 4)])
def test_what_follows_is_computed_in_the_transform_of_the_output(
    target: Target, size: int, programs: int
) -> None:
    module = convolution((1, size, size, 8), 8, relu=True)
    changed = {"winograd": lambda given: with_tile(given, Tile(4, 4))}
    after, _ = run_passes(module, target, 1, changed)
    names = {name for name in functions(after) if not name.startswith("reshape")}
    assert len(names) == programs, names
    nodes = {task.nodes for task in extract_tasks(after)}
    assert ("winograd_input",) in nodes
    assert (("winograd_output", "add", "relu") in nodes) == (size == 8)
    data = np.random.default_rng(0).standard_normal((1, size, size, 8)).astype(np.float32)
    for want, got in zip(run(module, data), run(after, data), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "others",
    [
        {"strides": 2},
        {"dilation": 2},
        {"groups": 2},
        {"out_dtype": "float64"},
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


class Answers(KeptSpeedups):
    """Has an answer for every convolution."""

    speedups: tuple[float | None, ...] = (None, None, None)

    def find(self, key: str) -> tuple[float | None]:
        """Of the tile in the key."""
        (place,) = (i for i, tile in enumerate(winograd.TILES) if f"by {tile};" in key)
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
    module = convolution((1, 28, 28, 128), 128)
    after, note = choose_winograd(module, target, Answers(Path("unused")))
    if chosen is None:
        assert (after, note) == (module, "")
    else:
        tile, speedup = winograd.TILES[chosen], speedups[chosen]
        assert note == f"1 by {tile}; expected to be up to {speedup:.2f} times as fast"
        assert "winograd_input" in functions(after)


@pytest.mark.parametrize(("size", "channels"), [(8, 8), (256, 1)])
def test_convolutions_that_cannot_gain_stay_unasked(
    target: Target, monkeypatch: pytest.MonkeyPatch, size: int, channels: int
) -> None:
    monkeypatch.setattr(Costs, "of", never)
    module = convolution((1, size, size, channels), 128)
    assert choose_winograd(module, target) == (module, "")


def test_devices_have_direct_convolutions() -> None:
    module = convolution((1, 28, 28, 128), 128)
    assert choose_winograd(module, preset("a100"), Answers(Path("unused"))) == (module, "")


@pytest.mark.slow
def test_the_draft_model_chooses_and_its_answer_is_kept(target: Target, tmp_path: Path) -> None:
    kept = KeptSpeedups(tmp_path / "speedups.json")
    module = convolution((1, 28, 28, 128), 128, relu=True)
    changed = {"winograd": lambda it: choose_winograd(it, target, kept)[0]}
    first, second = (run_passes(module, target, 1, changed) for _ in range(2))
    assert "fused_winograd_output_add_relu" in functions(first[0])
    assert functions(first[0]) == functions(second[0])
    answers = json.loads((tmp_path / "speedups.json").read_text())["speedups"]
    assert len(answers) == len(winograd.TILES) and max(answers.values()) > 1.3
