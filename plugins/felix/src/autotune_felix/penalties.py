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
from autotune.sketches import AtLeast, AtMost, Constraint, Factor, OneOf, ProductEquals, Sketch
from autotune_felix.relaxation import Frame, Relaxation, prime_factors
from autotune_felix.simplex import Reals, Whole

__all__ = ["Penalties", "Repairer"]

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
    :meth:`of_divisors`.

    Where a limit is positive the excess is ``log2(value / limit)`` (or its negative for a least
    value), else the difference in units. What has to be one of a list exceeds by its distance to
    the nearest. A point's penalty is the sum of the squares.

    Attributes:
        relaxation: Of the sketch.

    Raises:
        InvalidValueError: the expression of a constraint cannot be relaxed.
    """

    def __init__(self, relaxation: Relaxation) -> None:
        sketch, outputs = relaxation.sketch, dict[str, IntExpr]()
        self.relaxation = relaxation
        self._requirements = _requirements(relaxation)
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
        lacking, slopes = self.of_divisors(points, frame)
        return values + lacking, self.relaxation.pulled_back(gradient, rows, frame) + slopes

    def of_values(self, values: Reals) -> tuple[Reals, Reals]:
        """The part of penalties [n] that follows from values [n, params], and its gradient."""
        if not self._sides:
            return np.zeros(len(values)), np.zeros_like(values)
        excess, slopes = self._excess(self._relaxed.values(values))
        return (excess**2).sum(axis=1), self._relaxed.vjp(values, 2.0 * excess * slopes)

    def of_divisors(self, points: Reals, frame: Frame) -> tuple[Reals, Reals]:
        """The part of penalties [n] that is of divisors, and its gradient, [n, size].

        Exponents of products of factors are looked at, divided by a constant or by a knob of
        powers of two; other such constraints have no push, and are left to the repair of whole
        configurations.
        """
        gradient = np.zeros_like(points)
        total = np.zeros(len(points))
        exponents = self.relaxation.exponents(points)
        slopes = self.relaxation.exponents(gradient)
        for requirement in self._requirements:
            counted = (frame.primes == requirement.prime)[..., None] * requirement.levels[:, None]
            lacking = requirement.least - (exponents * counted).sum(axis=(1, 2, 3))
            if requirement.knob is not None:
                lacking += self.relaxation.knob_variables(points)[:, requirement.knob]
            lacking = np.maximum(lacking, 0.0)
            total += lacking**2
            slopes -= 2.0 * lacking[:, None, None, None] * counted
            if requirement.knob is not None:
                knobs = self.relaxation.knob_variables(gradient)
                knobs[:, requirement.knob] += 2.0 * lacking
        return total, gradient

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


# Rows that are looked at together: bounds the memory for all moves of all of them.
_CHUNK = 512


@frozen
class _Move:
    """A prime that goes from one factor of an axis to another, or a knob to its next value."""

    source: int
    target: int
    prime: int


class Repairer:
    """Moves one prime, or one knob by one value, at a time until the excess is gone.

    Of all moves the one that leaves the least excess is made; of equal ones the one nearest to the
    configuration it began with. The excess falls with every move, so that it ends. A configuration
    that no single move improves is replaced by the nearest of others, which are feasible.

    Attributes:
        penalties: Of the sketch.
        relaxation: Of the sketch.
    """

    def __init__(self, penalties: Penalties) -> None:
        self.penalties, self.relaxation = penalties, penalties.relaxation
        self._domains = _domains(self.relaxation.sketch)

    def repaired(self, rows: Whole, feasible: Whole) -> Whole:
        """Configurations that satisfy all constraints, [n, params].

        Args:
            rows: Configurations with right products, [n, params].
            feasible: Configurations that satisfy all constraints, [m, params].
        """
        parts = [rows[:0]]
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            found, excess = self._descended(chunk)
            stuck = np.flatnonzero(excess > 0)
            if len(feasible) and len(stuck):
                found[stuck] = feasible[_nearest(chunk[stuck], feasible)]
                excess[stuck] = 0.0
            parts.append(found[excess == 0])
        return np.concatenate(parts)

    def neighbours(self, rows: Whole) -> Whole:
        """Configurations one move from these with no excess, [m, params]; with repetition."""
        moved = self._moved(rows, self._moves(rows))[1]
        return np.asarray(moved[self.excess(moved) == 0])

    def excess(self, rows: Whole) -> Reals:
        """Distance of configurations from constraints and domains, [n]; 0 for feasible ones."""
        total = self.penalties.of_rows(rows)
        for column, values in self._domains.items():
            away = np.abs(np.log2(rows[:, column] + 1)[:, None] - np.log2(values + 1))
            total = total + away.min(axis=1)
        return total

    def _descended(self, rows: Whole) -> tuple[Whole, Reals]:
        current, excess = rows.copy(), self.excess(rows)
        open_rows = np.flatnonzero(excess > 0)
        moves = self._moves(rows)
        while len(open_rows):
            owners, moved = self._moved(current[open_rows], moves)
            if not len(owners):
                break
            left = self.excess(moved)
            apart = _distances(moved, rows[open_rows[owners]])
            best = np.lexsort((apart, np.round(left, 9), owners))
            first = best[np.unique(owners[best], return_index=True)[1]]
            places = open_rows[owners[first]]
            better = left[first] < excess[places] - 1e-9
            current[places[better]] = moved[first[better]]
            excess[places[better]] = left[first[better]]
            open_rows = places[better & (left[first] > 0)]
        return current, excess

    def _moves(self, rows: Whole) -> list[_Move]:
        frame = self.relaxation.frame(rows)
        moves = []
        for index, axis in enumerate(self.relaxation.axes):
            primes = sorted(set(frame.primes[:, index].ravel().tolist()) - {1})
            for prime in primes:
                for source in axis.columns:
                    moves += [_Move(source, to, prime) for to in axis.columns if to != source]
        return moves

    def _moved(self, rows: Whole, moves: list[_Move]) -> tuple[NDArray[np.int64], Whole]:
        """Rows that single moves make of rows: their positions, and the configurations."""
        owners, parts = [np.zeros(0, dtype=np.int64)], [rows[:0]]
        for move in moves:
            able = np.flatnonzero(rows[:, move.source] % move.prime == 0)
            moved = rows[able]
            moved[:, move.source] //= move.prime
            moved[:, move.target] *= move.prime
            owners.append(able)
            parts.append(moved)
        for knob in self.relaxation.knobs:
            place = np.searchsorted(knob.values, rows[:, knob.column])
            for to in (place - 1, place + 1):
                able = np.flatnonzero((to >= 0) & (to < len(knob.values)))
                moved = rows[able]
                moved[:, knob.column] = knob.values[to[able]]
                owners.append(able)
                parts.append(moved)
        return np.concatenate(owners), np.concatenate(parts)


def _domains(sketch: Sketch) -> dict[int, Whole]:
    """Values of the factors that list them, by column: moves leave other lists alone."""
    return {
        column: np.array(sorted({value for value in param.values if value >= 1}), dtype=np.int64)
        for column, param in enumerate(sketch.params)
        if isinstance(param, Factor) and param.values
    }


def _distances(left: Whole, right: Whole) -> Reals:
    """Distances of configurations in octaves, [n]."""
    logarithms = (np.log2(np.abs(rows) + 1) for rows in (left, right))
    return np.asarray(np.abs(np.subtract(*logarithms)).sum(axis=-1))


def _nearest(rows: Whole, feasible: Whole) -> NDArray[np.int64]:
    return np.asarray(_distances(rows[:, None], feasible[None]).argmin(axis=1), dtype=np.int64)
