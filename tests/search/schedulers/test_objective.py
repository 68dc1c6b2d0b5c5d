"""A user's function of the latencies in place of their weighted sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from autotune.errors import InvalidValueError, PluginError
from autotune.search.schedulers import (
    GradientTaskScheduler,
    RoundRobin,
    SchedulerContext,
    TaskInfo,
)
from autotune.search.schedulers.task_scheduler import objective_name, objective_slopes

TASKS = [
    TaskInfo(3.0, 1e6, program="encoder"),
    TaskInfo(1.0, 1e6, contest="head", program="head"),
    TaskInfo(1.0, 1e6, contest="head", program="head"),
]


def squares(latencies: Mapping[str, float]) -> float:
    return sum(latency**2 for latency in latencies.values())


def slowest(latencies: Mapping[str, float]) -> float:
    return max(latencies.values())


def test_without_a_function_the_slopes_are_the_weights() -> None:
    assert objective_slopes(TASKS, [1.0, 2.0, 3.0], None) == [3.0, 1.0, 1.0]


def test_slopes_are_those_of_the_function_and_only_the_fastest_backend_counts() -> None:
    found = objective_slopes(TASKS, [5.0, 2.0, 3.0], squares)
    assert found == pytest.approx([10.0, 4.0, 0.0], rel=1e-3)
    assert objective_slopes(TASKS, [5.0, 2.0, 3.0], slowest) == pytest.approx([1.0, 0.0, 0.0])
    assert objective_slopes(TASKS, [0.0, 2.0, 3.0], squares)[0] == 0.0


def tasks_served(objective: Callable[[Mapping[str, float]], float] | None) -> list[int]:
    """Return the task that gets each of six rounds after the first; both gain alike."""
    tasks = [TaskInfo(1.0, 0.0, program="a"), TaskInfo(50.0, 0.0, program="b")]
    scheduler = GradientTaskScheduler(SchedulerContext(tasks=tasks, objective=objective))
    for task in (0, 1):
        scheduler.tell(task, 1.0, 8)
    served = []
    for _ in range(6):
        task = scheduler.next_task()
        assert task is not None
        served.append(task)
        scheduler.tell(task, 1.0, 8)
    return served


def test_the_scheduler_follows_the_function() -> None:
    assert tasks_served(None) == [1] * 6
    assert tasks_served(lambda latencies: latencies["a"]) == [0] * 6


@pytest.mark.parametrize("value", [math.nan, math.inf, None, True, "fast"])
def test_a_function_that_gives_no_number_is_named(value: Any) -> None:
    def nonsense(latencies: Mapping[str, float]) -> Any:
        return value

    with pytest.raises(InvalidValueError, match=r"nonsense returned .*'encoder': 1.0"):
        objective_slopes(TASKS, [1.0, 2.0, 3.0], nonsense)


def test_a_function_that_raises_is_named() -> None:
    with pytest.raises(PluginError, match=r"objective .*<lambda> failed .*KeyError: 'decoder'"):
        objective_slopes(TASKS, [1.0, 2.0, 3.0], lambda latencies: latencies["decoder"])


def test_a_scheduler_that_asks_no_objective_refuses_one() -> None:
    with pytest.raises(
        InvalidValueError, match="'round-robin' serves .*: leave out the objective"
    ):
        RoundRobin(SchedulerContext(tasks=TASKS, objective=squares))


def test_a_function_is_known_by_its_module_and_name() -> None:
    assert objective_name(squares) == f"{__name__}:squares"
    assert objective_name(len) == "builtins:len"


def test_a_function_that_fails_is_refused_before_anything_is_measured() -> None:
    tasks = [TaskInfo(1.0, 0.0, program="a"), TaskInfo(50.0, 0.0, program="b")]
    with pytest.raises(PluginError, match="objective .*test_objective:.*KeyError"):
        GradientTaskScheduler(
            SchedulerContext(tasks=tasks, objective=lambda latencies: latencies["c"])
        )
