from __future__ import annotations

import numpy as np
import pytest
from autotune_felix.simplex import project, round_remainders, tangent, uniform_shares
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Box = tuple[Reals, Reals, Reals]


@st.composite
def boxes(draw: st.DrawFn, rows: int = 8) -> Box:
    """Low, high and mass of sets that are not empty, one a row."""
    levels = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    low = rng.integers(0, 3, size=(rows, levels))
    high = low + rng.integers(0, 6, size=(rows, levels))
    mass = rng.integers(low.sum(axis=1), high.sum(axis=1) + 1)
    return low.astype(float), high.astype(float), mass.astype(float)


def bisected(points: Reals, low: Reals, high: Reals, mass: Reals) -> Reals:
    """The projection by bisection of what is subtracted from all levels."""
    least, most = (points - high).min(axis=-1), (points - low).max(axis=-1)
    for _ in range(100):
        middle = (least + most) / 2
        enough = np.clip(points - middle[:, None], low, high).sum(axis=-1) >= mass
        least, most = np.where(enough, middle, least), np.where(enough, most, middle)
    return np.clip(points - least[:, None], low, high)


@given(boxes(), st.integers(0, 2**32), st.sampled_from([0.5, 5.0, 100.0]))
def test_a_projection_is_the_nearest_point(box: Box, seed: int, spread: float) -> None:
    low, high, mass = box
    points = np.random.default_rng(seed).normal(2.0, spread, size=low.shape)
    found = project(points, low, high, mass)
    assert (found >= low).all() and (found <= high).all()
    assert np.allclose(found.sum(axis=1), mass, atol=1e-9 * max(1.0, spread))
    assert np.allclose(found, bisected(points, low, high, mass), atol=1e-9 * max(1.0, spread))
    assert np.allclose(project(found, low, high, mass), found, atol=1e-9)


@given(boxes(), st.integers(0, 2**32))
def test_a_projection_brings_no_points_apart(box: Box, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = rng.normal(2.0, 4.0, size=(2, *box[0].shape))
    apart = np.linalg.norm(one - other, axis=1)
    assert (
        np.linalg.norm(project(one, *box) - project(other, *box), axis=1) <= apart + 1e-9
    ).all()


@given(boxes(), st.integers(0, 2**32))
def test_rounding_keeps_sums_and_bounds_and_moves_less_than_one(box: Box, seed: int) -> None:
    low, high, mass = box
    points = project(np.random.default_rng(seed).normal(2.0, 4.0, low.shape), *box)
    found = round_remainders(points, mass.astype(np.int64))
    assert (found.sum(axis=1) == mass).all()
    assert (found >= low).all() and (found <= high).all()
    assert (np.abs(found - points) < 1).all()
    # Drawn remainders keep all of that, and leave whole numbers alone too.
    drawn = round_remainders(points, mass.astype(np.int64), np.random.default_rng(seed))
    assert (drawn.sum(axis=1) == mass).all() and (drawn >= low).all() and (drawn <= high).all()
    assert (np.abs(drawn - points) < 1).all()
    again = project(found.astype(float), *box)
    assert (round_remainders(again, mass.astype(np.int64)) == found).all()


@given(st.integers(1, 9), st.integers(2, 5), st.integers(0, 2**32))
def test_rounding_does_not_depend_on_the_order_of_levels(m: int, levels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mass = np.full(16, float(m))
    points = uniform_shares(mass, levels, rng)
    order = rng.permutation(levels)
    found = round_remainders(points, mass.astype(np.int64))
    assert (round_remainders(points[:, order], mass.astype(np.int64)) == found[:, order]).all()


def test_a_projected_whole_number_is_not_rounded_down() -> None:
    # What made the tolerance necessary: 3 comes out of a projection as 2.9999999999999996.
    points = np.array([[3.0 - 4e-16, 0.5 + 2e-16, 0.5 + 2e-16]])
    assert round_remainders(points, np.array([4])).tolist() == [[3, 1, 0]]


@given(boxes(), st.integers(0, 2**32))
def test_a_tangent_sums_to_nothing_and_keeps_differences(box: Box, seed: int) -> None:
    low, high, _ = box
    gradient = np.random.default_rng(seed).normal(size=low.shape)
    found = tangent(gradient, low, high)
    free = high > low
    assert np.allclose(found.sum(axis=1), 0.0)
    assert (found[~free] == 0).all()
    # What all levels have in common does not count.
    assert np.allclose(tangent(gradient + 7.0, low, high), found)
    for row, kept, is_free in zip(found, gradient, free, strict=True):
        assert np.allclose(np.diff(row[is_free]), np.diff(kept[is_free]))


@given(st.integers(0, 12), st.integers(1, 5), st.integers(0, 2**32))
def test_shares_are_on_the_simplex(mass: int, levels: int, seed: int) -> None:
    shares = uniform_shares(np.full(50, float(mass)), levels, np.random.default_rng(seed))
    assert (shares >= 0).all() and np.allclose(shares.sum(axis=1), mass)


def test_drawn_remainders_go_by_size() -> None:
    points = np.tile([1.7, 0.2, 2.1], (20_000, 1))
    found = round_remainders(points, np.full(20_000, 4), np.random.default_rng(0))
    assert np.allclose(found.mean(axis=0), points[0], atol=0.02)


@pytest.mark.parametrize(
    ("levels", "mass", "least", "most"),
    [(4, 6, 0.10, 0.16), (4, 3, 0.07, 0.12), (4, 1, 0, 0), (2, 5, 0, 0)],
)
def test_rounding_each_level_by_itself_breaks_the_product(
    levels: int, mass: int, least: float, most: float
) -> None:
    """The negative control: why exponents are rounded together.

    As in Felix, all levels but the outermost are rounded, which may leave it less than nothing.
    Here they are on the face where nothing is left for it.
    """
    rng = np.random.default_rng(0)
    points = uniform_shares(np.full(20_000, float(mass)), levels, rng)
    broken = (np.rint(points).sum(axis=1) > mass).mean()
    assert least <= broken <= most
    assert (round_remainders(points, np.full(20_000, mass)).sum(axis=1) == mass).all()
