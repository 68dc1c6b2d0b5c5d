from __future__ import annotations

import attrs
import numpy as np
import pytest
from autotune_felix.penalties import Divisors, Penalties
from autotune_felix.relaxation import Relaxation
from felix_spaces import sketches

from autotune.ir.expressions import IntExpr, const, var
from autotune.sketches import Factor, OneOf, Ordinal, ProductEquals, Sketch

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
    lacking, gradient = Divisors(relaxation).of_points(relaxation.encode(ROWS, frame), frame)
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
    divisors, h = Divisors(relaxation), 1e-6
    gradient = divisors.of_points(points, frame)[1]
    for index in range(relaxation.size):
        step = np.zeros(relaxation.size)
        step[index] = h
        ahead, behind = (divisors.of_points(points + s, frame)[0] for s in (step, -step))
        assert np.allclose((ahead - behind) / (2 * h), gradient[:, index], atol=1e-4)


@pytest.mark.parametrize("expression", [(A + B) % 32, A * A % 4, A % B])
def test_what_is_no_product_of_factors_is_left_to_the_repair(expression: IntExpr) -> None:
    relaxation = Relaxation(divided(expression))
    frame = relaxation.frame(ROWS)
    points = relaxation.encode(ROWS, frame)
    assert not Divisors(relaxation).of_points(points, frame)[0].any()
    remains = np.array([_value(expression, row) for row in ROWS.tolist()]) > 0
    assert ((Penalties(relaxation).of_rows(ROWS) > 0) == remains).all()
