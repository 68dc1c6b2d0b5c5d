from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.gradients import Network, gradient

from autotune.search.schedulers import TaskInfo, task_gradients
from autotune.search.schedulers.gradients import PATIENCE


def _maximum(latencies: Mapping[str, Any]) -> Any:
    return max(latencies.values())


def _weighted(latencies: Mapping[str, Any]) -> Any:
    return sum((2 + len(name)) * latency for name, latency in latencies.items())


def _squares(latencies: Mapping[str, Any]) -> Any:
    return sum(latency * latency for latency in latencies.values())


@st.composite
def _measured_tasks(draw: st.DrawFn) -> tuple[TaskInfo, list[float | None], list[int]]:
    """A task with its rounds; numbers that floating point divides exactly, so that ties count."""
    contest = draw(st.sampled_from(["", "", "x", "y"]))
    info = TaskInfo(
        weight=draw(st.integers(0, 4)),
        flop=draw(st.sampled_from([0.0, 2.0**20, 2.0**20, 2.0**22, 2.0**23])),
        group=draw(st.sampled_from(["", "a", "a", "a", "b"])),
        contest=contest,
        program=contest or draw(st.sampled_from(["p", "qq", "rrr", "ssss"])),
    )
    rounds = draw(st.sampled_from([1, 1, 2, 3, 4, 5, 8, 12]))
    without = draw(st.sampled_from([0, 0, 0, 1, 2, rounds]))
    # Of many rounds, too, the last may be slow.
    least = draw(st.integers(1, 64))
    known = draw(st.lists(st.integers(least, 80), min_size=rounds, max_size=rounds))
    latencies = [latency / 1024 for latency in sorted(known, reverse=True)]
    history = [None if at < without else latency for at, latency in enumerate(latencies)]
    return info, history, draw(st.lists(st.integers(1, 8), min_size=rounds, max_size=rounds))


_measured_networks = st.builds(
    lambda measured, alpha, beta, window, objective: Network(
        *zip(*measured, strict=True), {"alpha": alpha, "beta": beta, "window": window}, objective
    ),
    st.lists(_measured_tasks(), min_size=3, max_size=8),
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    st.sampled_from([1.0, 1.5, 2.0, 4.0]),
    st.integers(1, 4),
    st.sampled_from([None, None, _maximum, _weighted, _squares]),
)


def test_the_formula_by_hand() -> None:
    tasks = [TaskInfo(3.0, 8e6, "g"), TaskInfo(1.0, 1e6, "g")]
    histories = [[0.9, 0.8, 0.6, 0.5, 0.5], [0.02]]
    # backward: (0.5 - 0.8) / 3 = -0.1. forward: min(-0.5 / 5, 2 * 8e6 / 5e7 - 0.5 = -0.18).
    expected = 3.0 * (0.2 * -0.1 + 0.8 * -0.18)
    found = task_gradients(tasks, histories)
    assert found[0] == pytest.approx(expected)
    # The fastest of its group can only hope that time goes on working: -0.02 / 1.
    assert found[1] == pytest.approx(0.8 * -0.02)


def test_small_rounds_count_as_parts_of_the_largest() -> None:
    tasks = [TaskInfo(1.0, 0.0), TaskInfo(1.0, 0.0)]
    histories, sizes = [[0.4, 0.4, 0.3, 0.2], [0.6]], [[1, 1, 2, 4], [8]]
    # backward: (0.2 - 0.4) / (7 / 8). forward: -0.2 / (8 / 8).
    few, many = task_gradients(tasks, histories, sizes)
    assert few == pytest.approx(0.2 * -0.2 / (7 / 8) + 0.8 * -0.2)
    assert many == pytest.approx(0.8 * -0.6)
    assert task_gradients(tasks, histories, [[16] * 4, [16]]) == task_gradients(tasks, histories)


@settings(max_examples=200)
@given(_measured_networks, st.booleans())
def test_gradients_are_those_of_the_published_rule(network: Network, equal: bool) -> None:
    sizes = None if equal else network.sizes
    if equal:
        network = evolve(network, sizes=[[1] * len(history) for history in network.histories])
    found = task_gradients(
        network.tasks, network.histories, sizes, objective=network.objective, **network.options
    )
    for task, value in enumerate(found):
        expected = float(gradient(network, task, PATIENCE))
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-8), task


def test_latencies_of_zero_gain_nothing() -> None:
    tasks = [TaskInfo(1.0, 1e9, "g"), TaskInfo(1.0, 1e9, "g")]
    found = task_gradients(tasks, [[0.0], [1.0]])
    assert found[0] == 0 and math.isfinite(found[1])
