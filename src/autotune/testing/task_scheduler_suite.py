"""Conformance suite of task schedulers; see :mod:`autotune.testing.strategy_suite` for the use."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from autotune.errors import InvalidValueError
from autotune.search.schedulers import SchedulerContext, TaskInfo, TaskScheduler

TaskSchedulerFactory = Callable[[SchedulerContext], TaskScheduler]

TASKS = (
    TaskInfo(1.0, 1e9, "matmul"),
    TaskInfo(3.0, 2e9, "matmul"),
    TaskInfo(0.5, 4e8),
    TaskInfo(2.0, 1e9, "conv"),
)


class TaskSchedulerSuite:
    """The contract of task schedulers."""

    @pytest.fixture
    def task_scheduler_factory(self) -> TaskSchedulerFactory:
        """Makes the scheduler from a context, as its class does."""
        raise NotImplementedError("give the fixture 'task_scheduler_factory'")

    @pytest.fixture(autouse=True)
    def _given(self, task_scheduler_factory: TaskSchedulerFactory) -> None:
        self.make_ = task_scheduler_factory

    def test_every_task_is_served_first_once(self) -> None:
        scheduler = self.make_(SchedulerContext(tasks=TASKS))
        assert sorted(_play(scheduler, len(TASKS))) == list(range(len(TASKS)))

    def test_no_tasks_no_turn(self) -> None:
        assert self.make_(SchedulerContext(tasks=())).next_task() is None

    def test_exhausted_tasks_are_not_served(self) -> None:
        scheduler = self.make_(SchedulerContext(tasks=TASKS))
        open_tasks = set(range(len(TASKS)))
        for used_up in (2, 0, 3, 1):
            assert set(_play(scheduler, 6)) <= open_tasks
            scheduler.tell(used_up, None, 0)
            open_tasks.remove(used_up)
        assert scheduler.next_task() is None

    def test_asking_twice_gives_the_same_task(self) -> None:
        scheduler = self.make_(SchedulerContext(tasks=TASKS))
        for _ in range(8):
            assert scheduler.next_task() == scheduler.next_task()
            _play(scheduler, 1)

    def test_chooses_a_task_while_a_round_is_outstanding(self) -> None:
        scheduler = self.make_(SchedulerContext(tasks=TASKS))
        served: set[int] = set()
        current = scheduler.next_task()
        for step in range(12):
            assert current is not None
            before = scheduler.state()
            upcoming = scheduler.next_task([current])
            assert upcoming in range(len(TASKS)) and scheduler.state() == before
            # Nothing is known of a task before its first round: the others come first.
            assert step >= len(TASKS) - 1 or upcoming not in served | {current}
            scheduler.tell(current, 1e-3, 16)
            served.add(current)
            current = upcoming

    def test_with_one_task_a_round_may_be_outstanding(self) -> None:
        scheduler = self.make_(SchedulerContext(tasks=TASKS[:1]))
        assert scheduler.next_task() == scheduler.next_task([0]) == 0
        scheduler.tell(0, None, 0)
        assert scheduler.next_task() is None

    def test_tasks_without_a_latency_do_no_harm(self) -> None:
        scheduler = self.make_(SchedulerContext(tasks=TASKS))
        for _ in range(12):
            task = scheduler.next_task()
            assert task is not None
            scheduler.tell(task, None if task < 2 else 1e-3, 16)

    def test_a_task_that_always_fails_does_not_get_every_round(self) -> None:
        scheduler = self.make_(SchedulerContext(tasks=TASKS))
        served = []
        for _ in range(60):
            task = scheduler.next_task()
            assert task is not None
            served.append(task)
            scheduler.tell(task, None if task == 0 else 1e-3, 16)
        assert served.count(0) < 45

    def test_one_seed_gives_the_same_order(self) -> None:
        one, other = (self.make_(SchedulerContext(tasks=TASKS, seed=7)) for _ in range(2))
        assert _play(one, 20) == _play(other, 20)

    @pytest.mark.parametrize("rounds", [0, 1, 3, 4, 9])
    @pytest.mark.parametrize("exhausted", [False, True])
    def test_state_continues_exactly(self, rounds: int, exhausted: bool) -> None:
        scheduler = self.make_(SchedulerContext(tasks=TASKS))
        _play(scheduler, rounds)
        if exhausted:
            scheduler.tell(1, None, 0)
        other = self.make_(SchedulerContext(tasks=TASKS))
        _play(other, 2)
        state = scheduler.state()
        kept = json.dumps(state, allow_nan=False)
        other.load_state(json.loads(kept))
        assert _play(other, 8, rounds) == _play(scheduler, 8, rounds)
        assert json.dumps(state) == kept, "a state must not change after it was taken"

    def test_state_of_other_tasks_is_refused(self) -> None:
        state = self.make_(SchedulerContext(tasks=TASKS[:2])).state()
        with pytest.raises(InvalidValueError):
            self.make_(SchedulerContext(tasks=TASKS)).load_state(state)

    @pytest.mark.parametrize("task", [-1, len(TASKS)])
    def test_unknown_tasks_are_refused(self, task: int) -> None:
        with pytest.raises(InvalidValueError):
            self.make_(SchedulerContext(tasks=TASKS)).tell(task, 1.0, 16)

    def test_an_unknown_option_is_refused_by_name(self) -> None:
        options: dict[str, Any] = {"no_such_option": 1}
        with pytest.raises(InvalidValueError, match="no_such_option"):
            self.make_(SchedulerContext(tasks=TASKS, options=options))


def _play(scheduler: TaskScheduler, rounds: int, offset: int = 0) -> list[int]:
    """Tasks served over some rounds, each a little faster than the last."""
    served = []
    for step in range(offset, offset + rounds):
        task = scheduler.next_task()
        if task is None:
            break
        served.append(task)
        scheduler.tell(task, (1 + task) * 1e-3 * 0.9**step, 16)
    return served
