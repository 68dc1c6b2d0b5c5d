"""Constraints by which one number divides a product, in exponents.

A remainder has no useful relaxation, but ``32`` divides ``x * y`` exactly where the exponents of 2
of both are at least 5 together, and that is linear.
"""

from __future__ import annotations

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.ir.expressions import IntExpr
from autotune.sketches import Constraint, OneOf, Sketch
from autotune_felix.primes import prime_factors
from autotune_felix.relaxation import Frame, Relaxation
from autotune_felix.simplex import Reals

__all__ = ["Divisors", "dividend_and_divisor"]


@frozen(eq=False)
class _Requirement:
    """The exponents of a prime in some factors are at least a number, or at least a knob.

    Attributes:
        prime: The prime.
        levels: Which levels of which axes count, [axes, levels].
        least: What is needed.
        knob: Index of a knob whose variable is also needed; None without one.
    """

    prime: int
    levels: NDArray[np.bool_]
    least: float
    knob: int | None


def dividend_and_divisor(constraint: Constraint) -> tuple[IntExpr, IntExpr] | None:
    """Dividend and divisor of a divisibility constraint; None for other constraints."""
    if not isinstance(constraint, OneOf) or set(constraint.values) != {0}:
        return None
    expression = constraint.expression
    return (expression.args[0], expression.args[1]) if expression.op == "mod" else None


class Divisors:
    """By how many exponents points miss the constraints that something divides.

    Products of factors are looked at, divided by a constant or by a knob of powers of two; other
    such constraints have no push, and are left to the repair of whole configurations.

    Args:
        relaxation: Of the sketch.
    """

    def __init__(self, relaxation: Relaxation) -> None:
        self._relaxation = relaxation
        self._requirements = _requirements(relaxation)

    def of_points(self, points: Reals, frame: Frame) -> tuple[Reals, Reals]:
        """The sum of squares of what lacks, [n], and its gradient, [n, size]."""
        gradient = np.zeros_like(points)
        total = np.zeros(len(points))
        exponents = self._relaxation.exponents(points)
        slopes = self._relaxation.exponents(gradient)
        for requirement in self._requirements:
            counted = (frame.primes == requirement.prime)[..., None] * requirement.levels[:, None]
            lacking = requirement.least - (exponents * counted).sum(axis=(1, 2, 3))
            if requirement.knob is not None:
                lacking += self._relaxation.knob_variables(points)[:, requirement.knob]
            lacking = np.maximum(lacking, 0.0)
            total += lacking**2
            slopes -= 2.0 * lacking[:, None, None, None] * counted
            if requirement.knob is not None:
                knobs = self._relaxation.knob_variables(gradient)
                knobs[:, requirement.knob] += 2.0 * lacking
        return total, gradient


def _requirements(relaxation: Relaxation) -> list[_Requirement]:
    found: list[_Requirement] = []
    for constraint in relaxation.sketch.constraints:
        pair = dividend_and_divisor(constraint)
        product = None if pair is None else _product(pair[0], relaxation)
        if pair is None or product is None:
            continue
        (levels, constant), divisor = product, pair[1]
        if divisor.value is not None and divisor.value > 0:
            for prime, count in prime_factors(divisor.value).items():
                least = count - prime_factors(constant).get(prime, 0)
                found.append(_Requirement(prime, levels, float(least), None))
        elif (knob := _knob(divisor, relaxation)) is not None:
            least = -prime_factors(constant).get(2, 0)
            found.append(_Requirement(2, levels, float(least), knob))
    return found


def _product(expression: IntExpr, relaxation: Relaxation) -> tuple[NDArray[np.bool_], int] | None:
    """Levels [axes, levels] and the constant of a product of factors; None for anything else."""
    parts = expression.args if expression.op == "mul" else (expression,)
    constant = 1
    levels = np.zeros(relaxation.levels.shape, dtype=np.bool_)
    for part in parts:
        if part.value is not None and part.value > 0:
            constant *= part.value
            continue
        place = relaxation.levels == _column(part, relaxation.sketch)
        if not place.any() or (levels & place).any():
            return None
        levels |= place
    return levels, constant


def _knob(divisor: IntExpr, relaxation: Relaxation) -> int | None:
    for index, knob in enumerate(relaxation.knobs):
        powers = (knob.values & (knob.values - 1) == 0).all()
        if knob.column == _column(divisor, relaxation.sketch) and powers and not knob.offset:
            return index
    return None


def _column(expression: IntExpr, sketch: Sketch) -> int:
    """Column of the parameter that an expression is; -1 for anything else."""
    return sketch.param_names.index(expression.args[0]) if expression.op == "var" else -1
