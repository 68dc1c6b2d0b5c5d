"""Networks with their channels last compute the same, and transpose at their borders only."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convolution_networks import convolved, networks, same_outputs, weights
from hypothesis import given, settings

from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Value, Window, input_value
from autotune.networks.passes import expected_costs
from autotune.networks.passes.channels_last import (
    channels_last,
    choose_layout,
    convolutions,
    reshaped_order,
)
from autotune.networks.passes.expected_costs import (
    Costs,
    KeptSpeedups,
    cost_key,
    expected_speedup,
    user_file,
)
from autotune.networks.passes.fuse import fuse
from autotune.networks.passes.views import views
from autotune.targets import Target, preset


def labels(graph: Graph) -> list[str]:
    """Labels of its nodes, reshapes left out."""
    return [node.label for node in graph.nodes if node.label != "reshape"]


def last(build: Callable[[Value], Value], shape: Sequence[int] = (1, 8, 7, 6)) -> list[str]:
    """The nodes of a network with the channels last, which computes the same."""
    x = input_value("x", shape, "float32")
    graph = Graph((x,), {"y": build(x)})
    changed = channels_last(graph)
    same_outputs(graph, changed)
    return labels(changed)


@settings(max_examples=15)
@given(graph=networks())
def test_random_networks_compute_the_same(graph: Graph) -> None:
    same_outputs(graph, channels_last(graph))


@pytest.mark.parametrize(
    ("shape", "kernel", "window", "groups"),
    [
        ((2, 4, 9), (8, 4, 3), Window.of((3,), (2,)), 1),
        ((1, 4, 7, 6), (8, 4, 3, 3), Window.of((3, 3), None, (1, 0), (2, 1)), 1),
        ((1, 4, 7, 7), (8, 2, 3, 3), Window.of((3, 3), None, None, None, (2, 2)), 2),
        ((1, 4, 7, 7), (4, 1, 3, 3), Window.of((3, 3)), 4),
        ((1, 4, 7, 7), (8, 4, 1, 1), Window.of((1, 1), (2, 2)), 1),
        ((1, 4, 4, 5, 5), (8, 4, 2, 3, 3), Window.of((2, 3, 3), (1, 2, 2)), 1),
    ],
)
def test_transposes_are_left_at_the_borders(
    shape: Sequence[int], kernel: Sequence[int], window: Window, groups: int
) -> None:
    found = last(lambda x: ops.convolution(x, weights(kernel), window, groups), shape)
    assert found == ["transpose", "convolution", "transpose"]


def test_convolutions_of_one_element_are_products() -> None:
    found = last(lambda x: convolved(convolved(x, 12, 1), 4, 1))
    assert found == ["transpose", "matmul", "add", "clamp", "matmul", "add", "clamp", "transpose"]


BETWEEN: dict[str, Callable[[Value], Value]] = {
    "pool": lambda y: ops.window_reduce("max", y, Window.of((2, 2), (2, 2))),
    "resample": lambda y: ops.resample(y, 2, np.array([[0, 1], [1, 2]]), np.ones((2, 2))),
    "concat": lambda y: ops.concat([y, ops.unary("tanh", y)], 1),
    "slice": lambda y: ops.slice_axis(y, 1, 0, 4),
    "pad": lambda y: ops.pad(y, (0, 0, 1, 0), (0, 1, 0, 2)),
    "softmax": lambda y: ops.softmax(y, 1),
    "excite": lambda y: ops.binary("mul", y, ops.unary("sigmoid", ops.mean(y, [2, 3]))),
    "function": lambda y: ops.unary("tan", y),
    "residual": lambda y: ops.binary("add", y, convolved(y, y.shape[1], 3)),
    "constant": lambda y: ops.binary("add", y, weights(y.shape)),
    "shuffle": lambda y: ops.reshape(
        ops.transpose(ops.reshape(y, (1, 2, -1, *y.shape[2:])), (0, 2, 1, 3, 4)), y.shape
    ),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_what_is_between_convolutions_is_computed_as_it_is_stored(name: str) -> None:
    found = last(lambda x: convolved(BETWEEN[name](convolved(x, 8, 3)), 8, 3))
    moved = [it for it in found if it == "transpose"]
    # Groups that are shuffled are moved, of what is stored.
    assert len(moved) == 2 + (name == "shuffle")


def test_a_mean_over_the_image_needs_no_transpose() -> None:
    found = last(
        lambda x: ops.matmul(ops.mean(convolved(x, 8, 3), [2, 3], False), weights((8, 4)))
    )
    assert found.count("transpose") == 1


def test_a_transposed_result_is_what_is_stored() -> None:
    found = last(lambda x: ops.transpose(convolved(x, 8, 3), (0, 2, 3, 1)))
    assert found.count("transpose") == 1


def test_products_of_two_images_are_of_the_model() -> None:
    def build(x: Value) -> Value:
        y = ops.reshape(convolved(x, 8, 3), (1, 8, -1))
        return ops.matmul(y, ops.transpose(y, (0, 2, 1)))

    assert last(build).count("transpose") >= 2


def test_networks_without_constant_weights_stay() -> None:
    x, w = input_value("x", (1, 3, 6, 6), "float32"), input_value("w", (4, 3, 3, 3), "float32")
    graph = Graph((x, w), {"y": ops.convolution(x, w, Window.of((3, 3)))})
    assert convolutions(graph) == 0
    assert [*channels_last(graph).nodes] == [*graph.nodes]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_other_types_are_converted_as_they_were(dtype: str) -> None:
    x = input_value("x", (1, 4, 5, 5), dtype)
    result = "int32" if dtype == "int8" else dtype
    outputs = {
        name: ops.convolution(x, weights(kernel, dtype), Window.of(kernel[2:]), 1, result)
        for name, kernel in (("y", (6, 4, 3, 3)), ("z", (6, 4, 1, 1)))
    }
    graph = Graph((x,), outputs)
    changed = channels_last(graph)
    assert labels(changed).count("convolution") == labels(changed).count("matmul") == 1
    same_outputs(graph, changed)


@pytest.mark.parametrize(
    ("before", "after", "order", "wanted"),
    [
        # Channels are split where they are, and stay last.
        ((1, 6, 4, 5), (1, 2, 3, 4, 5), (0, 3, 1, 2), ((1, 4, 5, 2, 3), (0, 3, 4, 1, 2))),
        ((1, 6, 4, 5), (1, 6, 20), (0, 3, 1, 2), ((1, 20, 6), (0, 2, 1))),
        ((2, 6, 1, 1), (2, 6), (0, 3, 1, 2), ((2, 6), (0, 1))),
        ((1, 6, 4, 5), (1, 24, 5), (0, 3, 1, 2), None),
        ((2, 6, 4, 5), (12, 4, 5), (0, 3, 1, 2), None),
    ],
)
def test_reshapes_of_what_is_stored(before: Any, after: Any, order: Any, wanted: Any) -> None:
    found = reshaped_order(before, after, order)
    assert found == wanted
    if found is not None:
        stored = np.arange(np.prod(before)).reshape([before[order.index(i)] for i in range(4)])
        shape, order_after = found
        np.testing.assert_array_equal(
            stored.transpose(order).reshape(after), stored.reshape(shape).transpose(order_after)
        )


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


def test_what_cannot_be_expressed_is_kept_too(tmp_path: Path) -> None:
    kept = KeptSpeedups(tmp_path / "speedups.json")
    assert kept.find("a") is None
    kept.keep("a", None)
    kept.keep("b", 2.0)
    assert (kept.find("a"), kept.find("b"), kept.find("c")) == ((None,), (2.0,), None)


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff\x00",
        b"[" * 100_000,
        b"[]",
        b'{"schema": "autotune.layout_speedups", "version": 2, "speedups": {"a": 2.0}}',
        b'{"schema": "another", "version": 1, "speedups": {"a": 2.0}}',
        b'{"schema": "autotune.layout_speedups", "version": 1, "speedups": [["a", 2.0]]}',
        b'{"schema": "autotune.layout_speedups", "version": 1, "speedups": {"a": NaN}}',
        b'{"schema": "autotune.layout_speedups", "version": 1, "speedups": {"a": -1.0}}',
        b'{"schema": "autotune.layout_speedups", "version": 1, "speedups": {"a": "2"}}',
    ],
)
def test_a_damaged_file_counts_as_empty_and_is_replaced(tmp_path: Path, damage: bytes) -> None:
    kept = KeptSpeedups(tmp_path / "speedups.json")
    kept.path.write_bytes(damage)
    assert kept.find("a") is None
    kept.keep("a", 3.0)
    assert kept.find("a") == (3.0,)


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for path in (tmp_path / "file" / "speedups.json", tmp_path):
        kept = KeptSpeedups(path)
        kept.keep("a", 1.0)
        assert kept.find("a") is None


def test_the_oldest_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.networks.passes.expected_costs._MOST_KEPT", 2)
    kept = KeptSpeedups(tmp_path / "speedups.json")
    for number, key in enumerate("abac"):
        kept.keep(key, 1.0 + number)
    assert [kept.find(key) for key in "abc"] == [(3.0,), None, (4.0,)]


def test_the_file_is_in_the_folder_for_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert user_file() == Path("/caches/autotune/layouts.json")
    monkeypatch.setenv("HOME", "/home/somebody")
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert user_file() == Path("/home/somebody/.cache/autotune/layouts.json")
