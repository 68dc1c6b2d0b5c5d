"""Building, checking and timing in real processes: what is done once, when, and never at once."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen
from other_timer import other_process
from patient_clock import PatientClock
from process_facts import becomes_true
from thinning import thinned

from autotune.ir.workloads import Workload, draw_example
from autotune.measure import Collecting, Leader, LocalMeasurer, MeasureProtocol, validation
from autotune.measure import workers as module
from autotune.measure.pool import MOST_AHEAD
from autotune.process.timing_lock import BUSY_VARIABLE, TimingLock
from autotune.sketches import Candidate, Ordinal, Sketch
from autotune.store.records import Outcome
from autotune.testing.reference_backend import SCRIPT_VARIABLE, virtual_latency
from autotune.tuning.options import usable_cpus

MakeMeasurer = Callable[..., LocalMeasurer]


@pytest.fixture
def pairs(workload: Workload) -> list[Candidate]:
    """Six candidates: ``tile`` 1 and 2, each with ``unroll`` 0, 1 and 2."""
    parameters = (Ordinal("tile", (1, 2)), Ordinal("unroll", (0, 1, 2)))
    sketch = Sketch("toy", workload, parameters, (), ())
    return [Candidate(sketch, values) for values in itertools.product((1, 2), (0, 1, 2))]


@pytest.fixture
def many(workload: Workload) -> list[Candidate]:
    """Return as many candidates as two workers build at once."""
    sketch = Sketch("toy", workload, (Ordinal("tile", tuple(range(1, 17))),), (), ())
    return [Candidate(sketch, (tile,)) for tile in range(1, 17)]


@frozen
class Span:
    """Something that a worker did.

    Attributes:
        what: ``build``, ``time`` or ``start``.
        worker: Its process.
        begin: Monotonic seconds.
        end: Monotonic seconds; those of the beginning if the worker did not survive it.
        candidate: Digest of the candidate.
    """

    what: str
    worker: str
    begin: float
    end: float
    candidate: str

    def overlaps(self, other: Span) -> bool:
        return self.begin < other.end and other.begin < self.end


def spans(log: Path, what: str) -> list[Span]:
    """Actions of the workers, in the order in which they began."""
    found: list[Span] = []
    for line in log.read_text().splitlines() if log.exists() else []:
        name, event, worker, seconds, candidate = line.split()
        if name != what:
            continue
        if event == "begin":
            found.append(Span(what, worker, float(seconds), float(seconds), candidate))
        else:
            last = max(at for at, it in enumerate(found) if it.worker == worker)
            found[last] = evolve(found[last], end=float(seconds))
    return found


def candidates_in(log: Path, what: str) -> list[str]:
    """Candidates that were built or timed, each once, in order."""
    return list(dict.fromkeys(span.candidate for span in spans(log, what)))


def statuses(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.status for outcome in outcomes]


def digests(candidates: Sequence[Candidate]) -> list[str]:
    return [candidate.digest for candidate in candidates]


def check_duplicates(outcomes: Sequence[Outcome], log: Path, pairs: Sequence[Candidate]) -> None:
    """Of the six, one for each ``tile`` was timed, and the others name it."""
    timed = candidates_in(log, "time")
    assert statuses(outcomes) == ["ok"] * 6
    for three in (range(3), range(3, 6)):
        (measured,) = [number for number in three if pairs[number].digest in timed]
        assert outcomes[measured].duplicate_of == ""
        for number in three:
            assert outcomes[number].latency == outcomes[measured].latency
            if number != measured:
                assert outcomes[number].duplicate_of == pairs[measured].digest


def test_the_same_lowered_program_is_compiled_once_per_worker_and_timed_once(
    make_measurer: MakeMeasurer, pairs: list[Candidate], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    outcomes = make_measurer(log=str(log), ignored=["unroll"]).measure(pairs)
    check_duplicates(outcomes, log, pairs)
    builds = spans(log, "build")
    lowered = {it.digest: outcome.lowered for it, outcome in zip(pairs, outcomes, strict=True)}
    by_worker = [(span.worker, lowered[span.candidate]) for span in builds]
    assert len(set(by_worker)) == len(by_worker)


def test_the_same_machine_code_is_timed_once(
    make_measurer: MakeMeasurer, pairs: list[Candidate], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    outcomes = make_measurer(log=str(log), optimised_away=["unroll"]).measure(pairs)
    check_duplicates(outcomes, log, pairs)
    assert len(spans(log, "build")) == 6
    # Each keeps the names of its own lowered program, under which it is looked up later.
    assert len({outcome.lowered for outcome in outcomes}) == 6
    assert len({outcome.binary for outcome in outcomes}) == 2


def test_the_same_program_in_a_later_batch_is_neither_compiled_nor_timed(
    make_measurer: MakeMeasurer, pairs: list[Candidate], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    measurer = make_measurer(log=str(log), ignored=["unroll"])
    first = measurer.measure([pairs[0], pairs[3]])
    before = log.read_text()
    later = measurer.measure([pairs[1], pairs[2], pairs[4], pairs[5]])
    assert log.read_text() == before
    assert [it.latency for it in later] == [first[index].latency for index in (0, 0, 1, 1)]
    assert [it.duplicate_of for it in later] == digests([pairs[at] for at in (0, 0, 3, 3)])


def test_a_program_that_another_run_has_measured_is_not_timed(
    make_measurer: MakeMeasurer, pairs: list[Candidate], tmp_path: Path
) -> None:
    known = make_measurer(optimised_away=["unroll"]).measure([pairs[0]])[0]
    log = tmp_path / "log"
    for options, names in (
        ({"optimised_away": ["unroll"]}, {known.binary}),
        ({"ignored": ["unroll"]}, {known.binary, known.lowered}),
    ):
        measurer = make_measurer(log=str(log), **options)
        measurer.submit(pairs[1:3])
        found = evolve(known, duplicate_of=pairs[0].digest)
        # With a parameter that is ignored the lowered program has the name of the machine code.
        recall = dict.fromkeys(names, found).get
        outcomes = measurer.collect(Collecting(recall=recall))
        assert [it.duplicate_of for it in outcomes] == [pairs[0].digest] * 2
        assert [it.latency for it in outcomes] == [known.latency] * 2
    assert spans(log, "time") == []


@pytest.mark.parametrize("option", thinned(["ignored", "optimised_away"], 2))
def test_after_a_crash_the_next_of_the_same_programs_is_measured_for_all(
    make_measurer: MakeMeasurer, pairs: list[Candidate], tmp_path: Path, option: str
) -> None:
    log = tmp_path / "log"
    fault = {"fault": "kill", "phase": "run", "candidate": pairs[0].digest}
    measurer = make_measurer(fault, log=str(log), workers=1, **{option: ["unroll"]})
    outcomes = measurer.measure(pairs[:3])
    assert statuses(outcomes) == ["crash", "ok", "ok"]
    assert candidates_in(log, "time") == digests(pairs[:2])
    assert outcomes[2].duplicate_of == pairs[1].digest


def test_what_was_given_up_is_measured_when_it_comes_again(
    make_measurer: MakeMeasurer, pairs: list[Candidate]
) -> None:
    measurer = make_measurer(ignored=["unroll"], workers=1)
    measurer.submit([pairs[0], pairs[3]])
    seen: list[Outcome] = []
    few = measurer.collect(
        Collecting(lambda _, outcome: seen.append(outcome), enough=lambda: bool(seen))
    )
    assert len(few) == len(seen) == 1

    def interrupt() -> bool:
        raise KeyboardInterrupt

    measurer.submit([pairs[4]])
    with pytest.raises(KeyboardInterrupt):
        measurer.collect(Collecting(enough=interrupt))
    outcomes = measurer.measure([pairs[5], pairs[4], pairs[3]])
    assert statuses(outcomes) == ["ok"] * 3
    assert [it.duplicate_of for it in outcomes] == ["", pairs[5].digest, pairs[5].digest]


def test_the_best_one_of_another_session_is_timed_before_it_is_a_measure(
    make_measurer: MakeMeasurer, pairs: list[Candidate]
) -> None:
    measurer, told = make_measurer(ignored=["unroll"], workers=1), list[float]()
    leader = Leader(pairs[0], None)
    # The second is the best one's program under another name.
    for candidate, timed in ((pairs[3], pairs[3]), (pairs[1], pairs[0])):
        measurer.submit([candidate])
        (outcome,) = measurer.collect(Collecting(on_leader_timed=told.append, leader=leader))
        expected = virtual_latency(timed.sketch.workload, timed)
        assert outcome.latency == pytest.approx(expected, rel=1e-6)
    # Only once, unless it has lost to the other one meanwhile.
    assert set(told) == {virtual_latency(pairs[0].sketch.workload, pairs[0])}


def test_a_program_like_the_best_one_of_an_earlier_session_takes_its_latency(
    make_measurer: MakeMeasurer, pairs: list[Candidate]
) -> None:
    leader = Leader(pairs[0], 1.5 * virtual_latency(pairs[0].sketch.workload, pairs[0]))
    measurer = make_measurer(ignored=["unroll"], workers=1)
    # The machine is faster now, so that what takes as long counts as slower.
    other = measurer.measure([pairs[3]], leader=leader)[0]
    expected = virtual_latency(pairs[3].sketch.workload, pairs[3])
    assert (other.latency or 0.0) / expected == pytest.approx(1.5, rel=1e-3)
    outcomes = measurer.measure(pairs[1:3], leader=leader)
    assert [it.duplicate_of for it in outcomes] == [pairs[0].digest] * 2
    assert [it.latency for it in outcomes] == [pytest.approx(leader.latency)] * 2


def test_what_takes_much_longer_than_the_best_is_given_up_early(
    make_measurer: MakeMeasurer, candidates: list[Candidate]
) -> None:
    protocol = MeasureProtocol(hopeless_seconds=1.0)
    fault = {"fault": "hang", "phase": "verify", "where": {"tile": 2}}
    measurer = make_measurer(fault, protocol=protocol, workers=1, clock=PatientClock())
    outcomes = measurer.measure(candidates[:3])
    assert statuses(outcomes) == ["ok", "timeout", "ok"]
    assert outcomes[1].message == "verify took more than 1 s"
    assert 1 <= outcomes[1].timings["verify"] < protocol.deadlines["verify"]


def test_programs_that_do_what_they_must_not(
    make_measurer: MakeMeasurer, candidates: list[Candidate]
) -> None:
    faults = dict(enumerate(("wrong", "dirty", "spoil", "outside") * 2, 2))
    measurer = make_measurer(
        *(
            {"fault": fault, "phase": "verify" if tile < 6 else "run", "where": {"tile": tile}}
            for tile, fault in faults.items()
        ),
        workers=1,
    )
    outcomes = measurer.measure(candidates)
    ends = ["wrong_result", "wrong_result", "crash", "wrong_result"]
    assert statuses(outcomes) == ["ok", *ends, *ends, "ok"]
    for wrong, dirty, spoil, outside in (outcomes[1:5], outcomes[5:9]):
        assert "output 'C': " in wrong.message
        assert dirty.message == "input 'A' was changed"
        assert outside.message == "memory beside 'C' was written to"
        assert "this input is spoilt" in spoil.message


def test_a_program_that_is_wrong_on_other_inputs_only_is_found_in_the_rematch(
    make_measurer: MakeMeasurer, candidates: list[Candidate]
) -> None:
    measurer = make_measurer({"fault": "wrong", "where": {"tile": 2}, "inputs": 8}, seed=7)
    assert statuses(measurer.measure(candidates[:3])) == ["ok"] * 3
    again = measurer.rematch([candidates[1], candidates[0], None])
    assert statuses(again) == ["wrong_result", "ok", "ok"]
    # Afterwards programs run on the inputs of the search again.
    assert statuses(measurer.measure(candidates[:3])) == ["ok"] * 3


def test_programs_of_a_rematch_have_as_many_samples_as_turns(
    make_measurer: MakeMeasurer, candidates: list[Candidate]
) -> None:
    measurer = make_measurer()
    first, second, untuned = measurer.rematch([candidates[0], candidates[1], None])
    assert len(first.samples) == len(second.samples) >= MeasureProtocol().min_rounds
    assert 0 < len(untuned.samples) < len(first.samples)
    assert first.duplicate_of == second.duplicate_of == ""


@pytest.mark.parametrize("tile", thinned([1, 2], 2))
def test_a_program_that_fails_in_a_rematch_does_not_keep_it_from_ending(
    make_measurer: MakeMeasurer, candidates: list[Candidate], tile: int, tmp_path: Path
) -> None:
    measurer = make_measurer(
        {"fault": "kill", "phase": "run", "where": {"tile": tile}, "inputs": 1}
    )
    assert statuses(measurer.measure(candidates[:2])) == ["ok"] * 2
    again = statuses(measurer.rematch([candidates[0], candidates[1], None]))
    assert again == ["crash" if number == tile else "ok" for number in (1, 2)] + ["ok"]


def test_a_batch_that_is_larger_than_a_chunk(
    make_measurer: MakeMeasurer, workload: Workload, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    sketch = Sketch("toy", workload, (Ordinal("tile", tuple(range(1, 21))),), (), ())
    many = [Candidate(sketch, (tile,)) for tile in range(1, 21)]
    seen: list[int] = []
    measurer = make_measurer(log=str(log), workers=1, threads=usable_cpus())
    outcomes = measurer.measure(many, lambda position, _: seen.append(position))
    assert statuses(outcomes) == ["ok"] * 20
    assert seen == list(range(20))
    builds, first = spans(log, "build"), spans(log, "time")[0]
    assert sum(span.begin < first.begin for span in builds) == 8
    assert candidates_in(log, "build") == digests(many)


def test_enough_is_enough(
    make_measurer: MakeMeasurer, candidates: list[Candidate], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    measurer = make_measurer(log=str(log), workers=1)
    measurer.submit(candidates)

    def enough() -> bool:
        return len(candidates_in(log, "time")) >= 4

    told: list[int] = []
    outcomes = measurer.collect(Collecting(lambda number, _: told.append(number), enough=enough))
    assert statuses(outcomes) == ["ok"] * 4
    assert told == [0, 1, 2, 3]
    assert candidates_in(log, "time") == digests(candidates[:4])


def test_an_interrupt_tells_all_that_was_timed(
    make_measurer: MakeMeasurer, pairs: list[Candidate], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    measurer = make_measurer(log=str(log), workers=1, ignored=["unroll"])
    # The second has the outcome of the first at the end only; it must not hide the third.
    measurer.submit([pairs[0], pairs[1], pairs[3]])

    def interrupt() -> bool:
        if len(candidates_in(log, "time")) >= 2:
            raise KeyboardInterrupt
        return False

    told: dict[int, Outcome] = {}
    with pytest.raises(KeyboardInterrupt):
        measurer.collect(Collecting(told.__setitem__, enough=interrupt))
    assert set(told) == {0, 1, 2}
    assert told[1].duplicate_of == pairs[0].digest


def await_builds(log: Path, count: int) -> None:
    """Wait, without asking the measurer for anything, until so many builds are over."""
    is_done = becomes_true(lambda: sum(it.end > it.begin for it in spans(log, "build")) >= count)
    assert is_done, "workers had other things to do first"


def test_candidates_are_built_while_nobody_waits(
    make_measurer: MakeMeasurer, candidates: list[Candidate], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    now = [0.0]
    measurer = make_measurer(log=str(log), build_seconds=0.05, clock=lambda: now[0])
    measurer.submit(candidates[:6])
    await_builds(log, 6)
    now[0], collected = 5.0, time.monotonic()
    assert statuses(measurer.collect(Collecting())) == ["ok"] * 6
    assert len(spans(log, "build")) == 6
    assert measurer.seconds["build"] == 0
    noted = measurer.take_build_spans()
    assert len(noted) == 6
    assert all(begin < end < collected for begin, end in noted)


def test_what_is_right_is_found_out_while_candidates_are_built(
    make_measurer: MakeMeasurer,
    candidates: list[Candidate],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = tmp_path / "log"
    evaluated: list[bool] = []

    def evaluate(*given: Any) -> Any:
        evaluated.append(becomes_true(lambda: spans(log, "build")))
        return draw_example(*given)

    monkeypatch.setattr(validation, "draw_example", evaluate)
    measurer = make_measurer(log=str(log))
    measurer.wait_ready()
    assert not evaluated
    assert statuses(measurer.measure(candidates[:2])) == ["ok"] * 2
    assert statuses(measurer.rematch(candidates[:2])) == ["ok"] * 2
    assert evaluated == [True, True], "once for the search, and once for its winners"


def test_the_next_batch_is_built_while_the_search_learns_from_the_last(
    make_measurer: MakeMeasurer, many: list[Candidate], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    measurer = make_measurer(log=str(log), build_seconds=0.01)
    measurer.submit(many[:12])
    measurer.collect(Collecting())
    measurer.submit(many[12:])
    await_builds(log, 16)
    assert statuses(measurer.collect(Collecting())) == ["ok"] * 4


@pytest.mark.needs("2 CPUs")
@pytest.mark.parametrize("matters", [False, True])
def test_others_build_beside_programs_of_one_thread_unless_that_disturbs(
    make_measurer: MakeMeasurer,
    many: list[Candidate],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    matters: bool,
) -> None:
    monkeypatch.setattr(module, "quiet_neighbour_matters", lambda *_: matters)
    # A busy machine may keep this process from asking for a timing until all is built.
    for attempt in range(1 if matters else 5):
        log = tmp_path / f"log {attempt}"
        # The second batch is built while the first is timed: one worker times as soon as it has
        # built what it was given, the other has a dozen to build then.
        measurer = make_measurer(log=str(log), build_seconds=0.05, threads=1)
        measurer.submit(many[:1])
        measurer.submit(many[1:])
        for size in (1, 15):
            assert statuses(measurer.collect(Collecting())) == ["ok"] * size
        measurer.close()
        builds, timings = spans(log, "build"), spans(log, "time")
        beside = [(b, t) for b in builds for t in timings if b.overlaps(t)]
        assert all(build.worker != timing.worker for build, timing in beside)
        if beside:
            break
    assert bool(beside) == (not matters)


@pytest.mark.needs("2 CPUs")
def test_nothing_is_timed_before_the_last_builds_of_a_batch_are_handed_out(
    make_measurer: MakeMeasurer,
    many: list[Candidate],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else every timing waits for the builds that its worker has before it."""
    monkeypatch.setattr(module, "quiet_neighbour_matters", lambda *_: False)
    log = tmp_path / "log"
    measurer = make_measurer(log=str(log), build_seconds=0.05, threads=1)
    measurer.submit(many)
    assert statuses(measurer.collect(Collecting())) == ["ok"] * 16
    first = min(timing.begin for timing in spans(log, "time"))
    begun = sum(build.begin < first for build in spans(log, "build"))
    assert begun >= 16 - MOST_AHEAD


def test_a_new_worker_starts_before_anything_else_is_timed(
    make_measurer: MakeMeasurer,
    candidates: list[Candidate],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = tmp_path / "log"
    script = json.dumps({"log": str(log)})
    monkeypatch.setenv(SCRIPT_VARIABLE, script)
    kill = {"fault": "kill", "phase": "run", "where": {"tile": 2}}
    measurer = make_measurer(kill, log=str(log), threads=usable_cpus())
    outcomes = measurer.measure(candidates)
    assert statuses(outcomes) == ["ok", "crash"] + ["ok"] * 8
    starts, timings = spans(log, "start"), spans(log, "time")
    assert len(starts) == 3
    crash = max(it.end for it in timings if it.candidate == candidates[1].digest)
    later = [it.begin for it in timings if it.begin > crash]
    assert later
    # Starting begins long before the backend is asked to warm up.
    assert min(later) > starts[-1].end > starts[-1].begin > crash


def test_simulated_latencies_hold_no_second_of_the_check(
    make_measurer: MakeMeasurer, workload: Workload, candidates: list[Candidate]
) -> None:
    # Any call that took so long would be the only sample.
    measurer = make_measurer(protocol=MeasureProtocol(limit_seconds=1e-9))
    (outcome,) = measurer.measure(candidates[:1])
    assert outcome.samples == (virtual_latency(workload, candidates[0]),)


def test_latencies_compare_although_the_machine_drifts(
    make_measurer: MakeMeasurer, workload: Workload, candidates: list[Candidate]
) -> None:
    measurer = make_measurer(drift_factor=1.6, drift_seconds=0.05)
    outcomes = measurer.measure(candidates)
    assert statuses(outcomes) == ["ok"] * 10
    true = [virtual_latency(workload, candidate) for candidate in candidates]
    fastest = min(range(10), key=lambda number: outcomes[number].latency or 1.0)
    # Two of them are less than a percent apart, which turns need not tell.
    assert true[fastest] <= 1.02 * min(true)


@pytest.mark.needs("2 CPUs")
def test_what_waits_for_a_slow_build_is_not_lost(
    make_measurer: MakeMeasurer,
    candidates: list[Candidate],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first candidate is still being built when others have been timed, and Ctrl-C comes."""
    # Where CPUs share a core nothing is timed before everything is built.
    monkeypatch.setattr(module, "quiet_neighbour_matters", lambda *_: False)
    log = tmp_path / "log"
    fault = {"fault": "hang", "phase": "build", "where": {"tile": 1}}
    measurer = make_measurer(fault, log=str(log), threads=1)
    told: dict[int, Outcome] = {}

    def enough() -> bool:
        if log.exists() and "time end" in log.read_text():
            raise KeyboardInterrupt
        return False

    measurer.submit(candidates)
    with pytest.raises(KeyboardInterrupt):
        measurer.collect(Collecting(told.__setitem__, enough=enough))
    assert told and 0 not in told
    assert {outcome.status for outcome in told.values()} == {"ok"}
    # The worker with the slow build is replaced: the measurer can go on.
    assert [it.status for it in measurer.measure(candidates[1:4])] == ["ok"] * 3


def test_what_may_be_the_best_one_is_not_hidden_by_an_interrupt(
    make_measurer: MakeMeasurer, workload: Workload, candidates: list[Candidate]
) -> None:
    """Its turns did not take place: it counts as it was screened, not as slower than the best."""
    latency = {it.digest: virtual_latency(workload, it) for it in candidates}
    fast, *_, slow = sorted(candidates, key=lambda it: latency[it.digest])
    measurer, told, asked = make_measurer(workers=1), dict[int, Outcome](), []

    def enough() -> bool:
        asked.append(True)
        if len(asked) > 2:  # before the first one, and after each of the two
            raise KeyboardInterrupt
        return False

    measurer.submit([slow, fast])
    with pytest.raises(KeyboardInterrupt):
        measurer.collect(Collecting(told.__setitem__, enough=enough))
    assert told[0].latency == latency[slow.digest]
    assert told[1].latency == latency[fast.digest]


@pytest.mark.promise("another run times on the same CPUs", "the two take turns")
def test_a_measurer_times_when_another_process_has_ended_its_turn(
    make_measurer: MakeMeasurer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(BUSY_VARIABLE, raising=False)
    measurer = make_measurer()
    measurer.start()
    # Its backend simulates times, and would lock nothing.
    lock = TimingLock((0,), path=tmp_path / "lock")
    monkeypatch.setattr(measurer._workers, "timing_lock", lock)
    with other_process(tmp_path / "lock", "0") as other:
        assert other.acquires()
        released: list[float] = []

        def end_turn() -> None:
            assert becomes_true(lambda: lock.is_waiting)
            time.sleep(0.3)
            released.append(time.monotonic())
            other.release()

        thread = threading.Thread(target=end_turn)
        thread.start()
        [outcome] = measurer.measure_baselines([None])
        ended = time.monotonic()
        thread.join()
        assert outcome.ok and ended > released[0]
        # It keeps nothing once it has timed, nor after an interrupt while it waits.
        assert not lock.is_held and other.acquires()
        monkeypatch.setattr(lock, "clock", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            measurer.measure_baselines([None])
        other.release()
        assert other.acquires()


def _interrupt() -> float:
    raise KeyboardInterrupt
