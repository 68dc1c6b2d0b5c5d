from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from autotune_felix.descent import (
    LEAST_PUSH,
    RAMP,
    Adam,
    balanced,
    breaches,
    descend,
    force,
    independently_rounded,
    one_sided,
    outward,
)
from autotune_felix.options import FelixOptions, checked_options
from autotune_felix.penalties import Penalties, Repairer
from autotune_felix.relaxation import Relaxation
from autotune_felix.strategy import collect_candidates, starting_points
from bowls import Bowl, around
from felix_spaces import every_sketch, sketches
from hypothesis import given
from hypothesis import strategies as st

from autotune.sketches import Sketch
from autotune.spaces.feasible import FeasibleSet

OURS = FelixOptions()
PUBLISHED = checked_options("felix", {"fidelity": "published"})
SKETCHES = [pytest.param(sketch, feasible, id=name) for name, sketch, feasible in sketches()]
EVERY_SKETCH = pytest.mark.parametrize(("sketch", "feasible"), SKETCHES)
OPERATORS = pytest.mark.parametrize(
    ("sketch", "feasible"),
    [pytest.param(s, feasible, id=n) for n, s, feasible in every_sketch("gemm", "conv2d")],
)
LARGE = pytest.mark.parametrize(("sketch", "feasible"), SKETCHES[4:6])


@given(st.integers(0, 2**32), st.floats(0, 4))
def test_the_force_of_ours(seed: int, root: float) -> None:
    rng = np.random.default_rng(seed)
    cost, push = rng.normal(size=(2, 5, 4)) * 10.0 ** rng.uniform(-3, 3, size=(2, 5, 1))
    penalty = np.full(5, root**2)
    found = force(cost, push, penalty, OURS)
    assert (force(cost, np.zeros_like(push), np.zeros(5), OURS) == cost).all()
    if root >= RAMP:
        # What broke a limit by much comes back, whatever the cost says.
        assert ((found * push).sum(axis=1) > 0).all()
    # Rows do not see each other.
    assert np.allclose(found[2], force(cost[2:3], push[2:3], penalty[2:3], OURS)[0])


def test_the_force_is_continuous_at_the_boundary_and_never_without_a_way_back() -> None:
    cost, push = np.array([[3.0, 4.0]]), np.array([[0.0, 2.0]])
    for root in (1e-2, 1e-4, 1e-6):
        penalty = np.array([root**2])
        # A penalty's gradient goes with its root.
        found = force(cost, root * push, penalty, OURS)
        assert np.linalg.norm(found - cost) <= 5.0 * 5.0 * root / RAMP + 2 * root
    matched = force(cost, 1e-6 * push, np.array([1e-12]), FelixOptions(force="matched"))
    assert np.linalg.norm(matched - cost) == pytest.approx(25.0)
    alone = force(np.zeros((1, 2)), push, np.array([1.0]), OURS)
    assert (alone == LEAST_PUSH * push).all()
    fixed = force(cost, push, np.array([1.0]), FelixOptions(force="fixed", strength=7.0))
    assert fixed.tolist() == [[3.0, 18.0]]


def test_adam_begins_at_its_rate_and_falls_once() -> None:
    adam, rates, moved = Adam((1, 2), 0.5, 10), [], []
    for _ in range(10):
        rates.append(adam.rate)
        moved.append(adam.step(np.array([[1e-3, -50.0]])))
    assert rates == [0.5] * 3 + [0.1] * 7
    # Each coordinate is scaled by its own size.
    assert np.allclose(moved[0], [[0.5, -0.5]], rtol=1e-4)
    assert np.allclose(moved[-1], [[0.1, -0.1]], rtol=1e-4)
    assert Adam((1, 2), 0.5, 2).rate == 0.5


@EVERY_SKETCH
def test_points_begin_inside(sketch: Sketch, feasible: FeasibleSet) -> None:
    relaxation = Relaxation(sketch)
    penalties = Penalties(relaxation)
    rng = np.random.default_rng(0)
    start, frame = starting_points(
        penalties,
        partial(Bowl().relaxed, sketch),
        feasible.uniform(64, 0),
        feasible.uniform(3, 1),
        OURS,
        rng,
    )
    assert start.shape == (32, relaxation.size) and len(frame) == 32
    assert np.allclose(relaxation.project(start, frame), start, atol=1e-9)
    # All but those near measured ones are feasible, or were made from ones that are.
    fresh = frame.select(np.arange(8, 32))
    rows = relaxation.decode(start[8:], fresh)
    whole = feasible.contains(relaxation.rounded(start[8:], fresh))
    assert ((penalties.of_points(start[8:], rows, fresh)[0] == 0) | whole).all()


@OPERATORS
def test_descent_reaches_a_known_optimum(sketch: Sketch, feasible: FeasibleSet) -> None:
    relaxation = Relaxation(sketch)
    penalties = Penalties(relaxation)
    target = feasible.uniform(1, 3)[0]
    chosen = {sketch.param_names[c]: [int(target[c])] for c in _extents(relaxation)}
    sample = feasible.restrict(chosen).uniform(64, 4)
    model = Bowl(around(target.tolist()))
    objective = partial(model.relaxed, sketch)
    rng = np.random.default_rng(0)
    start, frame = starting_points(penalties, objective, sample, sample[:0], OURS, rng)
    trajectories = descend(penalties, objective, start, frame, 64, OURS)
    assert trajectories.points.shape == (65, 32, relaxation.size)
    collected = collect_candidates(
        Repairer(penalties),
        trajectories,
        frame,
        feasible.contains,
        sample,
        OURS,
        rng,
    )
    assert feasible.contains(collected.rows).all()
    costs = model.relaxed(sketch, collected.rows.astype(float))[0]
    best = collected.rows[costs.argmin()]
    pair = np.stack([best, target])
    apart = np.abs(np.subtract(*relaxation.encode(pair, relaxation.frame(pair))))
    # Within one step of rounding: no exponent is off by more, or it is worth less than one.
    assert apart.max() <= 1 or costs.min() <= 0.2


def _extents(relaxation: Relaxation) -> list[int]:
    return [axis.total for axis in relaxation.axes if axis.total is not None]


@LARGE
def test_what_is_no_number_moves_nothing(sketch: Sketch, feasible: FeasibleSet) -> None:
    relaxation = Relaxation(sketch)
    penalties = Penalties(relaxation)
    none = Bowl(spoil=lambda rows, value, gradient: (value + np.nan, gradient + np.inf))
    flat = Bowl(spoil=lambda rows, value, gradient: (0 * value, 0 * gradient))
    frame = relaxation.frame(feasible.uniform(4, 0))
    start = relaxation.encode(frame.base, frame)
    found, expected = (
        descend(penalties, partial(model.relaxed, sketch), start, frame, 3, OURS)
        for model in (none, flat)
    )
    # Only constraints move it.
    assert (found.points == expected.points).all()
    assert np.isinf(found.costs).all() and not expected.costs.any()


@EVERY_SKETCH
def test_repairs_end_in_the_space_and_leave_what_is_in_it(
    sketch: Sketch, feasible: FeasibleSet
) -> None:
    relaxation = Relaxation(sketch)
    penalties = Penalties(relaxation)
    repairer, inside = Repairer(penalties), feasible.uniform(64, 0)
    assert (repairer.repaired(inside, inside[:1]) == inside).all()
    frame = relaxation.frame(inside)
    rows = relaxation.rounded(relaxation.uniform(frame, np.random.default_rng(0)), frame)
    repaired = repairer.repaired(rows, inside)
    assert len(repaired) == len(rows)
    assert feasible.contains(repaired).all()
    # Without others to end in, some may be given up, but none is broken.
    assert feasible.contains(repairer.repaired(rows, inside[:0])).all()


@EVERY_SKETCH
def test_one_sided_starting_points_split_extents(sketch: Sketch, feasible: FeasibleSet) -> None:
    relaxation = Relaxation(sketch)
    frame = relaxation.frame(np.repeat(feasible.uniform(1, 0), 40, axis=0))
    points = one_sided(relaxation, frame, np.random.default_rng(0))
    broken, _ = breaches(relaxation, points, frame)
    assert (broken < 1e-12).all()
    assert len(np.unique(points.round(9), axis=0)) == 40


@LARGE
def test_published_descent_may_break_products_and_leaves_out_what_does(
    sketch: Sketch, feasible: FeasibleSet
) -> None:
    relaxation = Relaxation(sketch)
    penalties = Penalties(relaxation)
    rng, sample = np.random.default_rng(0), feasible.uniform(64, 0)
    objective = partial(Bowl(around(feasible.uniform(1, 5)[0].tolist())).relaxed, sketch)
    start, frame = starting_points(penalties, objective, sample, sample[:0], PUBLISHED, rng)
    found = descend(penalties, objective, start, frame, 32, PUBLISHED)
    sums = relaxation.exponents(found.points[-1]).sum(axis=-1)
    assert np.allclose(sums, frame.mass, atol=1e-6)
    assert any(breaches(relaxation, points, frame)[0].max() > 0 for points in found.points)
    rounded = [independently_rounded(relaxation, points, frame) for points in found.points]
    assert any(0 < whole.sum() < len(whole) for _, whole in rounded)
    assert all((relaxation.frame(rows).mass == frame.mass).all() for rows, _ in rounded)
    collected = collect_candidates(
        Repairer(penalties),
        found,
        frame,
        feasible.contains,
        sample,
        PUBLISHED,
        rng,
    )
    assert feasible.contains(collected.rows).all() and len(collected.rows) < len(collected.passed)


@LARGE
def test_gradients_of_breaches(sketch: Sketch, feasible: FeasibleSet) -> None:
    relaxation, rng = Relaxation(sketch), np.random.default_rng(0)
    frame = relaxation.frame(feasible.uniform(6, 0))
    points = relaxation.encode(frame.base, frame) + rng.normal(0, 1, (6, relaxation.size))
    points = balanced(relaxation, points, frame)
    gradient = outward(relaxation, breaches(relaxation, points, frame)[1], frame)
    direction, h = rng.normal(size=points.shape), 1e-6
    # The outermost levels follow the others, and what has one value only does not move.
    relaxation.exponents(direction)[frame.high <= frame.low] = 0.0
    ahead, behind = (
        breaches(relaxation, balanced(relaxation, points + s * direction, frame), frame)[0]
        for s in (h, -h)
    )
    free = direction.copy()
    assert np.allclose((ahead - behind) / (2 * h), (gradient * free).sum(axis=1), rtol=1e-4)
