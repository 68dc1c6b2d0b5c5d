from __future__ import annotations

import attrs
import numpy as np
import pytest
from autotune_felix.penalties import Penalties
from autotune_felix.relaxation import Relaxation
from felix_spaces import sketches
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr, const, less, maximum, select, var
from autotune.sketches import (
    AtLeast,
    AtMost,
    Constraint,
    Factor,
    OneOf,
    Ordinal,
    ProductEquals,
    Sketch,
)
from autotune.spaces.feasible import FeasibleSet, residuals

SKETCHES = [pytest.param(sketch, feasible, id=name) for name, sketch, feasible in sketches()]
EVERY_SKETCH = pytest.mark.parametrize(("sketch", "feasible"), SKETCHES)


def constrained(*constraints: Constraint) -> Sketch:
    params = tuple(Ordinal(name, tuple(range(1, 65))) for name in "ab")
    return attrs.evolve(sketches()[0][1], params=params, constraints=constraints)


@EVERY_SKETCH
def test_no_excess_means_feasible_at_whole_numbers(sketch: Sketch, feasible: FeasibleSet) -> None:
    relaxation = Relaxation(sketch)
    penalties = Penalties(relaxation)
    inside = feasible.uniform(100, 0)
    assert (penalties.of_rows(inside) == 0).all()
    frame = relaxation.frame(inside)
    rng = np.random.default_rng(0)
    anywhere = relaxation.rounded(relaxation.uniform(frame, rng), frame)
    assert ((penalties.of_rows(anywhere) == 0) == ~residuals(sketch, anywhere).any(axis=1)).all()


@EVERY_SKETCH
def test_gradients_of_penalties(sketch: Sketch, feasible: FeasibleSet) -> None:
    relaxation = Relaxation(sketch)
    penalties = Penalties(relaxation)
    rng = np.random.default_rng(1)
    frame = relaxation.frame(feasible.uniform(64, 1))
    points = relaxation.uniform(frame, rng)
    rows = relaxation.decode(points, frame)
    found, gradient = penalties.of_points(points, rows, frame)
    assert (found >= 0).all() and np.isfinite(gradient).all()
    # No penalty, no push.
    assert (gradient[found == 0] == 0).all()
    broken = found > 1e-3
    downhill = relaxation.tangent(gradient, frame)
    norm = np.linalg.norm(downhill, axis=1, keepdims=True)
    step = np.where(norm > 1e-9, downhill / np.where(norm > 0, norm, 1), 0) * 1e-4
    inside = relaxation.project(points - step, frame)
    after = penalties.of_points(inside, relaxation.decode(inside, frame), frame)[0]
    # Descent along it lowers it, wherever bounds let the points go.
    free = broken & (np.abs(inside - (points - step)).max(axis=1, initial=0.0) < 1e-9)
    free &= norm[:, 0] > 1e-9
    assert (after[free] < found[free]).all()


def test_gradients_of_penalties_by_finite_differences() -> None:
    a, b = var("a"), var("b")
    sketch = constrained(
        AtMost(a * b + a, 50, "test"),
        AtLeast(a + 2 * b, 40, "test"),
        AtMost(a - b, 0, "test"),
        OneOf(maximum(a, b), (4, 8, 48), "test"),
        OneOf(a - 7, (-2, 30), "test"),
        AtMost(select(less(const(4), a), b, a), 3, "test"),
    )
    penalties, rng = Penalties(Relaxation(sketch)), np.random.default_rng(0)
    points, h = rng.uniform(1.5, 60, size=(200, 2)), 1e-6
    found, gradient = penalties.of_values(points)
    assert (found > 0).any()
    for column in range(2):
        step = np.zeros(2)
        step[column] = h
        ahead, behind = (penalties.of_values(points + s)[0] for s in (step, -step))
        assert np.allclose((ahead - behind) / (2 * h), gradient[:, column], rtol=1e-4, atol=1e-5)


@given(st.integers(0, 2**32), st.floats(0, 1))
def test_penalties_of_products_are_convex_in_exponents(seed: int, share: float) -> None:
    """Bounds of products are linear there, and each breach adds to the penalty."""
    a, b = var("a"), var("b")
    upper, lower = AtMost(a * b, 50, "test"), AtLeast(a * a * b, 300, "test")
    both, one = (Penalties(Relaxation(constrained(*them))) for them in ((upper, lower), (upper,)))
    exponents = np.random.default_rng(seed).uniform(0, 6, size=(2, 20, 2))
    ends = [both.of_values(2.0**each)[0] for each in exponents]
    between = both.of_values(2.0 ** (share * exponents[0] + (1 - share) * exponents[1]))[0]
    assert (between <= share * ends[0] + (1 - share) * ends[1] + 1e-9).all()
    assert (both.of_values(2.0 ** exponents[0])[0] >= one.of_values(2.0 ** exponents[0])[0]).all()


def test_a_constraint_that_nothing_satisfies() -> None:
    found, gradient = Penalties(Relaxation(constrained(OneOf(var("a"), (), "test")))).of_values(
        np.array([[2.0, 3.0]])
    )
    assert found.tolist() == [1.0] and gradient.tolist() == [[0.0, 0.0]]


def test_no_constraints_no_penalty() -> None:
    penalties = Penalties(Relaxation(constrained()))
    assert penalties.of_rows(np.array([[2, 3]])).tolist() == [0.0]
    assert penalties.of_values(np.array([[2.0, 3.0]]))[0].tolist() == [0.0]


def test_a_constraint_that_cannot_be_relaxed_is_named() -> None:
    sketch = constrained(AtMost(const(8) // (var("a") - var("b")), 3, "test"))
    with pytest.raises(InvalidValueError, match="may divide by zero"):
        Penalties(Relaxation(sketch))


A, B, V = var("a"), var("b"), var("v")


def divided(expression: IntExpr) -> Sketch:
    """Factors a and b of 12 * 2^5 * 3, and a knob v of powers of two; nothing may remain."""
    params = (Factor("a"), Factor("b"), Factor("c"), Ordinal("v", (1, 2, 4)))
    constraints = (
        ProductEquals(("a", "b", "c"), const(1152)),
        OneOf(expression, (0,), "test"),
    )
    return attrs.evolve(sketches()[0][1], params=params, constraints=constraints)


ROWS = np.array(
    [[a, b, 1152 // (a * b), v] for a in (1, 3, 8, 9) for b in (2, 4, 32) for v in (1, 4)]
)


@pytest.mark.parametrize("expression", [A * B % 32, A % V, 2 * A % V, A % 3, A * B % 24])
def test_nothing_lacks_where_nothing_remains(expression: IntExpr) -> None:
    relaxation = Relaxation(divided(expression))
    frame = relaxation.frame(ROWS)
    lacking, gradient = Penalties(relaxation).of_divisors(relaxation.encode(ROWS, frame), frame)
    remains = np.array([_value(expression, row) for row in ROWS.tolist()]) > 0
    assert remains.any() and not remains.all()
    assert ((lacking > 0) == remains).all()
    assert (np.abs(gradient).sum(axis=1)[~remains] == 0).all()
    assert ((Penalties(relaxation).of_rows(ROWS) > 0) == remains).all()


def _value(expression: IntExpr, row: list[int]) -> int:
    found = expression.substitute(dict(zip("abcv", row, strict=True))).value
    assert found is not None
    return found


def test_gradients_are_those_of_finite_differences() -> None:
    relaxation = Relaxation(divided(A * B % V))
    frame = relaxation.frame(ROWS)
    points = np.random.default_rng(0).normal(size=(len(ROWS), relaxation.size))
    penalties, h = Penalties(relaxation), 1e-6
    gradient = penalties.of_divisors(points, frame)[1]
    for index in range(relaxation.size):
        step = np.zeros(relaxation.size)
        step[index] = h
        ahead, behind = (penalties.of_divisors(points + s, frame)[0] for s in (step, -step))
        assert np.allclose((ahead - behind) / (2 * h), gradient[:, index], atol=1e-4)


@pytest.mark.parametrize("expression", [(A + B) % 32, A * A % 4, A % B])
def test_what_is_no_product_of_factors_is_left_to_the_repair(expression: IntExpr) -> None:
    relaxation = Relaxation(divided(expression))
    frame = relaxation.frame(ROWS)
    points = relaxation.encode(ROWS, frame)
    assert not Penalties(relaxation).of_divisors(points, frame)[0].any()
    remains = np.array([_value(expression, row) for row in ROWS.tolist()]) > 0
    assert ((Penalties(relaxation).of_rows(ROWS) > 0) == remains).all()
