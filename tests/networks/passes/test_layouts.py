"""The form of a network that is expected to be faster is chosen, and that is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Value, input_value
from autotune.networks.passes import expected_costs
from autotune.networks.passes.channels_last import channels_last, choose_layout
from autotune.networks.passes.expected_costs import Costs, KeptSpeedups, cost_key, expected_speedup
from autotune.networks.passes.fuse import fuse
from autotune.networks.passes.views import views
from autotune.targets import Target, preset
from tests.support.convolution_networks import convolved, weights

SPEEDUP = f"{channels_last.__module__}.expected_speedup"


def residual(channels: int, seed: int = 0) -> Graph:
    """A bottleneck of a residual network."""
    x = input_value("x", (1, channels, 14, 14), "float32")
    y = convolved(convolved(x, channels, 1), channels, 3)
    y = ops.binary("add", convolved(y, channels, 1), y)
    return Graph((x,), {"y": ops.binary("add", y, weights((channels, 1, 1), seed=seed))})


def test_the_form_that_is_expected_to_be_faster_is_chosen(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = residual(32)
    after = channels_last(graph)
    speedup = expected_speedup(graph, after, target)
    assert speedup is not None and speedup == expected_speedup(graph, after, target)
    assert expected_speedup(after, graph, target) == pytest.approx(1 / speedup)
    gpu = preset("a100")
    told_and_taken = [(1.5, True), (0.9, True), (0.5, False), (None, False)]
    for machine, told, changes in [
        *((target, *it) for it in told_and_taken),
        (gpu, 1.1, True),
        (gpu, 0.9, False),
    ]:
        monkeypatch.setattr(
            f"{channels_last.__module__}.expected_speedup", lambda *_, told=told: told
        )
        chosen, note = choose_layout(graph, machine)
        assert (chosen is not graph) == changes
        assert "3 convolutions" in note


def test_a_graph_without_convolutions_stays_unasked(target: Target) -> None:
    x = input_value("x", (4, 8), "float32")
    graph = Graph((x,), {"y": ops.matmul(x, weights((8, 8)))})
    assert choose_layout(graph, target) == (graph, "")


def test_transposes_count(target: Target) -> None:
    def form(transposed: bool) -> Graph:
        x = input_value("x", (64, 64, 64), "float32")
        y: Value = ops.transpose(x, (0, 2, 1)) if transposed else x
        return Graph((x,), {"y": ops.matmul(ops.clamp(y, 0.0), weights((64, 8)))})

    speedup = expected_speedup(form(False), form(True), target)
    assert speedup is not None and speedup < 1


def test_programs_are_what_later_passes_make(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation is scored with what is computed in its program."""
    scored: list[str] = []
    monkeypatch.setattr(Costs, "of", lambda self, it: scored.append(it.name) or 1.0)
    graph = residual(32)
    assert expected_speedup(graph, channels_last(graph), target, [views, fuse]) is not None
    assert "convolution+add+clamp" in scored and "matmul+add+clamp+add" in scored
    assert "transpose" in scored


def test_a_network_is_scored_once_for_a_machine(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        f"{channels_last.__module__}.expected_speedup", lambda *given: asked.append(given) or 1.5
    )
    kept = KeptSpeedups(tmp_path / "new" / "speedups.json")
    first = choose_layout(residual(8), target, kept)[1]
    assert "1.50 times" in first and len(asked) == 1
    # Other weights make no difference; other shapes, cores and versions do.
    assert choose_layout(residual(8, seed=9), target, kept)[1] == first
    assert len(asked) == 1
    choose_layout(residual(16), target, kept)
    choose_layout(residual(8), target.with_cores(target.cores + 1), kept)
    for part in (expected_costs.SketchSpace, expected_costs.PSA, expected_costs.NativeBackend):
        with monkeypatch.context() as patch:
            patch.setattr(part, "version", "another")
            choose_layout(residual(8), target, kept)
    assert len(asked) == 6
    assert len(json.loads(kept.path.read_text())["speedups"]) == 6


def test_the_key_says_what_a_graph_computes(target: Target) -> None:
    def loop(trips: int, name: str = "x", factor: float = 2.0) -> Graph:
        x, start = input_value(name, (trips, 2), "float32"), input_value("s", (2,), "float32")

        def step(states: Any, slices: Any, fixed: Any) -> Any:
            return [ops.binary("mul", ops.binary("add", states[0], slices[0]), factor)], []

        states, _ = ops.loop(step, trips, [start], [x])
        return Graph((x, start), {"y": states[0]})

    keys = [cost_key("", it, target) for it in (loop(3), loop(4), loop(3, factor=3.0))]
    assert len({*keys}) == 3
    assert cost_key("", loop(3, "z"), target) == keys[0]
    turned = Graph(loop(3).inputs[::-1], loop(3).outputs)
    assert cost_key("", turned, target) != keys[0]
