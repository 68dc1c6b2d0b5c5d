"""Rematches in a timing session: all programs take the same turns, on a simulated machine."""

from __future__ import annotations

import statistics

import pytest
from simulated_workers import Machine, Program, drifting, session

from autotune.measure import MeasureProtocol
from autotune.measure.racing import compare
from autotune.measure.timing import LONG_SECONDS
from autotune.measure.trial import Trial

PROTOCOL = MeasureProtocol()


def rematch(machine: Machine, *programs: Program) -> list[Trial]:
    """Times programs in turns; the last one is the untuned one."""
    last = len(programs) - 1
    trials = [
        machine.trial(number, program, baseline=number == last)
        for number, program in enumerate(programs)
    ]
    session(machine).rematch(trials)
    return trials


def test_long_calls_have_one_sample_in_a_turn() -> None:
    machine = Machine()
    timing = session(machine)
    for number, seconds, samples in ((0, 1e-3, PROTOCOL.samples_per_turn), (1, LONG_SECONDS, 1)):
        trial = machine.trial(number, Program(seconds))
        assert timing.check(trial)
        began = machine.now
        assert timing.turn(trial, 0) == pytest.approx(seconds)
        calls = machine.programs[number].calls
        assert machine.now - began == pytest.approx(samples * calls * seconds)


def test_samples_of_a_rematch_are_of_the_same_turns() -> None:
    machine = Machine(drifting(3, seconds=0.01), noise=0.005)
    first, second, untuned = rematch(machine, Program(1e-3), Program(1.1e-3), Program(5e-3))
    assert first.outcome is not None
    assert second.outcome is not None
    assert untuned.outcome is not None
    assert len(first.samples) == len(second.samples) >= PROTOCOL.min_rounds
    ratios = [b / a for a, b in zip(first.samples, second.samples, strict=True)]
    assert statistics.median(ratios) == pytest.approx(1.1, rel=0.02)
    assert len(untuned.samples) < PROTOCOL.min_rounds


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_program_that_crashes_during_a_rematch(place: int) -> None:
    programs = [Program(1e-3), Program(1.1e-3, worker=1), Program(1.2e-3, worker=2)]
    programs[place].good_samples = 2
    trials = rematch(Machine(noise=0.01), *programs)
    statuses = [trial.outcome.status if trial.outcome else "" for trial in trials]
    assert statuses == ["crash" if number == place else "ok" for number in range(3)]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_after_a_loss_all_of_a_rematch_are_timed_again_together(place: int) -> None:
    machine = Machine(noise=0.01)
    programs = [Program(1e-3), Program(1.1e-3, worker=1), Program(1.2e-3, worker=2)]
    programs[place].good_samples, programs[place].then = 2, "lost"
    trials = rematch(machine, *programs)
    assert [trial.outcome for trial in trials] == [None] * 3
    programs[place].good_samples = None
    machine.hold(trials[place])
    session(machine).rematch(trials)
    assert all(trial.outcome is not None and trial.outcome.ok for trial in trials)
    assert len(trials[0].samples) == len(trials[1].samples)


def test_a_large_gain_on_a_busy_machine_gets_more_turns() -> None:
    found, turns = 0, []
    for seed in range(20):
        machine = Machine(noise=2.0, seed=seed)
        first, untuned = rematch(machine, Program(1e-4), Program(8e-4))
        comparison = compare(first.samples, untuned.samples)
        found += comparison.faster
        turns.append(comparison.rounds)
    assert found >= 19
    assert PROTOCOL.max_rounds < max(turns) <= 8 * PROTOCOL.max_rounds


def test_long_calls_get_no_more_turns() -> None:
    for seed in range(20):
        machine = Machine(noise=2.0, seed=seed)
        first, _ = rematch(machine, Program(1.0), Program(8.0))
        assert len(first.samples) <= PROTOCOL.max_rounds


def test_equal_programs_are_rarely_told_apart_in_a_rematch() -> None:
    # A claim about the second one may go either way, and only one way about the untuned one.
    bounds, repeats = {"second": 0.05, "untuned": 0.025}, 300
    claims = dict.fromkeys(bounds, 0)
    for seed in range(repeats):
        machine = Machine(drifting(seed, seconds=0.05), noise=0.02, seed=seed)
        first, second, untuned = rematch(machine, *(Program(1e-3) for _ in range(3)))
        over = compare(first.samples, second.samples)
        claims["second"] += over.faster or over.slower
        claims["untuned"] += compare(first.samples, untuned.samples).faster
    for name, bound in bounds.items():
        assert claims[name] / repeats <= bound + 2 * (bound * (1 - bound) / repeats) ** 0.5
