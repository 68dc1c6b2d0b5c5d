from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from autotune.errors import InvalidValueError
from autotune.search.priors import mean_ranks, ranked_seeds

INF, NAN = np.inf, np.nan
TIMES = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 30)),
    elements=st.one_of(st.floats(1e-6, 1e3), st.sampled_from([INF, NAN])),
)


def grid(n: int) -> np.ndarray:
    """``n`` configurations of two parameters that differ in one or both."""
    return np.array([[number % 4, number // 4] for number in range(n)], dtype=np.int64)


def test_devices_count_alike_and_failures_last() -> None:
    times = np.array([[1.0, 2.0, 3.0, INF], [400.0, 100.0, NAN, 200.0]])
    assert mean_ranks(times).tolist() == [(0 + 2 / 3) / 2, (1 / 4 + 0) / 2, 2 / 4, (1 + 1 / 3) / 2]


@given(TIMES, st.integers(-20, 20))
def test_units_do_not_matter(times: np.ndarray, power: int) -> None:
    ranks = mean_ranks(times)
    scaled = times.copy()
    scaled[0] *= 2.0**power
    np.testing.assert_array_equal(ranks, mean_ranks(scaled))
    measured = ~np.isnan(times).all(axis=0)
    assert (np.isnan(ranks) == ~measured).all()
    assert ((ranks[measured] >= 0) & (ranks[measured] <= 1)).all()


@given(TIMES, st.integers(0, 40), st.integers(0, 2))
def test_seeds_are_distinct_and_worked_somewhere(
    times: np.ndarray, most: int, spread: int
) -> None:
    seeds = ranked_seeds(grid(times.shape[1]), times, most, spread=spread)
    usable = np.isfinite(times).any(axis=0)
    assert len(set(seeds.tolist())) == len(seeds) == min(most, int(usable.sum()))
    assert usable[seeds].all()
    if len(seeds):
        assert mean_ranks(times)[seeds[0]] == np.nanmin(mean_ranks(times)[usable])


def test_the_first_seeds_differ_in_more_than_one_parameter() -> None:
    configurations = grid(16)
    times = np.arange(1.0, 17.0)[None]
    # The best and its kin are of one row: 0, 1, 2 and 3 differ in the first parameter only.
    assert ranked_seeds(configurations, times, 4).tolist() == [0, 5, 10, 15]
    assert ranked_seeds(configurations, times, 4, spread=0).tolist() == [0, 1, 2, 3]
    assert ranked_seeds(configurations, times, 6).tolist() == [0, 5, 10, 15, 1, 2]


def test_a_wrong_device_is_outvoted() -> None:
    """Two devices that agree decide, whatever a third one says."""
    rng = np.random.default_rng(0)
    true = rng.permutation(200) + 1.0
    times = np.stack([true, true * 1000, rng.permutation(200) + 1.0])
    assert true[ranked_seeds(rng.integers(9, size=(200, 5)), times, 5)].mean() < 20


@pytest.mark.parametrize(
    ("configurations", "times", "message"),
    [
        (grid(2), np.ones((1, 3)), "not \\[2, 2\\] and \\[1, 3\\]"),
        (grid(2), np.array([[1.0, 0.0]]), "positive, not 0.0"),
        (grid(2), np.array([[1.0, -INF]]), "positive, not -inf"),
        (grid(2)[0], np.ones((1, 2)), "configurations"),
    ],
)
def test_what_is_no_time_is_refused(
    configurations: np.ndarray, times: np.ndarray, message: str
) -> None:
    with pytest.raises(InvalidValueError, match=message):
        ranked_seeds(configurations, times, 1)
