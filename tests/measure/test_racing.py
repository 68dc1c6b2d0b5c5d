"""Laws of comparing programs that are timed in turns."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_workers import drifting

from autotune.measure.racing import Race, clearly_slower, compare, credible, drift_of, rounded

SECONDS = st.floats(1e-6, 1.0)
ROUNDS = st.lists(st.tuples(SECONDS, SECONDS, st.floats(0.1, 10.0)), min_size=1, max_size=25)


@given(ROUNDS)
def test_a_comparison_is_antisymmetric(rounds: list[tuple[float, float, float]]) -> None:
    ours, theirs, _ = zip(*rounds, strict=True)
    one, other = compare(ours, theirs), compare(theirs, ours)
    assert one.rounds == other.rounds == len(rounds)
    if len(rounds) > 1:
        assert one.low * other.high == pytest.approx(1)
        assert one.high * other.low == pytest.approx(1)
    assert (one.faster, one.slower) == (other.slower, other.faster)
    if len(rounds) % 2:
        assert one.ratio * other.ratio == pytest.approx(1)
    assert one.low <= one.ratio * (1 + 1e-9)
    assert one.ratio <= one.high * (1 + 1e-9)


@given(ROUNDS)
def test_what_slows_both_alike_changes_no_comparison(
    rounds: list[tuple[float, float, float]],
) -> None:
    ours, theirs, slowdowns = zip(*rounds, strict=True)
    plain = compare(ours, theirs)
    slowed = compare(
        [a * by for a, by in zip(ours, slowdowns, strict=True)],
        [b * by for b, by in zip(theirs, slowdowns, strict=True)],
    )
    assert slowed.ratio == pytest.approx(plain.ratio)
    assert slowed.low == pytest.approx(plain.low)
    assert slowed.high == pytest.approx(plain.high)


def test_one_round_tells_nothing() -> None:
    one = compare([1.0], [5.0])
    assert (one.ratio, one.low, one.high) == (5.0, 0.0, math.inf)
    assert not one.faster
    assert not one.slower


def test_rounds_that_only_one_took_part_in_are_left_out() -> None:
    assert compare([1.0, 1.0, 9.0], [2.0, 2.0]) == compare([1.0, 1.0], [2.0, 2.0])


@pytest.mark.parametrize("rounds", [2, 3, 5, 6, 12, 20])
def test_of_equals_none_is_said_to_be_faster(rounds: int) -> None:
    rng, claims, repeats = np.random.default_rng(rounds), 0, 2000
    for _ in range(repeats):
        slowdown = np.where(rng.random(rounds) < 0.3, 1.6, 1.0)
        one, other = slowdown * np.exp(rng.normal(0, 0.02, (2, rounds)))
        comparison = compare(one, other)
        claims += comparison.faster or comparison.slower
    # 5 % at most, plus three standard deviations of counting.
    assert claims / repeats <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repeats)


@pytest.mark.parametrize("rounds", [6, 12, 20])
def test_a_difference_beyond_the_noise_is_found(rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    found = 0
    for _ in range(200):
        one, other = np.exp(rng.normal(0, 0.01, (2, rounds)))
        found += compare(one, 1.05 * other).faster
    assert found >= 190


PAIRS = st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=9)


@given(PAIRS, st.integers(0, 8), st.floats(1, 10))
def test_clearly_slower_is_what_every_pair_says(
    pairs: list[tuple[float, float]], spoilt: int, factor: float
) -> None:
    ours, best = zip(*pairs, strict=True)
    assert not (clearly_slower(ours, best) and clearly_slower(best, ours))
    assert not clearly_slower(ours, ours)
    assert clearly_slower([1.2 * it for it in best], best)
    # A machine that is slow during one of several pairs does not decide.
    others = (
        [*best[:spoilt], best[spoilt] * factor, *best[spoilt + 1 :]]
        if spoilt < len(best)
        else best
    )
    if len(best) > 1:
        assert not clearly_slower(others, best)


@given(st.lists(SECONDS, min_size=1, max_size=9), st.floats(0.1, 10), SECONDS)
def test_drift_is_a_factor(samples: list[float], factor: float, latency: float) -> None:
    drift = drift_of(samples, latency)
    assert drift_of([it * factor for it in samples], latency) == pytest.approx(drift * factor)
    assert drift_of(samples, latency * factor) == pytest.approx(drift / factor)


@given(st.lists(SECONDS, min_size=1, max_size=9), SECONDS)
def test_no_latency_is_far_above_what_a_program_took(samples: list[float], latency: float) -> None:
    believed = credible(latency, samples)
    assert believed <= latency
    assert believed <= 2 * statistics.median(samples)
    assert believed in (latency, 2 * statistics.median(samples))


@given(SECONDS, st.floats(1.0, 1.6))
def test_equal_times_give_equal_latencies(seconds: float, drift: float) -> None:
    assert rounded(seconds * drift / drift) == rounded(seconds) == rounded(rounded(seconds))
    assert rounded(seconds) == pytest.approx(seconds, rel=1e-8)


def run(race: Race, seconds: list[float], seed: int, noise: float = 0.01) -> None:
    """Race programs of these speeds on a machine that drifts."""
    rng, slowdown, now = np.random.default_rng(seed), drifting(seed, seconds=0.05), [0.0]

    for number, placement in race.turns(rng):
        assert placement == race.rounds
        now.append(seconds[number] * slowdown(sum(now)) * math.exp(rng.normal(0, noise)))
        race.note(number, now[-1])


@pytest.mark.parametrize("fastest", range(4))
def test_a_race_finds_the_fastest_while_the_machine_drifts(fastest: int) -> None:
    right = 0
    for seed in range(50):
        seconds = [1.05e-3, 1.06e-3, 1.08e-3, 1.10e-3]
        seconds[fastest] = 1e-3
        race = Race(4, 6, 20, 0.01)
        run(race, seconds, seed)
        right += race.fastest == fastest
        assert 0 in race.running
        assert fastest in race.running or race.fastest != fastest
        assert race.rounds <= 20
    assert right >= 48


def test_losers_drop_out_and_number_0_never_does() -> None:
    race = Race(4, 6, 20, 1e-6)
    run(race, [3e-3, 1e-3, 2e-3, 2e-3], seed=1)
    assert set(race.running) == {0, 1}
    assert len(race.times[2]) == len(race.times[3]) == 6
    assert race.ratio(1) == pytest.approx(1 / 3, rel=0.1)
    assert race.against(0, 1).slower


def test_nobody_drops_out_too_early() -> None:
    race = Race(2, 6, 20, 0.01)
    for _ in range(5):
        race.note(0, 1.0)
        race.note(1, 9.0)
        race.drop_losers()
        assert race.running == [0, 1]
        assert not race.over
    race.note(0, 1.0)
    race.note(1, 9.0)
    race.drop_losers()
    assert race.running == [0]
    assert race.over


@pytest.mark.parametrize("needs_first", [True, False])
def test_what_fails_leaves_a_race(needs_first: bool) -> None:
    race = Race(3, 2, 4, 0.01)
    asked: list[int] = []

    turns = race.turns(
        np.random.default_rng(0), is_over=lambda race: race.rounds >= 3, needs_first=needs_first
    )
    for number, placement in turns:
        asked.append(number)
        race.note(number, None if placement == 1 and number == 0 else 1.0)
    assert race.running == [1, 2] and race.times[0] == [1.0]
    if needs_first:
        assert asked[-1] == 0 and len(asked) <= 6
    else:
        assert race.times[1] == race.times[2] == [1.0] * 3


def test_a_race_of_equals_ends_when_that_is_known_well_enough() -> None:
    race = Race(3, 6, 20, 0.01)
    for rounds in range(6):
        assert race.rounds == rounds
        assert not race.over
        for number in range(3):
            race.note(number, 1.0)
    assert race.over


def test_a_race_that_decides_nothing_ends() -> None:
    race = Race(2, 6, 20, 1e-9)
    rng = np.random.default_rng(0)
    while not race.over:
        race.note(0, float(rng.uniform(1, 2)))
        race.note(1, float(rng.uniform(1, 2)))
    assert race.rounds == 20


def test_who_withdraws_is_out() -> None:
    race = Race(3, 2, 20, 0.01)
    for _ in range(2):
        for number, seconds in enumerate([2.0, 1.0, 3.0]):
            race.note(number, seconds)
    race.note(1, None)
    race.note(1, None)
    assert race.running == [0, 2]
    assert race.fastest == 0
    race.drop_losers()
    assert race.running == [0]
