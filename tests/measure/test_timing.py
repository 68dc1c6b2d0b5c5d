from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.measure import MeasureProtocol
from autotune.measure.timing import (
    LONG_SECONDS,
    FirstCall,
    median_interval,
    ratio_interval,
    time_call,
)


class FakeCall:
    """Takes as long as ``seconds`` says for the n-th sample; remembers what was asked."""

    def __init__(self, seconds: Callable[[int], float], overhead: float = 0.0) -> None:
        self.seconds = seconds
        self.overhead = overhead
        self.numbers: list[int] = []

    def time(self, number: int) -> float:
        self.numbers.append(number)
        return self.seconds(len(self.numbers) - 1) + self.overhead / number

    @property
    def calls(self) -> int:
        return sum(self.numbers)


def test_a_steady_call_needs_as_few_samples_as_tell_its_precision() -> None:
    call = FakeCall(lambda _: 2e-3)
    assert time_call(call, MeasureProtocol()) == (2e-3,) * 6
    assert call.numbers == [1] * 7


def test_samples_of_a_short_call_last_a_millisecond() -> None:
    call = FakeCall(lambda _: 1e-6, overhead=50e-6)
    samples = time_call(call, MeasureProtocol())
    assert 0.5e-3 <= call.numbers[-1] * samples[-1] <= 2.1e-3
    assert statistics.median(samples) == pytest.approx(1e-6, rel=0.1)
    assert call.calls < 20_000


def test_a_call_of_no_time_at_all_ends() -> None:
    call = FakeCall(lambda _: 0.0)
    assert len(time_call(call, MeasureProtocol())) >= 3


@pytest.mark.parametrize(("seconds", "count"), [(0.2, 3), (0.6, 2), (5.0, 1)])
def test_a_slow_call_gets_few_samples(seconds: float, count: int) -> None:
    call = FakeCall(lambda _: seconds)
    assert time_call(call, MeasureProtocol()) == (seconds,) * count
    assert call.calls == count


def test_a_very_slow_call_is_not_repeated_after_it_was_checked() -> None:
    call = FakeCall(lambda _: 1.5)
    assert time_call(call, MeasureProtocol(), first=FirstCall(1.4)) == (1.4,)
    assert call.numbers == []
    assert time_call(call, MeasureProtocol(), first=FirstCall(0.9)) == (1.5,)


@pytest.mark.parametrize(
    ("incumbent", "first", "count"),
    [
        # It has lost, or it may not have: one sample tells.
        (0.04, None, 1),
        (0.1, None, 1),
        # Slower by more than ``drop_factor`` is what two calls have to say.
        (0.08, None, 2),
        (0.08, FirstCall(0.2), 1),
        (0.08, FirstCall(0.9), 3),
    ],
)
def test_a_long_call_is_repeated_until_it_is_known_whether_it_has_lost(
    incumbent: float, first: FirstCall | None, count: int
) -> None:
    call = FakeCall(lambda _: 0.2)
    assert time_call(call, MeasureProtocol(), incumbent, first) == (0.2,) * count
    assert call.numbers == [1] * count


@pytest.mark.parametrize(
    ("first", "is_enough"),
    [
        (FirstCall(0.5, 0.45), True),
        # What the system did for its first call, it does not do again.
        (FirstCall(0.5, 0.1), False),
        (FirstCall(0.5), False),
        # Beside the length of its call, little is known of a short one.
        (FirstCall(0.09, 0.09), False),
    ],
)
def test_a_program_that_lost_in_its_check_is_not_called_again(
    first: FirstCall, is_enough: bool
) -> None:
    call = FakeCall(lambda _: 0.1)
    samples = time_call(call, MeasureProtocol(), 0.01 if first.seconds < 0.1 else 0.1, first)
    assert (call.calls == 0) == is_enough
    assert samples == ((first.seconds,) if is_enough else (0.1,))


def test_a_long_call_that_was_checked_is_warm() -> None:
    call = FakeCall(lambda _: 2 * LONG_SECONDS)
    assert time_call(call, MeasureProtocol(), 1.0, FirstCall(0.1)) == (2 * LONG_SECONDS,)
    assert call.calls == 1
    call = FakeCall(lambda _: 2 * LONG_SECONDS)
    assert len(time_call(call, MeasureProtocol(), 1.0)) == MeasureProtocol().min_samples
    assert call.calls == 1 + MeasureProtocol().min_samples


@given(
    st.lists(st.floats(LONG_SECONDS, 0.3), min_size=3, max_size=3),
    st.floats(0.01, 0.3),
    st.floats(1.0, 10.0),
)
def test_what_is_given_up_was_slower_by_far_in_all_calls(
    seconds: list[float], incumbent: float, first: float
) -> None:
    protocol, call = MeasureProtocol(), FakeCall(lambda number: seconds[number])
    samples = time_call(call, protocol, incumbent, FirstCall(first * 0.05))
    assert samples == tuple(seconds[: len(samples)])
    slowest = protocol.drop_factor * incumbent
    # All before the last were beyond it, and the last one too if it is given up.
    assert all(it > slowest for it in samples[:-1])
    if samples[-1] > slowest and len(samples) < protocol.min_samples:
        ratios = [slowest / it for it in (first * 0.05, *samples)]
        assert samples[-1] > 2 * slowest or ratio_interval(ratios)[1] < 1


def test_noise_seldom_makes_a_long_call_seem_to_have_lost() -> None:
    rng, lost, repeats = np.random.default_rng(0), 0, 1000
    for _ in range(repeats):
        call = FakeCall(lambda _: float(0.19 * np.exp(rng.normal(0, 0.05))))
        first = FirstCall(float(0.19 * np.exp(rng.normal(0, 0.05))))
        lost += min(time_call(call, MeasureProtocol(), 0.1, first)) > 0.2
    assert lost / repeats <= 0.025


def test_noise_is_sampled_until_the_budget_is_spent() -> None:
    rng = np.random.default_rng(0)
    call = FakeCall(lambda _: float(4e-3 * rng.lognormal(0, 0.5)))
    samples = time_call(call, MeasureProtocol())
    assert 3 < len(samples) < 50
    assert 0.1 <= sum(samples) < 0.15


def test_noise_is_sampled_no_longer_than_the_limit() -> None:
    rng = np.random.default_rng(0)
    call = FakeCall(lambda _: float(1e-3 * rng.lognormal(0, 0.3)))
    assert len(time_call(call, MeasureProtocol(budget_seconds=10.0))) == 50


def test_a_little_noise_is_averaged_out() -> None:
    rng = np.random.default_rng(0)
    call = FakeCall(lambda _: float(1e-3 * rng.lognormal(0, 0.03)))
    samples = time_call(call, MeasureProtocol())
    assert 6 < len(samples) < 50
    assert statistics.median(samples) == pytest.approx(1e-3, rel=0.02)


def test_beside_an_incumbent_a_call_gets_few_samples_and_a_hopeless_one_gets_one() -> None:
    rng = np.random.default_rng(0)

    def seconds(_: int) -> float:
        return float(2e-3 * (1 + rng.random()))

    assert len(time_call(FakeCall(seconds), MeasureProtocol(), incumbent=1e-4)) == 1
    assert len(time_call(FakeCall(seconds), MeasureProtocol(), incumbent=3e-3)) == 3
    assert len(time_call(FakeCall(seconds), MeasureProtocol())) > 3


@given(st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=60))
def test_the_interval_encloses_the_median(samples: list[float]) -> None:
    interval = median_interval(samples)
    assert (interval is None) == (len(samples) < 6)
    if interval is not None:
        low, high = interval
        assert low <= statistics.median(samples) <= high
        assert {low, high} <= set(samples)


def test_the_interval_has_the_coverage_that_it_claims() -> None:
    rng = np.random.default_rng(1)
    for count in (6, 10, 25):
        inside = 0
        for _ in range(2000):
            interval = median_interval(rng.exponential(size=count).tolist())
            assert interval is not None
            inside += interval[0] <= np.log(2) <= interval[1]
        assert 0.94 <= inside / 2000 <= 0.995
