from __future__ import annotations

import json

import numpy as np
import pytest
from toy_parts import valid_outcome

from autotune.models import ModelContext
from autotune.models.cost import RandomCostModel
from autotune.process.stopwatch import Stopwatch
from autotune.search.schedulers import (
    DiffusionScheduler,
    GradientTaskScheduler,
    SchedulerContext,
    TaskInfo,
)
from autotune.search.search import Round, Search
from autotune.search.strategies import EvolutionaryStrategy, StrategyContext
from autotune.spaces.transfer import moved_candidate
from autotune.testing.task_scheduler_suite import TaskSchedulerFactory, TaskSchedulerSuite
from autotune.testing.toy_space import ToySpace

TASKS = (
    TaskInfo(1.0, 1e9, structure="conv"),
    TaskInfo(1.0, 4e9, structure="gemm"),
    TaskInfo(6.0, 1e9, structure="conv"),
    TaskInfo(1.0, 2e9, structure="conv"),
    TaskInfo(1.0, 1e9),
)


class TestDiffusionScheduler(TaskSchedulerSuite):
    @pytest.fixture
    def task_scheduler_factory(self) -> TaskSchedulerFactory:
        return DiffusionScheduler


def test_a_representative_has_a_round_for_each_of_its_cluster_before_the_others() -> None:
    scheduler = DiffusionScheduler(SchedulerContext(tasks=TASKS))
    assert [scheduler.source(task) for task in range(5)] == [2, None, None, 2, None]
    assert [scheduler.round_size(task, 9) for task in range(5)] == [4, 9, 9, 4, 9]
    assert scheduler.round_size(0, 1) == 1
    served = []
    for step in range(7):
        task = scheduler.next_task()
        assert task is not None
        served.append(task)
        scheduler.tell(task, 1.0 / (step + 1), 8)
    # Weight times flop makes task 2 the representative of three; then the others, in order.
    assert served == [2, 2, 2, 0, 1, 3, 4]


def test_rounds_in_flight_count() -> None:
    scheduler = DiffusionScheduler(SchedulerContext(tasks=TASKS, options={"rounds": 2}))
    scheduler.tell(2, 1.0, 8)
    assert scheduler.next_task() == 2
    assert scheduler.next_task([2]) == 0
    scheduler.tell(2, 1.0, 0)
    assert scheduler.next_task() == 0, "an exhausted representative keeps nobody waiting"


def test_without_clusters_it_is_the_gradient_scheduler() -> None:
    tasks = [TaskInfo(weight, 1e9) for weight in (1.0, 2.0, 3.0)]
    pair = [
        kind(SchedulerContext(tasks=tasks)) for kind in (DiffusionScheduler, GradientTaskScheduler)
    ]
    for step in range(20):
        (one, other) = [it.next_task() for it in pair]
        assert one == other and one is not None
        for scheduler in pair:
            scheduler.tell(one, 1.0 + 1.0 / (step + 1), 8)


def _search(spaces: list[ToySpace]) -> Search:
    model = RandomCostModel(ModelContext(seed=1))
    strategies = [
        EvolutionaryStrategy(StrategyContext(space, np.random.default_rng(3), model))
        for space in spaces
    ]
    tasks = [TaskInfo(1.0, float(it.workload.flop), structure="gemm") for it in spaces]
    scheduler = DiffusionScheduler(SchedulerContext(tasks=tasks))
    models = [model] * len(spaces)
    return Search(spaces, strategies, models, scheduler, 8, Stopwatch(lambda: 0.0))


def _played(search: Search) -> Round:
    found = search.propose((), lambda task: False, lambda task: 1.0)
    assert found is not None
    return found


def test_followers_begin_with_the_best_of_their_representative_also_after_a_stop() -> None:
    spaces = [ToySpace(8), ToySpace(16)]
    search, told = _search(spaces), []
    for _ in range(2):
        done = _played(search)
        assert done.task == 1 and len(done.asked) == 8
        outcomes = [valid_outcome(candidate) for candidate in done.asked]
        told += list(zip(outcomes, done.asked, strict=True))
        search.learn(done, outcomes, 1.0, False)
    told.sort(key=lambda pair: pair[0].latency or 0.0)
    expected: dict[str, None] = {}
    for _, candidate in told[:4]:
        moved = moved_candidate(candidate, spaces[0])
        assert moved is not None
        expected[moved.digest] = None
    saved = json.loads(json.dumps(search.state([0, 16], None)))
    resumed = _search(spaces)
    resumed.load_state(saved)
    for each in (search, resumed):
        first = _played(each)
        seeds = [it.digest for it in first.asked][: len(expected)]
        assert first.task == 0 and seeds == list(expected)
        each.learn(first, [valid_outcome(it) for it in first.asked], 1.0, False)
    rounds = [[it.digest for it in _played(it).asked] for it in (search, resumed)]
    assert rounds[0] == rounds[1]
