from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.search.schedulers import (
    GradientTaskScheduler,
    RoundRobin,
    SchedulerContext,
    TaskInfo,
    TaskScheduler,
)
from autotune.testing.task_scheduler_suite import TaskSchedulerFactory, TaskSchedulerSuite

OPTIONS: tuple[Mapping[str, Any], ...] = (
    {},
    {"alpha": 1.0},
    {"alpha": 0.0, "beta": 1.0},
    {"backward_window": 1},
)


class TestGradient(TaskSchedulerSuite):
    @pytest.fixture(params=OPTIONS, ids=str)
    def task_scheduler_factory(self, request: pytest.FixtureRequest) -> TaskSchedulerFactory:
        def create(context: SchedulerContext) -> GradientTaskScheduler:
            options = {**request.param, **context.options}
            return GradientTaskScheduler(evolve(context, options=options))

        return create


@given(
    st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(0.5, 0.99)), min_size=1, max_size=5),
    st.sampled_from(OPTIONS),
)
def test_zero_weight_is_served_once_while_another_improves(
    others: list[tuple[float, float]], options: Mapping[str, Any]
) -> None:
    tasks = [TaskInfo(0.0, 1e9, "g"), *(TaskInfo(weight, 1e9, "g") for weight, _ in others)]
    scheduler = GradientTaskScheduler(SchedulerContext(tasks=tasks, options=options))
    latencies = [1.0] * len(tasks)
    served = []
    for _ in range(30):
        task = scheduler.next_task()
        assert task is not None
        served.append(task)
        latencies[task] *= 0.9 if task == 0 else others[task - 1][1]
        scheduler.tell(task, latencies[task], 16)
    assert served.count(0) == 1
    for task in range(1, len(tasks)):
        scheduler.tell(task, None, 0)
    assert scheduler.next_task() == 0


def _network_latency(scheduler: TaskScheduler, tasks: list[TaskInfo], rounds: int) -> float:
    """Weighted latency after some rounds of tasks that approach different floors."""
    counts: Counter[int] = Counter()
    floors = [0.5, 0.05, 0.2, 0.01]
    latencies = [0.0] * len(tasks)
    for _ in range(rounds):
        task = scheduler.next_task()
        assert task is not None
        counts[task] += 1
        latencies[task] = floors[task] * (1 + 4 * 0.8 ** counts[task])
        scheduler.tell(task, latencies[task], 16)
    return sum(task.weight * latency for task, latency in zip(tasks, latencies, strict=True))


def test_it_serves_a_network_better_than_taking_turns() -> None:
    tasks = [TaskInfo(weight, 1e9) for weight in (4.0, 1.0, 1.0, 2.0)]
    gradient = _network_latency(GradientTaskScheduler(SchedulerContext(tasks=tasks)), tasks, 24)
    turns = _network_latency(RoundRobin(SchedulerContext(tasks=tasks)), tasks, 24)
    assert gradient < 0.85 * turns


def test_a_latency_never_grows() -> None:
    scheduler = GradientTaskScheduler(SchedulerContext(tasks=[TaskInfo(1.0, 1e9)]))
    for latency in (None, 0.5, 0.7, None, 0.4):
        scheduler.tell(0, latency, 16)
    assert scheduler.state()["histories"] == [[None, 0.5, 0.5, 0.5, 0.4]]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"alpa": 0.2}, "Did you mean 'alpha'"),
        ({"alpha": 1.5}, "between 0.0 and 1.0"),
        ({"beta": 0.5}, "at least 1.0"),
        ({"backward_window": 0}, "at least 1"),
        ({"backward_window": 2.5}, "a whole number"),
    ],
)
def test_options_are_checked(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidValueError, match=text):
        GradientTaskScheduler(SchedulerContext(tasks=[TaskInfo(1.0, 1e9)], options=options))
