from __future__ import annotations

import math

import attrs
import numpy as np
import pytest
from autotune_felix.relaxation import Relaxation, multiplicities, prime_factors
from felix_spaces import sketches
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const, var
from autotune.sketches import Categorical, Factor, Ordinal, ProductEquals, Sketch
from autotune.spaces.feasible import FeasibleSet

SKETCHES = [pytest.param(sketch, feasible, id=name) for name, sketch, feasible in sketches()]
EVERY_SKETCH = pytest.mark.parametrize(("sketch", "feasible"), SKETCHES)


def small(*params: Factor | Ordinal | Categorical, total: object = 2**5 * 77) -> Sketch:
    """A sketch with a product of all factors among ``params``; its steps do not matter here."""
    some = sketches()[0][1]
    factors = tuple(param.name for param in params if isinstance(param, Factor))
    extent = const(total) if isinstance(total, int) else var(str(total))
    constraints = (ProductEquals(factors, extent),) if factors else ()
    return attrs.evolve(some, name="small", params=params, constraints=constraints)


@given(st.integers(1, 10**6))
def test_prime_factors_multiply_to_the_number(number: int) -> None:
    factors = prime_factors(number)
    assert math.prod(prime**count for prime, count in factors.items()) == number
    assert all(all(prime % d for d in range(2, math.isqrt(prime) + 1)) for prime in factors)
    counted = multiplicities(np.array([number]), np.array([*factors, 1, 1_000_003]))
    assert counted.tolist() == [*factors.values(), 0, 0]


@EVERY_SKETCH
def test_configurations_are_points_and_come_back(sketch: Sketch, feasible: FeasibleSet) -> None:
    relaxation = Relaxation(sketch)
    rows = feasible.uniform(200, 0)
    frame = relaxation.frame(rows)
    points = relaxation.encode(rows, frame)
    assert np.allclose(relaxation.decode(points, frame), rows, rtol=1e-9)
    assert np.allclose(relaxation.project(points, frame), points, atol=1e-9)
    assert (relaxation.rounded(points, frame) == rows).all()
    # Different configurations are different points or keep different choices.
    kept = np.concatenate([points, frame.base[:, _discrete(relaxation)]], axis=1)
    assert len(np.unique(kept.round(6), axis=0)) == len(np.unique(rows, axis=0))


@EVERY_SKETCH
def test_products_are_exact_everywhere(sketch: Sketch, feasible: FeasibleSet) -> None:
    relaxation, rng = Relaxation(sketch), np.random.default_rng(1)
    frame = relaxation.frame(feasible.uniform(64, 1))
    uniform = relaxation.uniform(frame, rng)
    moved = relaxation.project(uniform + rng.normal(0, 2, uniform.shape), frame)
    for points in (uniform, moved):
        values = relaxation.decode(points, frame)
        for column, (low, high) in enumerate(relaxation.bounds.values()):
            assert (values[:, column] >= low * (1 - 1e-9)).all()
            assert (values[:, column] <= high * (1 + 1e-9)).all()
        rounded = relaxation.rounded(points, frame)
        for axis in relaxation.axes:
            total = axis.extents[0] if axis.total is None else frame.base[:, axis.total]
            # A level with a list such as 1, 2, 7 is cut to the greatest: 14 is not listed.
            listed = any(domain and len(domain) > 1 for domain in axis.domains)
            product = values[:, axis.columns].prod(axis=1)
            assert np.allclose(product, total) or (listed and (product < total + 1e-6).all())
            assert (rounded[:, axis.columns].prod(axis=1) == total).all()
        assert (rounded[:, _discrete(relaxation)] == frame.base[:, _discrete(relaxation)]).all()


@EVERY_SKETCH
def test_gradients_are_those_of_finite_differences(sketch: Sketch, feasible: FeasibleSet) -> None:
    relaxation, rng = Relaxation(sketch), np.random.default_rng(2)
    frame = relaxation.frame(feasible.uniform(8, 2))
    # Off the bounds, which decoding would hold the moved points to.
    points = 0.5 * relaxation.uniform(frame, rng) + 0.25
    weights = rng.normal(size=len(sketch.params))
    rows = relaxation.decode(points, frame)
    gradient = relaxation.pulled_back(np.tile(weights, (8, 1)), rows, frame)
    # Levels with one value do not move.
    direction, h = relaxation.tangent(rng.normal(size=points.shape), frame), 1e-6
    bounds = np.array(list(relaxation.bounds.values()))
    inside = ((rows > bounds[:, 0] * 1.01) & (rows < bounds[:, 1] / 1.01)) | (
        bounds[:, 0] == bounds[:, 1]
    )
    ahead, behind = (
        relaxation.decode(points + step * direction, frame) @ weights for step in (h, -h)
    )
    expected = (gradient * direction).sum(axis=1)
    checked = inside.all(axis=1)
    assert np.allclose(((ahead - behind) / (2 * h))[checked], expected[checked], rtol=1e-4)


def test_gradients_are_checked_at_some_points() -> None:
    sketch = small(*(Factor(name) for name in "abc"), Ordinal("u", (0, 16, 64)))
    relaxation = Relaxation(sketch)
    frame = relaxation.frame(np.array([[2**5, 7, 11, 16]]))
    points = relaxation.uniform(frame, np.random.default_rng(0))
    weights = np.array([[1.0, -2.0, 0.5, 3.0]])
    gradient = relaxation.pulled_back(weights, relaxation.decode(points, frame), frame)
    h = 1e-6
    for index in range(relaxation.size):
        step = np.zeros_like(points)
        step[:, index] = h
        ahead, behind = (relaxation.decode(points + s, frame) @ weights[0] for s in (step, -step))
        assert (ahead - behind)[0] / (2 * h) == pytest.approx(gradient[0, index], rel=1e-5)


@given(st.integers(1, 3000), st.integers(1, 4), st.integers(0, 2**32))
def test_any_extent_can_be_split(extent: int, levels: int, seed: int) -> None:
    relaxation = Relaxation(small(*(Factor(f"f{i}") for i in range(levels)), total=extent))
    rows = np.ones((9, levels), dtype=np.int64)
    rows[:, 0] = extent
    frame = relaxation.frame(rows)
    points = relaxation.uniform(frame, np.random.default_rng(seed))
    found = relaxation.rounded(points, frame)
    assert (found.prod(axis=1) == extent).all()
    exponents = relaxation.exponents(relaxation.encode(found, frame))
    assert (np.abs(exponents - relaxation.exponents(points)) < 1).all()


@given(st.lists(st.integers(0, 4096), min_size=2, max_size=8, unique=True), st.floats(-1, 14))
def test_a_knob_is_rounded_to_the_nearest_by_logarithm(values: list[int], place: float) -> None:
    relaxation = Relaxation(small(Ordinal("u", tuple(values))))
    row = np.array([[values[0]]])
    frame = relaxation.frame(row)
    found = relaxation.rounded(np.array([[place]]), frame)[0, 0]
    offset = 0 if min(values) else 1
    distances = {value: abs(math.log2(value + offset) - place) for value in values}
    assert distances[found] <= min(distances.values()) + 1e-9


def test_choices_are_kept() -> None:
    sketch = small(
        Factor("a"),
        Factor("b"),
        Ordinal("e", (12, 13)),
        Categorical("c", ("x", "y")),
        Ordinal("n", (-1, 4)),
        Ordinal("one", (3,)),
        total="e",
    )
    relaxation = Relaxation(sketch)
    assert not relaxation.knobs
    rows = np.array([[3, 4, 12, 1, -1, 3], [13, 1, 13, 0, 4, 3]])
    frame = relaxation.frame(rows)
    moved = relaxation.uniform(frame, np.random.default_rng(0))
    assert (relaxation.decode(moved, frame)[:, 2:] == rows[:, 2:]).all()
    assert (relaxation.rounded(moved, frame)[:, 2:] == rows[:, 2:]).all()


@pytest.mark.parametrize(
    ("sketch", "name"),
    [
        (small(Factor("a"), Ordinal("e", (0, 4)), total="e"), "a"),
        (small(Factor("a"), Factor("a")), "a"),
    ],
)
def test_what_cannot_be_relaxed_is_named(sketch: Sketch, name: str) -> None:
    with pytest.raises(InvalidValueError, match=f"'{name}'"):
        Relaxation(sketch)


def test_an_extent_that_is_not_listed_is_refused() -> None:
    relaxation = Relaxation(small(Factor("a"), Ordinal("e", (4, 6)), total="e"))
    with pytest.raises(InvalidValueError, match=r"'e' is one of \[4, 6\]"):
        relaxation.frame(np.array([[5, 5]]))


def _discrete(relaxation: Relaxation) -> list[int]:
    moving = {column for axis in relaxation.axes for column in axis.columns}
    moving |= {knob.column for knob in relaxation.knobs}
    return [c for c in range(len(relaxation.sketch.params)) if c not in moving]
