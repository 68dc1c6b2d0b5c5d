"""Tests of which programs are the same, whatever the order in which that is found out."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import cast

from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from simulated_workers import toy_candidate

from autotune.measure.jobs import Dispatcher, OnReply, Place, Reply
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.trial import Building, Trial
from autotune.process.channel import Message
from autotune.store.records import Outcome


@define(eq=False)
class Compilers:
    """Stands for a dispatcher of workers that build at once.

    Attributes:
        names: Digests of the lowered program and of the machine code, by trial.
        order: Which workers answer, in turns.
        built: Trials that were compiled, in order.
    """

    names: Mapping[int, tuple[str, str]]
    order: list[int] = field(factory=lambda: [0])
    built: list[int] = field(factory=list)
    generations: dict[int, int] = field(factory=dict)
    known: dict[int, set[str]] = field(factory=dict)
    jobs: deque[tuple[Message, OnReply]] = field(factory=deque)
    _answered: int = 0

    @property
    def pool(self) -> Compilers:
        return self

    def holds(self, place: Place) -> bool:
        return self.generations.get(place[0], 0) == place[1]

    def kill(self, worker: int) -> None:
        self.generations[worker] = self.generations.get(worker, 0) + 1
        self.known.pop(worker, None)

    def post(self, message: Message, deadlines: Mapping[str, float], on_reply: OnReply) -> None:
        assert set(deadlines) == {"build", "observe"}
        self.jobs.append((message, on_reply))

    def pump(self, seconds: float | None = None) -> None:
        if self.jobs:
            message, on_reply = self.jobs.popleft()
            on_reply(self._answer(message))

    def _answer(self, message: Message) -> Reply:
        worker = self.order[self._answered % len(self.order)]
        self._answered += 1
        place = worker, self.generations.get(worker, 0)
        lowered, binary = self.names[message["number"]]
        known = self.known.setdefault(worker, set())
        if lowered in known and not message["always"]:
            return Reply("done", place, body={"duplicate": lowered})
        known.add(lowered)
        self.built.append(message["number"])
        body = {"span": [0.0, 1.0], "timings": {}, "readings": {}}
        return Reply("done", place, body={**body, "lowered": lowered, "binary": binary})


def build(compilers: Compilers, count: int) -> tuple[Building, list[Trial]]:
    building = Building(cast(Dispatcher, compilers), MeasureProtocol())
    trials = [Trial(number, toy_candidate(number + 1)) for number in range(count)]
    building.begin(trials)
    building.await_all(trials)
    return building, trials


def measure(building: Building, trials: list[Trial], status: str = "ok") -> list[int]:
    """Give an outcome to those without an original; returns their numbers."""
    measured = []
    while waiting := [it for it in trials if it.outcome is None and it.duplicate_of is None]:
        building.await_all(waiting)
        for trial in waiting:
            if trial.duplicate_of is None:
                measured.append(trial.number)
                trial.take(Outcome(status, 1.0 if status == "ok" else None))
        for trial in trials:
            if (
                trial.duplicate_of is not None
                and trial.duplicate_of.is_inconclusive
                and trial.outcome is None
            ):
                building.reassign_duplicate(trial)
    for trial in trials:
        trial.take_from_original()
    return measured


DIGESTS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), min_size=1)


@given(DIGESTS, st.lists(st.integers(0, 1), min_size=1, max_size=4))
def test_everybody_gets_an_outcome_and_equals_are_measured_once(
    names: list[tuple[str, str]], order: list[int]
) -> None:
    # Machine code follows from the lowered program.
    code = dict(names)
    names = [(lowered, code[lowered]) for lowered, _ in names]
    compilers = Compilers(dict(enumerate(names)), order)
    building, trials = build(compilers, len(names))
    measured = measure(building, trials)
    assert all(trial.outcome is not None and trial.outcome.ok for trial in trials)
    codes = [names[number][1] for number in measured]
    assert sorted(codes) == sorted(set(code.values()))
    for trial, (lowered, binary) in zip(trials, names, strict=True):
        assert trial.outcome is not None
        assert (trial.outcome.lowered, trial.outcome.binary) == (lowered, binary)
        origin = trial.outcome.duplicate_of
        assert (origin == "") == (trial.number in measured)
        assert not origin or origin in [trials[number].digest for number in measured]


def test_a_program_that_a_worker_knows_is_not_compiled() -> None:
    compilers = Compilers(dict.fromkeys(range(3), ("a", "x")))
    _, trials = build(compilers, 3)
    assert compilers.built == [0]
    assert [trial.duplicate_of for trial in trials] == [None, trials[0], trials[0]]


def test_without_digests_nothing_is_the_same() -> None:
    compilers = Compilers(dict.fromkeys(range(3), ("", "")), [0, 1, 2])
    _, trials = build(compilers, 3)
    assert [trial.duplicate_of for trial in trials] == [None] * 3


def test_a_program_whose_worker_was_lost_is_not_its_own_duplicate() -> None:
    # The other worker has built the duplicate, and says that it knows the program.
    compilers = Compilers(dict.fromkeys(range(2), ("a", "x")), [0, 1, 1])
    building, trials = build(compilers, 2)
    assert trials[1].duplicate_of is trials[0]
    compilers.kill(0)
    building.await_all(trials)
    assert trials[0].duplicate_of is None
    assert measure(building, trials) == [0]
    assert all(trial.outcome is not None and trial.outcome.ok for trial in trials)


def test_after_a_crash_another_one_is_measured_for_all() -> None:
    compilers = Compilers(dict.fromkeys(range(4), ("a", "x")), [0, 1])
    building, trials = build(compilers, 4)
    trials[0].take(Outcome("crash"))
    for trial in trials[1:]:
        building.reassign_duplicate(trial)
    assert [trial.duplicate_of for trial in trials] == [None, None, trials[1], trials[1]]
    assert measure(building, trials) == [1]
    origins = [trial.outcome.duplicate_of for trial in trials if trial.outcome]
    assert origins == ["", "", trials[1].digest, trials[1].digest]


def test_if_all_crash_all_are_tried() -> None:
    compilers = Compilers(dict.fromkeys(range(3), ("a", "x")))
    building, trials = build(compilers, 3)
    assert measure(building, trials, "crash") == [0, 1, 2]


def test_an_abandoned_trial_has_no_duplicates() -> None:
    compilers = Compilers(dict.fromkeys(range(3), ("a", "x")))
    building, first = build(compilers, 1)
    building.abandon()
    later = [Trial(number, toy_candidate(number + 1)) for number in (1, 2)]
    building.begin(later)
    building.await_all(later)
    assert measure(building, later) == [1]
    assert first[0].outcome is None


def test_no_candidate_duplicates_the_untuned_program() -> None:
    compilers = Compilers(dict.fromkeys(range(2), ("a", "x")))
    building = Building(cast(Dispatcher, compilers), MeasureProtocol())
    untuned, trial = Trial(0, None, always=True), Trial(1, toy_candidate(1))
    building.await_all([untuned])
    untuned.take(Outcome("ok", 2.0))
    building.await_all([trial])
    assert compilers.built == [0, 1]
    assert trial.duplicate_of is None


def test_the_best_candidate_built_again_has_duplicates() -> None:
    compilers = Compilers(dict.fromkeys(range(2), ("a", "x")))
    building = Building(cast(Dispatcher, compilers), MeasureProtocol())
    leader, trial = Trial(0, toy_candidate(1), always=True), Trial(1, toy_candidate(2))
    building.await_all([leader])
    building.await_all([trial])
    assert trial.duplicate_of is leader


def test_spans_of_builds_are_given_once() -> None:
    building, _ = build(Compilers({0: ("a", "x"), 1: ("b", "y")}), 2)
    assert building.take_spans() == [(0.0, 1.0)] * 2
    assert building.take_spans() == []
