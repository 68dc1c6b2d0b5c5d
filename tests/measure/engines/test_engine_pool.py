"""Races over machines that misbehave: nothing is lost or counts twice, and each fault is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from attrs import evolve
from scripted_engine import Answer, ScriptedEngine, fingerprint, machine

from autotune.ir.workloads import Workload
from autotune.measure import (
    Collecting,
    LocalMeasurer,
    MeasureProtocol,
    SharedWorkers,
    WorkerStartFailed,
)
from autotune.measure.engines import NOWHERE, Job, Machine, Reply
from autotune.measure.timing_session import TimingSession
from autotune.measure.trial import Leader
from autotune.measure.workers import EngineWorkers, WorkerSetup
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.targets import Target
from autotune.testing.reference_backend import REFERENCE_BACKEND

Make = Callable[..., LocalMeasurer]


def latency(candidate: Any) -> float:
    """Seconds: the best candidate has ``tile`` 4."""
    return 2e-3 if candidate is None else 1e-4 * (1 + 0.3 * (candidate["config"]["tile"] - 4) ** 2)


@pytest.fixture
def make(workload: Workload, target: Target) -> Iterator[Make]:
    """Makes a measurer over a scripted engine, ready."""
    with ExitStack() as stack:

        def made(engine: ScriptedEngine, seconds: float = 60.0) -> LocalMeasurer:
            protocol = MeasureProtocol(deadlines={"start": seconds})
            shared = SharedWorkers()
            stack.callback(shared.close)
            setup = WorkerSetup(REFERENCE_BACKEND, target, 1, protocol)
            shared.get(setup, lambda setup, is_late: EngineWorkers(engine, setup, is_late=is_late))
            measurer = LocalMeasurer(
                REFERENCE_BACKEND, target, 1, workload, protocol=protocol, shared=shared
            )
            stack.enter_context(measurer)
            measurer.wait_ready()
            return measurer

        yield made


def check(measurer: LocalMeasurer, candidates: Sequence[Candidate]) -> None:
    """Every candidate gets one outcome, in order, and it is the right one."""
    told: list[int] = []
    outcomes = measurer.measure(candidates, lambda at, _outcome: told.append(at))
    assert told == list(range(len(candidates)))
    assert [outcome.status for outcome in outcomes] == ["ok"] * len(candidates)
    for candidate, outcome in zip(candidates, outcomes, strict=True):
        # One whose turns were cut off counts as slower than it is; its samples are what they are.
        assert set(outcome.samples) == {latency({"config": candidate.config})}


def test_candidates_race_on_a_machine_that_did_not_build_them(
    make: Make, candidates: list[Candidate]
) -> None:
    builder = Machine("builder", frozenset(("build",)), slots=4)
    timer = evolve(machine("timer"), roles=frozenset(("time",)))
    engine = ScriptedEngine([builder, timer], latency)
    measurer = make(engine)
    check(measurer, candidates)
    assert set(engine.timed_on) == {"timer"} and measurer.take_warnings() == []
    again = measurer.rematch([candidates[3], candidates[0], None])
    assert [outcome.status for outcome in again] == ["ok"] * 3


def every(number: int, what: Callable[..., Sequence[Answer]]) -> Any:
    """Mischief with every so many-th time job, three times: what always restarts gets nowhere."""
    seen, left = [0], [3]

    def mischief(engine: ScriptedEngine, job: Job, honest: Reply) -> Sequence[Answer]:
        seen[0] += job.place is not None
        if job.place is not None and honest.kind == "done" and seen[0] % number == 0 and left[0]:
            left[0] -= 1
            return what(engine, job, honest)
        return [(0.0, honest)]

    return mischief


def machine_of(job: Job) -> str:
    """The machine that a job is for."""
    return str((job.place or NOWHERE)[0])


def twice(_engine: ScriptedEngine, _job: Job, honest: Reply) -> Sequence[Answer]:
    return [(0.0, honest), (0.0, honest)]


def late(engine: ScriptedEngine, job: Job, honest: Reply) -> Sequence[Answer]:
    engine.restart(machine_of(job))
    gone = Reply("lost", job.place or NOWHERE, message="scripted: it ended")
    return [(0.0, gone), (0.005, honest)]


def restarted(engine: ScriptedEngine, job: Job, honest: Reply) -> Sequence[Answer]:
    engine.restart(machine_of(job))
    return [(0.0, Reply("again", job.place or NOWHERE)), (0.005, honest)]


@pytest.mark.parametrize("what", [twice, late])
def test_late_and_double_answers_are_dropped_and_told_once(
    make: Make, candidates: list[Candidate], what: Any
) -> None:
    engine = ScriptedEngine([machine("a")], latency, mischief=every(7, what))
    measurer = make(engine)
    check(measurer, candidates)
    engine.poll(0.05)
    warnings = measurer.take_warnings()
    assert any("late or twice" in warning for warning in warnings), warnings
    assert measurer.take_warnings() == []


def test_a_lost_lease_costs_a_repetition_and_no_candidate(
    make: Make, candidates: list[Candidate]
) -> None:
    def lose(engine: ScriptedEngine, job: Job, honest: Reply) -> Sequence[Answer]:
        engine.leases.drop(machine_of(job))
        return [(0.0, evolve(honest, kind="again", body={}))]

    engine = ScriptedEngine([machine("a")], latency, mischief=every(9, lose))
    check(make(engine), candidates)


def test_a_machine_that_leaves_is_replaced_by_its_equal_only(
    make: Make, candidates: list[Candidate]
) -> None:
    left: list[str] = []

    def leave(engine: ScriptedEngine, job: Job, honest: Reply) -> Sequence[Answer]:
        if left:
            return [(0.0, honest)]
        left.append(machine_of(job))
        engine.leave(machine_of(job))
        engine.present["c"] = machine("c")
        return [(0.0, Reply("lost", job.place or NOWHERE, message="scripted: it left"))]

    other = machine("0-other", fingerprint("another"))
    engine = ScriptedEngine([machine("a"), machine("b"), other], latency, mischief=every(5, leave))
    measurer = make(engine)
    check(measurer, candidates)
    assert left and "c" in engine.timed_on and "0-other" not in engine.timed_on
    (warning,) = measurer.take_warnings()
    assert "'0-other' times nothing" in warning and "device 'another', not 'toy'" in warning


def test_a_throttled_machine_is_not_an_equal_one(make: Make, candidates: list[Candidate]) -> None:
    slow = machine("slow", fingerprint(seconds=1.3e-3))
    engine = ScriptedEngine([machine("a"), machine("b"), slow], latency)
    measurer = make(engine)
    check(measurer, candidates)
    assert set(engine.timed_on) == {"a", "b"}
    assert "reference program takes 0.0013 s, not 0.001 s" in measurer.take_warnings()[0]


def test_without_a_machine_that_times_it_says_what_is_missing(make: Make) -> None:
    builder = Machine("builder", frozenset(("build",)), slots=4)
    with pytest.raises(WorkerStartFailed, match="no machine that times.*machines: builder"):
        make(ScriptedEngine([builder], latency), 0.1)


@pytest.mark.parametrize("returns", [True, False])
def test_a_run_waits_for_its_only_machine_for_a_while(
    make: Make, candidates: list[Candidate], returns: bool
) -> None:
    left: list[float] = []

    def leave(engine: ScriptedEngine, job: Job, honest: Reply) -> Sequence[Answer]:
        if left:
            return [(0.0, honest)]
        left.append(time.monotonic())
        engine.leave("a")
        return [(0.0, Reply("again", ("a", 0)))]

    builder = Machine("builder", frozenset(("build",)), slots=4)
    engine = Returning([builder, machine("a")], latency, mischief=every(5, leave))
    engine.left = left
    engine.returns = returns
    measurer = make(engine, 60.0 if returns else 0.5)
    if returns:
        check(measurer, candidates)
        return
    with pytest.raises(WorkerStartFailed, match="no machine of fingerprint .*machines: builder"):
        measurer.measure(candidates)


class Returning(ScriptedEngine):
    """An engine whose machine ``a`` is back after a while, if it is to be."""

    left: list[float]
    returns: bool

    def poll(self, seconds: float) -> None:
        super().poll(seconds)
        if self.returns and self.left and time.monotonic() - self.left[0] > 0.2:
            self.present.setdefault("a", machine("a", incarnation=1))


def test_equal_machines_share_the_work_and_races_are_on_one(
    make: Make, candidates: list[Candidate]
) -> None:
    machines = [machine(name) for name in "abcd"]
    engine = ScriptedEngine(machines, latency, seconds=0.001)
    measurer = make(engine)
    check(measurer, candidates[:1])
    check(measurer, candidates)
    counts = {name: engine.timed_on.count(name) for name in "abcd"}
    assert all(counts.values()), counts


def test_machines_of_one_group_take_no_turns_at_the_same_time(
    make: Make, candidates: list[Candidate]
) -> None:
    machines = [evolve(machine(name), lease_group="host") for name in "abc"]
    engine = ScriptedEngine(machines, latency)
    check(make(engine), candidates)
    assert set(engine.timed_on) == {"a"}


@pytest.mark.parametrize("machines", ["a", "abc"])
def test_a_program_that_a_later_batch_has_built_first_is_measured_where_it_comes_first(
    make: Make, candidates: list[Candidate], machines: str
) -> None:
    engine = ScriptedEngine([machine(name) for name in machines], latency)
    # One builder builds the first eight of each batch before the others.
    engine.present = {name: evolve(it, slots=1) for name, it in engine.present.items()}
    measurer = make(engine)
    early, late = candidates[:10], candidates[9:8:-1]
    measurer.submit(early)
    measurer.submit(late)
    assert len(measurer.collect(Collecting())) == len(early)
    (again,) = measurer.collect(Collecting())
    assert again.duplicate_of == late[0].digest


@pytest.mark.parametrize("what", [None, twice, restarted, late])
def test_outcomes_are_collected_as_they_become_known(
    make: Make, candidates: list[Candidate], what: Any
) -> None:
    """Of several batches at the same time, and each once, whatever machines do meanwhile."""
    mischief = None if what is None else every(7, what)
    engine = ScriptedEngine([machine(it) for it in "abcd"], latency, mischief=mischief)
    measurer = make(engine)
    assert measurer.lanes == 4
    known: dict[str, Outcome] = {}

    def on_known(candidate: Candidate, outcome: Outcome) -> None:
        assert candidate.digest not in known
        known[candidate.digest] = outcome

    for at in range(0, len(candidates), 4):
        measurer.submit(candidates[at : at + 4])
    while left := len(candidates) - len(known):
        assert measurer.collect_known(Collecting(), 3, on_known) >= min(3, left)
    for candidate in candidates:
        outcome = known[candidate.digest]
        assert outcome.status == "ok"
        assert set(outcome.samples) == {latency({"config": candidate.config})}
    assert set(engine.timed_on) == set("abcd")
    # What is fastest is so in the end, whichever machine has timed it.
    assert (
        min(known, key=lambda it: known[it].latency or 1.0)
        == min(candidates, key=lambda it: latency({"config": it.config})).digest
    )
    again = measurer.rematch([candidates[3], candidates[0], None])
    assert [outcome.status for outcome in again] == ["ok"] * 3


def test_an_interrupt_ends_lanes_and_tells_what_is_known(
    make: Make, candidates: list[Candidate]
) -> None:
    engine = ScriptedEngine([machine(it) for it in "abc"], latency, seconds=0.002)
    measurer = make(engine)
    known: dict[str, Outcome] = {}

    def on_known(candidate: Candidate, outcome: Outcome) -> None:
        known[candidate.digest] = outcome
        if len(known) == 4:
            raise KeyboardInterrupt

    measurer.submit(candidates)
    with pytest.raises(KeyboardInterrupt):
        measurer.collect_known(Collecting(), len(candidates), on_known)
    assert 4 <= len(known) < len(candidates)
    # The measurer is usable afterwards, and what is left is measured beside the best one.
    best = min(
        (it for it in candidates if it.digest in known),
        key=lambda it: known[it.digest].latency or 1.0,
    )
    left = [it for it in candidates if it.digest not in known]
    told: list[str] = []
    measurer.submit(left)
    leader = Leader(best, known[best.digest].latency)
    measurer.collect_known(
        Collecting(leader=leader), len(left), lambda it, _outcome: told.append(it.digest)
    )
    assert sorted(told) == sorted(it.digest for it in left)


@pytest.mark.parametrize("fails_on", ["b", "ab"])
def test_a_best_program_that_fails_elsewhere_is_no_measure_there(
    make: Make, candidates: list[Candidate], fails_on: str
) -> None:
    """Its copy crashes: the others are timed where it does not, or beside another one."""
    first: list[int] = []
    crash = Outcome("crash", message="scripted").to_json()

    def fail(_engine: ScriptedEngine, job: Job, honest: Reply) -> Sequence[Answer]:
        if job.message["op"] == "run" and not first:
            first.append(job.message["number"])
            return [(0.0, honest)]
        is_copy = job.message["op"] == "run" and job.message["number"] in first
        fails = is_copy and machine_of(job) in fails_on
        return [(0.0, evolve(honest, body={"outcome": crash}) if fails else honest)]

    engine = ScriptedEngine([machine(it) for it in "ab"], latency, mischief=fail)
    check(make(engine), candidates)
    # The first is the best one only where it fails nowhere: on both there is another one later.
    assert set(engine.timed_on) == set("ab")


def test_lanes_finish_what_they_are_at_when_there_is_enough(
    make: Make, candidates: list[Candidate]
) -> None:
    engine = ScriptedEngine([machine(it) for it in "ab"], latency, seconds=0.002)
    measurer = make(engine)
    told: list[int] = []
    measurer.submit(candidates)
    some = Collecting(
        lambda at, _outcome: told.append(at), enough=lambda: len(engine.timed_on) > 12
    )
    outcomes = measurer.collect(some)
    assert told == list(range(len(outcomes))) and 0 < len(told) < len(candidates)
    check(measurer, candidates)


def test_an_error_in_a_lane_is_raised_by_the_host(
    make: Make, candidates: list[Candidate], monkeypatch: Any
) -> None:
    measurer = make(ScriptedEngine([machine(it) for it in "ab"], latency))
    check(measurer, candidates[:1])
    screen = TimingSession.screen

    def broken(*_arguments: object) -> None:
        raise ZeroDivisionError("scripted")

    monkeypatch.setattr(TimingSession, "screen", broken)
    with pytest.raises(ZeroDivisionError, match="scripted"):
        measurer.measure(candidates)
    monkeypatch.setattr(TimingSession, "screen", screen)
    check(measurer, candidates)


def test_faults_on_several_machines_at_once(make: Make, candidates: list[Candidate]) -> None:
    """Lanes lose their process, and what they held, in the middle of everything."""
    machines = [machine(name) for name in "abc"]
    engine = ScriptedEngine(machines, latency, mischief=every(11, restarted))
    measurer = make(engine)
    check(measurer, candidates[:2])
    check(measurer, candidates)


def test_drift_is_told_once(make: Make, candidates: list[Candidate], monkeypatch: Any) -> None:
    monkeypatch.setattr("autotune.measure.workers._DRIFT_SECONDS", 0.0)
    engine = ScriptedEngine([machine("a")], latency, simulates=False)
    engine.speeds["a"] = 1.05e-3
    measurer = make(engine)
    measurer.measure(candidates[:3])
    assert measurer.take_warnings() == []
    engine.speeds["a"] = 1.5e-3
    measurer.measure(candidates[:3])
    (warning,) = measurer.take_warnings()
    assert "machine 'a' takes +50% for the reference program" in warning
    measurer.measure(candidates[:3])
    assert measurer.take_warnings() == []
