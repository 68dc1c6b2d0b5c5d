"""By how many octaves points break the constraints that are not products, with derivatives."""

from __future__ import annotations

import math

import numpy as np
from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr
from autotune.nest.relaxed import RelaxedTape
from autotune.nest.tape import build_tape
from autotune.sketches import AtLeast, AtMost, OneOf, ProductEquals
from autotune_felix.divisors import Divisors, dividend_and_divisor
from autotune_felix.relaxation import Frame, Relaxation
from autotune_felix.simplex import Reals, Whole

__all__ = ["Penalties"]

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
    :class:`~autotune_felix.divisors.Divisors`.

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
