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
from autotune.search.schedulers.gradient import (
    PATIENCE,
    History,
    backward_gradient,
    expected_latencies,
    similar_latency,
)

_weights = st.floats(1e-3, 1e3)
_groups = st.sampled_from(["", "a", "b"])
_tasks = st.builds(TaskInfo, _weights, st.floats(1e3, 1e12), _groups)


@st.composite
def _histories(draw: st.DrawFn) -> list[float]:
    steps = draw(st.lists(st.floats(0.3, 1.0), max_size=9))
    history = [draw(st.floats(1e-6, 1.0))]
    for step in steps:
        history.append(history[-1] * step)
    return history


_networks = st.lists(st.tuples(_tasks, _histories()), min_size=1, max_size=6)


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


def _gradients(network: list[tuple[TaskInfo, list[float]]], **options: float) -> list[float]:
    tasks, histories = [task for task, _ in network], [history for _, history in network]
    return task_gradients(tasks, histories, **options)  # type: ignore[arg-type]


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


@given(_networks)
def test_gradients_are_negative(network: list[tuple[TaskInfo, list[float]]]) -> None:
    assert all(gradient < 0 for gradient in _gradients(network))


@given(_networks, st.integers(-20, 20), st.integers(-20, 20), st.integers(-20, 20))
def test_units_do_not_matter(
    network: list[tuple[TaskInfo, list[float]]], time: int, work: int, weight: int
) -> None:
    # Powers of two, which floating-point arithmetic scales by exactly.
    scaled = [
        (
            TaskInfo(task.weight * 2.0**weight, task.flop * 2.0**work, task.group),
            [latency * 2.0**time for latency in history],
        )
        for task, history in network
    ]
    expected = [gradient * 2.0 ** (time + weight) for gradient in _gradients(network)]
    assert _gradients(scaled) == expected


@given(_networks, st.data())
def test_a_task_without_weight_gains_nothing(
    network: list[tuple[TaskInfo, list[float]]], data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(network) - 1))
    weightless = list(network)
    weightless[index] = (evolve(network[index][0], weight=0.0), network[index][1])
    found = _gradients(weightless)
    assert found[index] == 0
    assert [g for i, g in enumerate(found) if i != index] == [
        g for i, g in enumerate(_gradients(network)) if i != index
    ]


@given(_tasks, st.floats(1e-6, 1.0), st.integers(4, 12), st.floats(1.01, 10.0))
def test_an_improving_task_goes_before_a_flat_one(
    task: TaskInfo, latency: float, rounds: int, improvement: float
) -> None:
    alone = evolve(task, group="")
    flat = [latency] * rounds
    improving = [latency * improvement] * (rounds - 2) + [latency] * 2
    one, other = task_gradients([alone, alone], [flat, improving])
    assert other < one < 0


@given(_tasks, st.floats(1e-6, 1.0), st.integers(1, 12))
def test_more_rounds_without_progress_lower_the_priority(
    task: TaskInfo, latency: float, rounds: int
) -> None:
    alone = evolve(task, group="")
    few, many = task_gradients([alone] * 2, [[latency] * rounds, [latency] * (rounds + 1)])
    assert few < many < 0


@given(_tasks, st.floats(1e-6, 1.0), st.floats(1.01, 10.0))
def test_weight_raises_the_priority(task: TaskInfo, latency: float, factor: float) -> None:
    heavy = evolve(task, weight=task.weight * factor)
    light, heavier = task_gradients([task, heavy], [[latency], [latency]])
    assert heavier < light


def test_similar_tasks_say_what_can_be_reached() -> None:
    slow, fast = TaskInfo(1.0, 1e9, "g"), TaskInfo(1.0, 1e9, "g")
    grouped = task_gradients([slow, fast], [[1.0] * 6, [0.1] * 6])
    alone = task_gradients([evolve(slow, group=""), fast], [[1.0] * 6, [0.1] * 6])
    assert grouped[0] == pytest.approx(0.8 * (2 * 0.1 - 1.0)) and grouped[0] < alone[0]


def test_a_task_unlike_its_group_leaves_it() -> None:
    tasks = [TaskInfo(1.0, 1e9, "g")] * 2
    for rounds, similar in ((3 + PATIENCE, 0.1), (4 + PATIENCE, None)):
        histories: list[History] = [[1.0] * rounds, [0.1] * 3]
        assert similar_latency(0, tasks, histories, 2.0) == (
            None if similar is None else pytest.approx(similar)
        )
    assert similar_latency(0, tasks, [[0.15] * 20, [0.1] * 3], 2.0) == pytest.approx(0.1)


def test_nothing_is_similar_without_group_latency_or_flop() -> None:
    task, histories = TaskInfo(1.0, 1e9, "g"), [[1.0], [0.5]]
    assert similar_latency(0, [task, evolve(task, group="h")], histories, 2.0) is None
    assert similar_latency(0, [evolve(task, group="")] * 2, histories, 2.0) is None
    assert similar_latency(0, [task, task], [[None], [0.5]], 2.0) is None
    assert similar_latency(0, [task, task], [[1.0], [None]], 2.0) is None
    assert similar_latency(0, [evolve(task, flop=0.0), task], histories, 2.0) is None
    assert similar_latency(0, [task, evolve(task, flop=0.0)], histories, 2.0) is None


def test_the_past_counts_once_it_is_long_enough() -> None:
    assert backward_gradient([5.0, 4.0, 3.0], 3) == 0
    assert backward_gradient([5.0, 4.0, 3.0, 2.0], 3) == -1
    assert backward_gradient([None, 4.0, 3.0, 2.0], 3) == 0
    assert backward_gradient([None, None], 1) == 0


def test_tasks_without_a_latency_are_taken_to_be_slow() -> None:
    tasks = [TaskInfo(1.0, 1e9), TaskInfo(1.0, 1e9), TaskInfo(1.0, 4e9), TaskInfo(1.0, 0.0)]
    histories: list[History] = [[0.1], [0.3], [None], [None]]
    assert expected_latencies(tasks, histories) == pytest.approx([0.1, 0.3, 1.2, 0.3])
    assert expected_latencies(tasks[2:], histories[2:]) == [0.0, 0.0]
    assert task_gradients(tasks[2:], histories[2:]) == [0.0, 0.0]


def test_latencies_of_zero_gain_nothing() -> None:
    tasks = [TaskInfo(1.0, 1e9, "g"), TaskInfo(1.0, 1e9, "g")]
    found = task_gradients(tasks, [[0.0], [1.0]])
    assert found[0] == 0 and math.isfinite(found[1])


def test_a_backend_that_is_behind_has_to_close_the_gap_first() -> None:
    tasks = [TaskInfo(2.0, 1e6, "a", "gemm"), TaskInfo(2.0, 1e6, "b", "gemm")]
    leading, behind = task_gradients(tasks, [[0.02, 0.01], [0.02, 0.013]])
    # forward: half the latency in each of two more rounds, less what closes the gap of 0.003.
    assert leading == pytest.approx(2.0 * 0.8 * -0.01 / 2)
    assert behind == pytest.approx(2.0 * (0.8 * -0.013 / 2 + 0.003 / 2))


@given(_networks, st.sampled_from(["", "x", "y"]))
def test_only_the_fastest_of_a_contest_keeps_its_gradient(
    network: list[tuple[TaskInfo, list[float]]], contest: str
) -> None:
    plain = _gradients(network)
    competing = [(evolve(task, contest=contest), history) for task, history in network]
    found = _gradients(competing)
    fastest = min(history[-1] for _, history in network)
    for (_, history), alone, value in zip(network, plain, found, strict=True):
        if not contest or history[-1] == fastest:
            assert value == alone
        else:
            assert alone <= value <= 0


def test_a_backend_that_is_far_behind_gets_no_rounds() -> None:
    tasks = [TaskInfo(1.0, 1e6, "a", "gemm"), TaskInfo(1.0, 1e6, "b", "gemm")]
    assert task_gradients(tasks, [[0.01] * 4, [0.06] * 4])[1] == 0.0
