"""Proposing rounds while others are outstanding, and going on from a saved state."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import define, field
from process_facts import becomes_true
from toy_parts import tune_toy, valid_outcome

from autotune.errors import DatabaseError
from autotune.models import ModelContext
from autotune.models.cost import RandomCostModel
from autotune.process.stopwatch import Stopwatch
from autotune.search.guarded_calls import asked_of
from autotune.search.schedulers import SchedulerContext, TaskInfo
from autotune.search.schedulers.round_robin import RoundRobin
from autotune.search.search import Round, Search
from autotune.search.strategies import (
    EvolutionaryStrategy,
    GridStrategy,
    Strategy,
    StrategyContext,
)
from autotune.sketches import Candidate
from autotune.spaces import SearchSpace
from autotune.targets import preset
from autotune.testing.reference_backend import SCRIPT_VARIABLE
from autotune.testing.toy_space import ToySpace
from autotune.tuning.options import usable_cpus

TARGET = preset("haswell")
ROUND = 4
LOGGED = ("build", "time")


@define
class Bench:
    """A search over toy spaces of these sizes; every reading of its clock takes a second."""

    sizes: tuple[int, ...] = (8,)
    strategy: type[Strategy] = EvolutionaryStrategy
    given_up: set[int] = field(factory=set)
    first_round: int | None = None
    now: float = 0.0
    spaces: list[SearchSpace] = field(init=False)
    watch: Stopwatch = field(init=False)
    search: Search = field(init=False)

    def __attrs_post_init__(self) -> None:
        model = RandomCostModel(ModelContext(target=TARGET, seed=1, threads=1))
        self.spaces = [ToySpace(size) for size in self.sizes]
        contexts = [
            StrategyContext(space=space, rng=np.random.default_rng([1, index]), cost_model=model)
            for index, space in enumerate(self.spaces)
        ]
        strategies = [self.strategy(context) for context in contexts]  # type: ignore[call-arg]
        self.watch = Stopwatch(self._tick)
        scheduler = RoundRobin(
            SchedulerContext(tasks=[TaskInfo(1.0, 1e6)] * len(self.sizes), seed=1, options={})
        )
        self.search = Search(
            self.spaces,
            strategies,
            [model] * len(self.spaces),
            scheduler,
            ROUND,
            self.watch,
            self.first_round,
        )

    def _tick(self) -> float:
        self.now += 1
        return self.now

    def propose(self, *outstanding: Round) -> Round | None:
        tasks = [round_.task for round_ in outstanding]
        return self.search.propose(tasks, self.given_up.__contains__, lambda _task: 1.0)

    def learn(self, done: Round) -> None:
        outcomes = [valid_outcome(candidate) for candidate in done.asked]
        self.search.learn(done, outcomes, 1.0, done.task in self.given_up)


def digests(*rounds: Round | None) -> list[str]:
    return [it.digest for round_ in rounds if round_ is not None for it in round_.asked]


def described(round_: Round | None) -> tuple[int, list[str]] | None:
    return None if round_ is None else (round_.task, digests(round_))


@pytest.mark.parametrize("strategy", [EvolutionaryStrategy, GridStrategy])
def test_a_round_is_proposed_while_another_is_outstanding(strategy: type[Strategy]) -> None:
    bench = Bench(strategy=strategy)
    first = bench.propose()
    assert first is not None
    second = bench.propose(first)
    assert second is not None
    assert len(set(digests(first, second))) == 2 * ROUND
    assert bench.search.rounds == 0
    bench.learn(first)
    bench.learn(second)
    assert bench.search.rounds == 2


def test_tasks_take_turns_also_ahead() -> None:
    bench = Bench((8, 4, 16))
    rounds: list[Round] = []
    current = bench.propose()
    for _ in range(6):
        assert current is not None
        rounds.append(current)
        upcoming = bench.propose(current)
        bench.learn(current)
        current = upcoming
    assert [round_.task for round_ in rounds] == [0, 1, 2, 0, 1, 2]


def test_every_candidate_is_proposed_once_until_there_are_none() -> None:
    bench = Bench((4, 2), GridStrategy)
    total = sum(space.count() or 0 for space in bench.spaces)
    seen: list[str] = []
    current = bench.propose()
    while current is not None:
        seen += digests(current)
        upcoming = bench.propose(current)
        bench.learn(current)
        current = upcoming or bench.propose()
    assert len(seen) == len(set(seen)) == total


def test_a_task_that_was_given_up_gets_no_rounds() -> None:
    bench = Bench((8, 4), given_up={0})
    first = bench.propose()
    assert first is not None
    assert first.task == 1
    second = bench.propose(first)
    assert second is not None
    assert second.task == 1
    bench.learn(first)
    bench.given_up.add(1)
    bench.learn(second)
    assert bench.propose() is None


def test_nothing_is_proposed_before_the_only_task_is_known_to_be_hopeless() -> None:
    bench = Bench()
    first = bench.propose()
    assert first is not None
    bench.given_up.add(0)
    assert bench.propose(first) is None
    bench.learn(first)
    assert bench.propose() is None


def test_first_rounds_are_small_and_hold_the_same_candidates() -> None:
    small, whole = Bench((8, 16), first_round=1), Bench((8, 16))
    found: list[tuple[int, list[str]]] = []
    for bench, rounds in ((small, 8), (whole, 4)):
        for _ in range(rounds):
            current = bench.propose()
            assert current is not None
            bench.learn(current)
            found.append((current.task, digests(current)))
    assert [(task, len(asked)) for task, asked in found[:8]] == [
        (task, size) for size in (1, 1, 2, 4) for task in (0, 1)
    ]
    for task in (0, 1):
        mine, theirs = (
            [digest for number, asked in rounds if number == task for digest in asked]
            for rounds in (found[:8], found[8:])
        )
        assert mine == theirs


@pytest.mark.parametrize("sizes", [(8,), (8, 4)])
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("first_round", [None, 1])
def test_a_restored_search_goes_on_as_if_it_had_not_been_stopped(
    sizes: tuple[int, ...], ahead: bool, first_round: int | None
) -> None:
    one, saved, rest = Bench(sizes, first_round=first_round), [], []
    current = one.propose()
    for _ in range(5):
        assert current is not None
        upcoming = one.propose(current) if ahead else None
        one.learn(current)
        saved.append(json.dumps(one.search.state([ROUND] * len(sizes), upcoming)))
        current = upcoming or one.propose()
        rest.append(described(current))
    for stop, text in enumerate(saved):
        other = Bench(sizes, first_round=first_round)
        current = other.search.load_state(json.loads(text)) or other.propose()
        assert other.search.rounds == stop + 1
        assert described(current) == rest[stop]
        for expected in rest[stop + 1 :]:
            assert current is not None
            upcoming = other.propose(current) if ahead else None
            other.learn(current)
            current = upcoming or other.propose()
            assert described(current) == expected


@pytest.mark.parametrize("asked", [[[99, [1, 1]]], [[0, [12345]]], [[0, 7]], [[0]]])
def test_a_round_that_does_not_fit_the_space_is_an_error(asked: list[Any]) -> None:
    bench = Bench()
    state = {**bench.search.state([0], None), "outstanding": [0, asked]}
    with pytest.raises(DatabaseError, match="start over with fresh=True"):
        bench.search.load_state(state)


def test_time_is_counted_where_it_is_spent() -> None:
    bench = Bench()
    first = bench.propose()
    assert first is not None
    before = bench.watch.seconds
    assert before["search"] == 1
    assert before["model"] == 0
    bench.learn(first)
    after = bench.watch.seconds
    assert (after["search"], after["model"]) == (3, 1)


@pytest.mark.parametrize("lookahead", [0, 1])
def test_candidates_are_built_while_the_next_round_is_proposed(
    lookahead: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    script = json.dumps({"log": str(log), "build_seconds": 0.05})
    monkeypatch.setenv(SCRIPT_VARIABLE, script)
    asked: list[tuple[float, float]] = []

    def slowly(strategy: Strategy, count: int) -> list[Candidate]:
        begin = time.monotonic()
        if lookahead and len(asked) == 1:
            # The first round was handed to a worker that has yet to start.
            assert becomes_true(lambda: any(at > begin for at in begun_of(log)["build"]))
        time.sleep(0.2)
        found = asked_of(strategy, count)
        asked.append((begin, time.monotonic()))
        return found

    monkeypatch.setattr("autotune.search.search.asked_of", slowly)
    result = tune_toy(
        tmp_path / "records.db",
        trials=16,
        round_size=ROUND,
        threads=usable_cpus(),
        lookahead=lookahead,
    )
    begun = begun_of(log)
    beside = [at for at in begun["build"] for begin, end in asked if begin < at < end]
    assert bool(beside) == bool(lookahead)
    # With every CPU in use nothing is timed meanwhile.
    assert not [at for at in begun["time"] for begin, end in asked if begin < at < end]
    assert begun["time"]
    # Building beside the search counts as building.
    busy: dict[str, float] = {}
    for name, event, process, at, _ in events_of(log):
        if name == "build":
            # A process builds one candidate at a time.
            sign = 1 if event == "end" else -1
            busy[process] = busy.get(process, 0.0) + sign * seconds_within(asked, float(at))
    assert result.seconds["build"] >= max(busy.values())


def events_of(log: Path) -> list[list[str]]:
    """Name, event, process, second and candidate of every line; none where nothing has begun."""
    text = log.read_text() if log.exists() else ""
    return [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]


def begun_of(log: Path) -> dict[str, list[float]]:
    """Return when each build and each timing began."""
    events = events_of(log)
    return {name: [float(it[3]) for it in events if it[:2] == [name, "begin"]] for name in LOGGED}


def seconds_within(intervals: list[tuple[float, float]], until: float) -> float:
    """Seconds before ``until`` that are in one of the intervals, which do not overlap."""
    return sum(max(0.0, min(end, until) - begin) for begin, end in intervals)


def test_seeds_are_first_and_what_follows_does_not_depend_on_them() -> None:
    cold, bench, other = Bench(), Bench(), Bench()
    seeds = list(bench.spaces[0].sample(3, np.random.default_rng(7)))
    bench.search.begin_with(0, seeds, ())
    first = bench.propose()
    assert first is not None and len(first.asked) == ROUND
    assert list(first.asked[:3]) == seeds
    expected = [it for it in digests(cold.propose()) if it not in digests(first)[:3]]
    restored = other.search.load_state(json.loads(json.dumps(bench.search.state([0], first))))
    assert described(restored) == described(first)
    for each in (bench, other):
        second, third = each.propose(first), each.propose(first)
        assert (digests(first)[3:] + digests(second))[: len(expected)] == expected
        each.learn(first)
        found = digests(first, second, third)
        assert len(set(found)) == len(found), "no seed is proposed twice"
    assert described(bench.propose()) == described(other.propose())
