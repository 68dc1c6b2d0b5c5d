"""By how many octaves points break the constraints that are not products, with derivatives."""

from __future__ import annotations

import math

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr
from autotune.nest.relaxed import RelaxedTape
from autotune.nest.tape import build_tape
from autotune.sketches import AtLeast, AtMost, Constraint, OneOf, ProductEquals, Sketch
from autotune_felix.primes import prime_factors
from autotune_felix.relaxation import Frame, Relaxation
from autotune_felix.simplex import Reals, Whole

__all__ = ["Divisors", "Penalties"]

_SMALLEST = 1e-12


@frozen
class _Side:
    """``sign * (value - limit) <= 0``, by logarithm where limits allow it; sign 0: one of them."""

    output: int
    sign: float
    limits: tuple[float, ...]
    logarithmic: bool


class Penalties:
    """The excess of every constraint but products: 0 where it holds.

    Where a number has to divide a product, it is what lacks to that in octaves, see
    :class:`~autotune_felix.penalties.Divisors`.

    Where a limit is positive the excess is ``log2(value / limit)`` (or its negative for a least
    value), else the difference in units. What has to be one of a list exceeds by its distance to
    the nearest. A point's penalty is the sum of the squares.

    Args:
        relaxation: Of the sketch.

    Raises:
        InvalidValueError: the expression of a constraint cannot be relaxed.
    """

    def __init__(self, relaxation: Relaxation) -> None:
        sketch, outputs = relaxation.sketch, dict[str, IntExpr]()
        self._relaxation = relaxation
        self._divisors = Divisors(relaxation)
        self._sides: list[_Side] = []
        pairs: list[IntExpr] = []
        for constraint in sketch.constraints:
            if isinstance(constraint, ProductEquals):
                continue
            pair = dividend_and_divisor(constraint)
            if pair is not None:
                pairs.extend(pair)
                continue
            index = len(outputs)
            outputs[str(index)] = constraint.expression
            self._sides.append(_side(constraint, index))
        self._tape = build_tape(sketch.param_names, outputs)
        named = {str(index): expression for index, expression in enumerate(pairs)}
        self._pairs = build_tape(sketch.param_names, named)
        try:
            self._relaxed = RelaxedTape(self._tape, "relaxed", relaxation.bounds)
        except InvalidValueError as error:
            raise InvalidValueError(
                f"sketch {sketch.name!r} cannot be relaxed: a constraint is the reason: {error}"
            ) from error

    def of_rows(self, rows: Whole) -> Reals:
        """The sum of the excesses of configurations [n, params], exactly evaluated; [n]."""
        total = np.zeros(len(rows))
        if self._sides:
            total += self._excess(self._tape.evaluate(rows).astype(np.float64))[0].sum(axis=1)
        if self._pairs.outputs:
            dividends, divisors = self._pairs.evaluate(rows).reshape(len(rows), -1, 2).T
            total += np.log2(divisors / np.gcd(dividends, divisors)).sum(axis=0)
        return total

    def of_points(self, points: Reals, rows: Reals, frame: Frame) -> tuple[Reals, Reals]:
        """Penalties [n] of points, and their gradient by the variables, [n, size].

        Args:
            points: Points, [n, size].
            rows: What they decode to, [n, params].
            frame: What they keep.
        """
        values, gradient = self.of_values(rows)
        lacking, slopes = self._divisors.of_points(points, frame)
        return values + lacking, self._relaxation.pulled_back(gradient, rows, frame) + slopes

    def of_values(self, values: Reals) -> tuple[Reals, Reals]:
        """The part of penalties [n] that follows from values [n, params], and its gradient."""
        if not self._sides:
            return np.zeros(len(values)), np.zeros_like(values)
        excess, slopes = self._excess(self._relaxed.values(values))
        return (excess**2).sum(axis=1), self._relaxed.vjp(values, 2.0 * excess * slopes)

    def _excess(self, found: Reals) -> tuple[Reals, Reals]:
        """Excesses [n, constraints], and their derivatives by the constraints' expressions."""
        excess, slopes = np.zeros_like(found), np.zeros_like(found)
        for side in self._sides:
            value = found[:, side.output]
            measured, steepness = value, np.ones_like(value)
            limits = np.array(side.limits)
            if side.logarithmic:
                value = np.maximum(value, _SMALLEST)
                measured, steepness = np.log2(value), 1.0 / (value * math.log(2.0))
                limits = np.log2(limits)
            if side.sign:
                away = side.sign * (measured - limits[0])
                over, direction = np.maximum(away, 0.0), np.where(away > 0, side.sign, 0.0)
            elif not side.limits:
                # Nothing satisfies it, and no direction is better than another.
                over, direction = np.ones_like(value), np.zeros_like(value)
            else:
                away = measured[:, None] - limits
                nearest = np.abs(away).argmin(axis=1)
                away = away[np.arange(len(away)), nearest]
                over, direction = np.abs(away), np.sign(away)
            excess[:, side.output], slopes[:, side.output] = over, direction * steepness
        return excess, slopes


def _side(constraint: AtMost | AtLeast | OneOf, output: int) -> _Side:
    if isinstance(constraint, OneOf):
        limits = tuple(float(value) for value in constraint.values)
        return _Side(output, 0.0, limits, min(limits, default=0.0) > 0)
    sign = 1.0 if isinstance(constraint, AtMost) else -1.0
    return _Side(output, sign, (float(constraint.limit),), constraint.limit > 0)


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
