"""Tests of who is timed beside whom, and of the outcome, on a simulated machine."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pytest
from simulated_workers import Machine, Program, Session, drifting, session, toy_candidate

from autotune.measure import MeasureProtocol
from autotune.measure.jobs import Job, Reply
from autotune.measure.racing import compare
from autotune.measure.timing import LONG_SECONDS
from autotune.measure.trial import Leader, Trial
from autotune.store.records import Comparison, Outcome

PROTOCOL = MeasureProtocol()


def with_leader(machine: Machine, seconds: float = 1e-3) -> tuple[Session, Trial]:
    """A session whose best program so far is number 0, held by worker 0."""
    timing, leader = session(machine), machine.trial(0, Program(seconds))
    timing.screen(leader)
    machine.asked.clear()
    machine.deadlines.clear()
    return timing, leader


def operations(machine: Machine) -> list[tuple[str, int]]:
    return [(name, number) for name, number, _ in machine.asked]


def test_the_first_program_is_timed_until_it_is_known_and_leads() -> None:
    machine = Machine()
    timing, leader = with_leader(machine, 2e-3)
    assert leader.outcome is not None
    assert leader.outcome.latency == pytest.approx(2e-3)
    assert len(leader.outcome.samples) == 6
    assert leader.outcome.drift == 1
    assert timing.leader is leader
    assert timing.leads(leader.digest)
    assert not timing.leads(toy_candidate(1).digest)


def test_a_hopeless_program_gets_one_sample_and_does_not_bother_the_best() -> None:
    machine = Machine()
    timing, _ = with_leader(machine)
    trial = machine.trial(1, Program(5e-3))
    timing.screen(trial)
    assert operations(machine) == [("run", 1)]
    assert trial.outcome is not None
    assert len(trial.outcome.samples) == 1


def test_a_slow_program_gets_few_samples_and_does_not_bother_the_best() -> None:
    machine = Machine()
    timing, _ = with_leader(machine)
    trial = machine.trial(1, Program(2.5e-3))
    timing.screen(trial)
    assert operations(machine) == [("run", 1)]
    assert trial.outcome is not None
    assert len(trial.outcome.samples) == PROTOCOL.min_samples


def test_a_worse_program_is_done_with_once_the_best_was_sampled_beside_it() -> None:
    machine = Machine()
    timing, leader = with_leader(machine)
    trial = machine.trial(1, Program(1.5e-3))
    timing.screen(trial)
    assert PROTOCOL.min_samples == 3
    pairs = [("sample", 0), ("sample", 1), ("sample", 0)]
    assert operations(machine) == [("run", 1), *pairs]
    assert trial.outcome is not None
    assert trial.outcome.latency == pytest.approx(1.5e-3)
    assert timing.leader is leader


@pytest.mark.parametrize("factor", [1.6, 1 / 1.6])
def test_a_machine_that_changes_its_speed_meanwhile_rules_nobody_out(factor: float) -> None:
    changes = np.arange(0.0, 0.015, 3e-4)
    for change in changes:
        machine = Machine()
        timing, _ = with_leader(machine)
        when = machine.now + change
        machine.slowdown = lambda now, when=when: factor if now > when else 1.0
        trial = machine.trial(1, Program(1e-3))
        timing.screen(trial)
        assert trial.outcome is None
        assert trial.latency == pytest.approx(1e-3)
    assert machine.now < when


LONG = 0.08
BEST, OTHER = ("sample", 0), ("sample", 1)


@pytest.mark.parametrize(
    ("factor", "first_call", "samples", "asked"),
    [
        # Its check alone, where it has lost, or it and a call that agrees.
        (5.0, 1.0, 1, []),
        (2.5, 1.0, 1, []),
        # A check that took longer by far says nothing, and the other calls have to agree.
        (2.5, 4.0, 3, []),
        (1.5, 1.0, 2, [BEST, BEST, OTHER]),
        (1.5, 4.0, 2, [BEST, BEST, OTHER]),
        (1.0, 1.0, 3, [BEST, BEST, OTHER, OTHER, BEST]),
        (1.0, 4.0, 3, [BEST, BEST, OTHER, OTHER, BEST]),
    ],
)
def test_long_programs_get_samples_as_long_as_they_can_win(
    factor: float, first_call: float, samples: int, asked: list[tuple[str, int]]
) -> None:
    machine = Machine()
    timing, _ = with_leader(machine, LONG)
    began = machine.now
    trial = machine.trial(1, Program(factor * LONG, first_call=first_call))
    timing.screen(trial)
    assert operations(machine) == [("run", 1), *asked]
    assert len(trial.samples) == samples
    assert (trial.outcome is None) == (factor == 1.0)
    calls = (first_call + samples * (factor < 5)) * factor + asked.count(BEST)
    assert machine.now - began == pytest.approx(calls * LONG)


def test_among_hopeless_long_programs_the_best_one_is_called_once_to_see_the_drift() -> None:
    machine = Machine()
    timing, _ = with_leader(machine, LONG)
    for number in (1, 2):
        timing.screen(machine.trial(number, Program(3 * LONG)))
    machine.slowdown = lambda _now: 1.25
    machine.asked.clear()
    last = machine.trial(3, Program(3 * LONG))
    timing.screen(last)
    assert operations(machine) == [("run", 3), BEST]
    assert last.outcome is not None
    assert last.outcome.drift == pytest.approx(1.25)
    assert last.outcome.latency == pytest.approx(3 * LONG)


@pytest.mark.parametrize("seed", range(8))
def test_the_winner_of_long_programs_is_among_the_fastest_and_takes_few_calls(seed: int) -> None:
    rng = np.random.default_rng(200 + seed)
    factors = rng.permutation([*rng.uniform(1, 1.5, 8), *rng.uniform(2, 9, 8)])
    machine = Machine(drifting(seed, seconds=8.0), noise=0.02, seed=seed)
    trials = measure_all(machine, list(LONG * factors))
    best = min(trials, key=lambda trial: trial.outcome.latency if trial.outcome else 9.0)
    assert factors[best.number] <= 1.03 * min(factors)
    # Slower by four than the best one of the first batch, also while the machine is slower.
    slow = [it for it in trials[8:] if factors[it.number] > 4 * 1.6 * 1.05 * min(factors[:8])]
    assert all(len(trial.samples) == 1 for trial in slow)


def test_what_a_contender_beats_by_far_is_spared_its_turns() -> None:
    machine = Machine(noise=0.01)
    timing, leader = with_leader(machine, 1.1e-3)
    near, fast = (machine.trial(n, Program(s)) for n, s in ((1, 1.05e-3), (2, 0.8e-3)))
    for trial in (near, fast):
        timing.screen(trial)
    machine.asked.clear()
    timing.settle()
    assert {number for _, number in operations(machine)} == {leader.number, fast.number}
    assert timing.leader is fast
    assert near.outcome is not None
    assert near.outcome.latency == pytest.approx(1.05e-3, rel=0.05)


def test_what_a_contender_seemed_to_beat_has_its_turns_when_that_fails() -> None:
    machine = Machine(noise=0.01)
    timing, _ = with_leader(machine, 1.1e-3)
    near, fast = machine.trial(1, Program(1e-3)), machine.trial(2, Program(0.8e-3))
    for trial in (near, fast):
        timing.screen(trial)
    machine.programs[2].good_samples = 3
    timing.settle()
    assert fast.outcome is not None and fast.outcome.status == "crash"
    assert timing.leader is near


def test_one_that_may_be_the_best_waits_for_its_turns() -> None:
    machine = Machine(noise=0.02)
    timing, leader = with_leader(machine)
    trial = machine.trial(1, Program(1e-3))
    assert timing.is_untimed(trial)
    timing.screen(trial)
    assert trial.outcome is None
    assert not timing.is_untimed(trial)
    machine.asked.clear()
    told: list[tuple[str, str, Comparison, bool]] = []
    timing.settle(lambda *item: told.append(item))
    assert trial.outcome is not None
    assert [item[:2] for item in told] == [(leader.digest, trial.digest)]
    rounds = told[0][2].rounds
    assert PROTOCOL.min_rounds <= rounds <= PROTOCOL.max_rounds
    assert len(trial.outcome.samples) == 2 * PROTOCOL.min_samples - 1 + rounds


def test_turns_in_which_the_best_one_is_lost_are_taken_again_where_it_can_be_had() -> None:
    """A single turn tells that a program is faster, and not by how much."""
    machine = Machine()
    timing, leader = with_leader(machine)
    trial = machine.trial(1, Program(0.5e-3, worker=1))
    timing.screen(trial)
    machine.programs[0].good_samples = PROTOCOL.samples_per_turn
    machine.programs[0].then = "lost"
    timing.settle(repeats_lost=True)
    assert not timing.leads(leader.digest) and trial.outcome is None and timing.is_untimed(trial)


def test_everybody_has_its_turn_in_random_order_and_at_changing_places() -> None:
    machine = Machine()
    timing, _ = with_leader(machine)
    for number in (1, 2):
        timing.screen(machine.trial(number, Program(1e-3)))
    machine.asked.clear()
    timing.settle()
    turns = [machine.asked[at : at + 3] for at in range(0, 3 * PROTOCOL.min_rounds, 3)]
    for placement, turn in enumerate(turns):
        assert sorted(turn) == [("sample", number, placement) for number in range(3)]
    assert len({tuple(number for _, number, _ in turn) for turn in turns}) > 1


def test_so_many_take_turns_and_no_more() -> None:
    machine = Machine(noise=0.02)
    timing, _ = with_leader(machine)
    trials = [machine.trial(number, Program(1e-3)) for number in range(1, 10)]
    for trial in trials:
        timing.screen(trial)
    waiting = sum(trial.outcome is None for trial in trials)
    assert waiting > PROTOCOL.most_contenders
    machine.asked.clear()
    timing.settle()
    turns = [list(turn) for _, turn in groupby(machine.asked, lambda asked: asked[2])]
    assert max(map(len, turns)) == 1 + PROTOCOL.most_contenders
    assert all(trial.outcome is not None for trial in trials)


def test_the_faster_program_leads_after_its_turns() -> None:
    machine = Machine(noise=0.01)
    timing, leader = with_leader(machine, 1.05e-3)
    trial = machine.trial(1, Program(1e-3))
    timing.screen(trial)
    told: list[tuple[str, str, Comparison, bool]] = []
    timing.settle(lambda *item: told.append(item))
    if timing.leader is leader:
        pytest.fail("the slower program still leads")
    assert trial.outcome is not None
    assert trial.outcome.latency == timing.latency
    assert trial.outcome.latency == pytest.approx(1e-3, rel=0.02)


def measure_all(machine: Machine, seconds: Sequence[float]) -> list[Trial]:
    """Programs of these speeds, screened in batches of 8 like those of a run."""
    timing = session(machine)
    trials = [machine.trial(number, Program(value)) for number, value in enumerate(seconds)]
    for begin in range(0, len(trials), 8):
        for trial in trials[begin : begin + 8]:
            timing.screen(trial)
            machine.now += 0.05  # something else is done meanwhile
        timing.settle()
    return trials


@pytest.mark.parametrize("seed", range(5))
def test_latencies_compare_although_the_machine_drifts_and_raw_times_do_not(seed: int) -> None:
    # Slower ones may seem too slow to be timed beside the best one.
    seconds = list(np.random.default_rng(seed).uniform(1e-3, 1.2e-3, 40))
    machine = Machine(drifting(seed), noise=0.01, seed=seed)
    outcomes = [trial.outcome for trial in measure_all(machine, seconds)]
    assert all(outcome is not None and outcome.ok for outcome in outcomes)
    scale = min(outcome.latency or 0.0 for outcome in outcomes if outcome) / min(seconds)
    errors, raw = [], []
    for outcome, true in zip(outcomes, seconds, strict=True):
        assert outcome is not None
        assert outcome.latency == pytest.approx(
            statistics.median(outcome.samples) / outcome.drift, rel=1e-6
        )
        errors.append(abs((outcome.latency or 0.0) / scale / true - 1))
        raw.append(abs(statistics.median(outcome.samples) / scale / true - 1))
    # The stretches are as long as a few candidates: what begins in between escapes.
    assert sum(error > 0.1 for error in errors) <= 4
    assert sum(error > 0.1 for error in raw) >= 5
    assert statistics.fmean(raw) > 2 * statistics.fmean(errors)


def test_latencies_recover_from_a_first_program_that_was_held_up() -> None:
    """The scale of a task is set by its first program, which others kept from its processors."""
    seconds = list(np.random.default_rng(0).uniform(1e-3, 1.5e-3, 40))
    machine = Machine(lambda now: 500.0 if now < 3 else 1.0, noise=0.01)
    first, *others = [trial.outcome for trial in measure_all(machine, seconds)]
    assert first is not None and first.latency is not None and first.latency > 0.1
    latencies = [outcome.latency or 1.0 for outcome in others if outcome is not None]
    assert min(seconds) <= min(latencies) <= 2 * 1.03 * min(seconds)
    # The first winner is known by its turns, those after it beside it.
    assert sum(latency < 4e-3 for latency in latencies) > 30


@pytest.mark.parametrize("seed", range(8))
def test_the_winner_is_among_the_fastest_although_the_machine_drifts(seed: int) -> None:
    seconds = list(np.random.default_rng(100 + seed).uniform(1e-3, 1.5e-3, 40))
    machine = Machine(drifting(seed), noise=0.01, seed=seed)
    trials = measure_all(machine, seconds)
    best = min(trials, key=lambda trial: trial.outcome.latency if trial.outcome else 1.0)
    assert seconds[best.number] <= 1.03 * min(seconds)


def test_a_lost_leader_costs_a_candidate_nothing() -> None:
    machine = Machine()
    timing, leader = with_leader(machine)
    machine.kill(0)
    lost = timing.lost_leader
    assert lost == Leader(toy_candidate(0), timing.latency)
    assert not timing.leads(leader.digest)
    trial = machine.trial(1, Program(1e-3, worker=1))
    timing.screen(trial)
    assert trial.outcome is not None
    assert trial.outcome.latency == pytest.approx(1e-3)
    assert leader.outcome is not None
    assert leader.outcome.ok


@pytest.mark.parametrize("then", ["lost", "died", "crash"])
@pytest.mark.parametrize("turn", [0, 4])
def test_a_leader_that_ends_during_turns(then: str, turn: int) -> None:
    machine = Machine()
    timing, leader = with_leader(machine)
    trials = [machine.trial(number, Program(0.99e-3, worker=1)) for number in (1, 2)]
    for trial in trials:
        timing.screen(trial)
    program = machine.programs[0]
    program.good_samples, program.then = turn, then
    timing.settle()
    assert [trial.outcome.status for trial in trials if trial.outcome] == ["ok", "ok"]
    for trial in trials:
        assert trial.latency == pytest.approx(1e-3, rel=0.05)
    assert leader.losses == (then == "lost")


@pytest.mark.parametrize("then", ["died", "crash"])
def test_a_contender_that_fails_during_turns(then: str) -> None:
    machine = Machine(noise=0.02)
    timing, leader = with_leader(machine)
    bad = machine.trial(1, Program(0.98e-3, worker=1, good_samples=3, then=then))
    good = machine.trial(2, Program(1e-3, worker=2))
    for trial in (bad, good):
        timing.screen(trial)
    timing.settle()
    assert bad.outcome is not None
    assert bad.outcome.status == "crash"
    assert good.outcome is not None
    assert good.outcome.ok
    assert timing.leader in (leader, good)


def test_a_contender_whose_worker_is_killed_keeps_what_it_has() -> None:
    machine = Machine(noise=0.02)
    timing, _ = with_leader(machine)
    trial = machine.trial(1, Program(1e-3, worker=1, good_samples=3, then="lost"))
    timing.screen(trial)
    timing.settle()
    assert trial.outcome is not None
    assert trial.outcome.ok
    assert trial.outcome.latency == pytest.approx(1e-3, rel=0.05)


def test_checking_beside_the_best_has_a_deadline_that_follows_from_it() -> None:
    machine = Machine()
    timing, _ = with_leader(machine)
    timing.screen(machine.trial(1, Program(5e-3)))
    assert machine.deadlines[0]["verify"] == PROTOCOL.hopeless_seconds
    assert machine.deadlines[0]["run"] == PROTOCOL.deadlines["run"]
    for latency, verify in [(0.1, 10.0), (0.5, 20.0)]:
        timing.lead(timing.leader, latency)
        timing.screen(machine.trial(2, Program(5.0)))
        assert machine.deadlines[-1]["verify"] == pytest.approx(verify)


def test_the_untuned_program_has_the_deadlines_of_candidates() -> None:
    machine = Machine()
    session(machine).screen(machine.trial(0, Program(1e-3), baseline=True))
    assert machine.deadlines[0]["verify"] == PROTOCOL.deadlines["verify"]


def test_an_installed_leader_keeps_its_latency() -> None:
    machine = Machine(lambda _now: 1.5)
    timing, leader = session(machine), machine.trial(0, Program(1e-3))
    timing.install(leader, 1e-3)
    assert timing.latency == 1e-3
    trial = machine.trial(1, Program(2e-3))
    timing.screen(trial)
    assert trial.outcome is not None
    assert trial.outcome.latency == pytest.approx(2e-3)
    assert trial.outcome.drift == pytest.approx(1.5)
    # Candidates with the same program take this.
    assert leader.outcome is not None
    assert leader.outcome.latency == pytest.approx(1e-3)


@pytest.mark.parametrize("claim", [1e-9, 1e-3, 10.0])
def test_what_another_session_claims_of_the_leader_scales_nothing(claim: float) -> None:
    machine = Machine(lambda _now: 1.5)
    timing, leader = session(machine), machine.trial(0, Program(1e-3))
    assert Leader(toy_candidate(0), None).latency is None  # the claim stays with the host
    timing.install(leader, None)
    assert timing.leader is leader
    assert timing.latency == pytest.approx(1.5e-3) != pytest.approx(claim)
    trial = machine.trial(1, Program(1.2e-3))
    timing.screen(trial)
    timing.settle()
    assert trial.outcome is not None and trial.outcome.ok
    assert trial.outcome.latency == pytest.approx(1.8e-3)
    assert trial.outcome.drift == pytest.approx(1.0)
    assert trial.outcome.reference == pytest.approx(1.5e-3)


@pytest.mark.parametrize(("seconds", "leads"), [(0.9e-3, True), (1.1e-3, False), (9e-3, False)])
def test_one_of_another_session_leads_if_it_is_faster_in_this_one(
    seconds: float, leads: bool
) -> None:
    machine = Machine()
    timing, leader = with_leader(machine)
    claimed = machine.trial(1, Program(seconds))
    timing.install(claimed, None)
    assert (timing.leader is claimed) == leads
    assert (timing.leader is leader) != leads
    assert claimed.outcome is not None
    assert claimed.outcome.latency == pytest.approx(seconds, rel=1e-3)


def test_every_outcome_but_the_first_has_what_the_best_one_took_beside_it() -> None:
    machine = Machine(lambda now: 1.0 if now < 1 else 1.5)
    timing, leader = with_leader(machine)
    assert leader.outcome is not None and leader.outcome.reference is None
    machine.now = 1.0
    near, far = machine.trial(1, Program(1.2e-3)), machine.trial(2, Program(9e-3))
    for trial in (near, far):
        timing.screen(trial)
        assert trial.outcome is not None
        assert trial.outcome.reference == pytest.approx(1.5e-3)
        assert trial.outcome.drift == pytest.approx(1.5)


def test_a_leader_that_fails_its_check_is_no_measure() -> None:
    machine = Machine()
    timing = session(machine)
    timing.install(machine.trial(0, Program(1e-3, bad_check="wrong_result")), 1e-3)
    assert timing.leader is None
    trial = machine.trial(1, Program(2e-3))
    timing.screen(trial)
    assert timing.leader is trial


class CutOffMachine(Machine):
    """A machine on which every check is late."""

    def ask(self, job: Job) -> Reply:
        place = super().ask(job).place
        self.kill(int(place[0]))
        return Reply("timeout", place, "verify", job.deadlines["verify"])


@pytest.mark.parametrize(("best", "cut_off"), [(1e-3, 0.2), (0.5, 1.5)])
def test_a_baseline_is_cut_off_once_it_cannot_win(best: float, cut_off: float) -> None:
    machine = CutOffMachine()
    trial = machine.trial(0, Program(10.0), baseline=True)
    session(machine).screen_baseline(trial, best, io_bytes=10_000_000)
    assert machine.deadlines[0]["verify"] == pytest.approx(cut_off + 0.1 + 0.1)
    outcome = trial.outcome
    assert outcome is not None and outcome.status == "timeout" and outcome.exceeds == cut_off
    assert Outcome.from_json(outcome.to_json()) == outcome


def test_a_baseline_that_is_late_by_the_protocol_claims_nothing() -> None:
    machine = CutOffMachine()
    trial = machine.trial(0, Program(10.0), baseline=True)
    session(machine).screen_baseline(trial, 100.0, io_bytes=0)
    assert machine.deadlines[0]["verify"] == PROTOCOL.deadlines["verify"]
    assert trial.outcome is not None and trial.outcome.exceeds is None


def test_a_baseline_that_may_win_is_timed() -> None:
    machine = Machine()
    trial = machine.trial(0, Program(1e-3), baseline=True)
    session(machine).screen_baseline(trial, 2e-3, io_bytes=0)
    assert trial.outcome is not None and trial.outcome.latency == pytest.approx(1e-3)
    assert len(trial.outcome.samples) == PROTOCOL.min_samples


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
