from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sketches import made_sketches, sketch_of
from oracles.feasible import brute_force

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const, var
from autotune.sketches import AtMost, Factor, Ordinal, Param, ProductEquals, Sketch
from autotune.sketches.candidates import Matrix
from autotune.spaces.feasible import FeasibleSet, build_feasible_set

UNEVEN = sketch_of(
    [
        Ordinal("pa", (12, 16)),
        Factor("a0"),
        Factor("a1"),
        Factor("b0"),
        Factor("b1"),
        Ordinal("o", (1, 2, 9)),
    ],
    [
        ProductEquals(("a0", "a1"), var("pa")),
        ProductEquals(("b0", "b1"), const(12)),
        AtMost(var("a1") * var("b1") + var("o"), 20, "test"),
    ],
)
# More than 2**64 points, so that counts take 128 bits.
HUGE = sketch_of(
    [*UNEVEN.params, *(Ordinal(f"f{i}", tuple(range(1, 2000))) for i in range(7))],
    UNEVEN.constraints,
)
Draw = Callable[..., Matrix]


def draws(feasible: FeasibleSet) -> list[Draw]:
    return [feasible.uniform, feasible.stratified]


def chi_square_is_usual(
    counts: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]
) -> bool:
    """Tell whether Pearson's statistic lies within five standard deviations of its mean.

    Its mean is the number of degrees of freedom, its variance about twice that.
    """
    assert set(counts) <= set(expected)
    statistic = sum((counts[row] - mean) ** 2 / mean for row, mean in expected.items())
    freedom = len(expected) - 1
    return abs(statistic - freedom) < 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("seed", [0, 11, 2**64 - 1])
def test_uniform_samples_are_uniform(seed: int) -> None:
    feasible, expected = build_feasible_set(UNEVEN), brute_force(UNEVEN)
    assert feasible.count == len(expected) > 50
    each = 100
    sample = feasible.uniform(each * len(expected), seed)
    counts = Counter(map(tuple, sample.tolist()))
    assert chi_square_is_usual(counts, dict.fromkeys(expected, float(each)))


@given(made_sketches(), st.integers(0, 2**64 - 1))
def test_samples_of_any_sketch_are_uniform(sketch: Sketch, seed: int) -> None:
    feasible, expected = build_feasible_set(sketch), brute_force(sketch)
    if len(expected) < 2:
        return
    each = 30
    counts = Counter(map(tuple, feasible.uniform(each * len(expected), seed).tolist()))
    assert set(counts) <= expected
    statistic = sum((counts[row] - each) ** 2 / each for row in expected)
    freedom = len(expected) - 1
    # Many draws of small spaces: only what a wrong distribution would give is a failure.
    assert statistic < freedom + 10 * math.sqrt(2 * freedom) + 10


def test_stratified_samples_follow_their_distribution() -> None:
    """Parameter, then value, then configuration, each uniform: the exact weights of all rows."""
    feasible, expected = build_feasible_set(UNEVEN), sorted(brute_force(UNEVEN))
    weights = dict.fromkeys(expected, 0.0)
    for column in range(6):
        by_value = Counter(row[column] for row in expected)
        for row in expected:
            weights[row] += 1 / (6 * len(by_value) * by_value[row[column]])
    n = 100 * len(expected)
    counts = Counter(map(tuple, feasible.stratified(n, 5).tolist()))
    assert chi_square_is_usual(counts, {row: n * weight for row, weight in weights.items()})


def test_strata_of_huge_feasible_sets_are_uniform_inside() -> None:
    """Each column's distribution, where counts take 128 bits."""
    feasible = build_feasible_set(HUGE)
    assert feasible.count == build_feasible_set(UNEVEN).count * 1999**7 > 2**64
    for draw in draws(feasible):
        sample = draw(4000, 9)
        assert feasible.contains(sample).all()
        # The mean of 1 to 1999 is 1000 with sigma 577: five standard errors.
        assert (abs(sample[:, 6:].mean(axis=0) - 1000) < 46).all()


def test_uniform_samples_have_no_memory() -> None:
    feasible = build_feasible_set(UNEVEN)
    sample = feasible.uniform(4000, 5)
    repeated = (sample[1:] == sample[:-1]).all(axis=1).mean()
    assert repeated == pytest.approx(1 / feasible.count, abs=0.01)


def test_stratified_samples_find_rare_values() -> None:
    """A value behind few configurations is seen far more often than by uniform sampling."""
    params: list[Param] = [Ordinal("a", tuple(range(1, 101))), Ordinal("b", (1, 2))]
    sketch = sketch_of(params, [AtMost(var("a") + 99 * (var("b") - 1), 100, "test")])
    feasible = build_feasible_set(sketch)
    assert feasible.count == 101
    uniform, stratified = feasible.uniform(2400, 3), feasible.stratified(2400, 3)
    assert (uniform[:, 1] == 2).mean() < 0.03
    assert (stratified[:, 1] == 2).mean() > 0.2


@pytest.mark.parametrize("n", [0, 1, 5, 64, 65, 200])
def test_samples_have_the_size_asked_for(n: int) -> None:
    feasible = build_feasible_set(UNEVEN)
    for draw in draws(feasible):
        sample = draw(n, 0)
        assert sample.shape == (n, 6) and sample.dtype == np.int64
        assert feasible.contains(sample).all()


@pytest.mark.parametrize("sketch", [UNEVEN, HUGE], ids=["64 bits", "128 bits"])
def test_threads_and_chunks_do_not_change_the_points(sketch: Sketch) -> None:
    feasible = build_feasible_set(sketch)
    n, first = 1000, 2**40
    for draw in draws(feasible):
        whole = draw(n, 7, first)
        for threads in (2, 7):
            np.testing.assert_array_equal(draw(n, 7, first, threads), whole)
        for chunk in (1, 63, 64, 65, 333):
            parts = [draw(min(chunk, n - i), 7, first + i) for i in range(0, n, chunk)]
            np.testing.assert_array_equal(np.concatenate(parts), whole)
        assert not np.array_equal(draw(n, 8, first), whole)
        assert not np.array_equal(draw(n, 7, first + 1), whole)


def test_points_are_the_same_in_every_version() -> None:
    """A change of these rows is a change of what every recorded seed means."""
    feasible = build_feasible_set(UNEVEN)
    uniform = [[16, 8, 2, 3, 4, 9], [12, 12, 1, 1, 12, 2], [12, 4, 3, 6, 2, 2]]
    stratified = [[12, 4, 3, 4, 3, 2], [16, 16, 1, 4, 3, 1], [16, 8, 2, 4, 3, 1]]
    assert feasible.uniform(3, 42).tolist() == uniform
    assert feasible.stratified(3, 42).tolist() == stratified


@pytest.mark.parametrize("sketch", [UNEVEN, HUGE], ids=["64 bits", "128 bits"])
def test_listing_starts_anywhere(sketch: Sketch) -> None:
    feasible = build_feasible_set(sketch)
    start = feasible.listed(0, 50)
    for first in (0, 1, 17):
        np.testing.assert_array_equal(feasible.listed(first, 20), start[first : first + 20])
    end = feasible.listed(feasible.count - 50, 50)
    assert len(np.unique(np.concatenate([start, end]), axis=0)) == 100
    assert feasible.contains(end).all()


@pytest.mark.parametrize(("first", "n"), [(-1, 1), (0, -1), (60, 2**40), (2**70, 1)])
def test_listing_beyond_the_end_is_refused(first: int, n: int) -> None:
    with pytest.raises(InvalidValueError, match="rows .* of "):
        build_feasible_set(UNEVEN).listed(first, n)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 0), "-1 configurations"),
        ((1, -1), "a seed and the indices"),
        ((1, 2**64), "a seed and the indices"),
        ((2, 0, 2**64 - 1), "a seed and the indices"),
        ((1, 0, -5), "a seed and the indices"),
        ((1, 0, 0, 0), "on 0 threads"),
        ((1, 0, 0, 1025), "on 1025 threads"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: tuple[int, ...], message: str) -> None:
    for draw in draws(build_feasible_set(UNEVEN)):
        with pytest.raises(InvalidValueError, match=message):
            draw(*arguments)
