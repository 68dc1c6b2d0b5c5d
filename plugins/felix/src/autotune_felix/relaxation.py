"""A sketch over real numbers: exponents of primes for tile factors, logarithms for other numbers.

A factor of an axis is ``prod p^e`` over the primes ``p`` of the axis's extent. The exponents of
one prime over the levels of an axis add up to its multiplicity in the extent, so that every point
on these simplices splits the extent exactly, also between whole numbers (Felix, ASPLOS'24, has the
exponents; there a penalty keeps the sums, and primes end at 7).

A factor that lists its values has the bounds of their exponents. Where these values do not divide
each other (1, 2, 7), a point may be beyond the greatest: it is read as that one.

Ordinals are relaxed by logarithm. What decides the primes (an extent that may be padded) and what
has no order is not relaxed: every point keeps its own choice.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TypeVar

import numpy as np
from attrs import astuple, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.models.explanation import prime_factors
from autotune.nest.relaxed import param_bounds
from autotune.sketches import Ordinal, Param, ProductEquals, Sketch
from autotune_felix.simplex import Reals, Whole, project, round_remainders, tangent, uniform_shares

__all__ = [
    "Axis",
    "Frame",
    "Knob",
    "Relaxation",
    "multiplicities",
    "prime_factors",
]

_Number = TypeVar("_Number", np.int64, np.float64)


@frozen
class Axis:
    """A product of parameters.

    Attributes:
        columns: Columns of its factors.
        total: Column of the parameter that is the product; None where it is a constant.
        extents: What the product may be.
        domains: Values that each factor may have; None for any divisor.
    """

    columns: tuple[int, ...]
    total: int | None
    extents: tuple[int, ...]
    domains: tuple[tuple[int, ...] | None, ...]


@frozen(eq=False)
class Knob:
    """An ordinal by itself: its variable is ``log2(value + offset)``.

    Attributes:
        column: Its column.
        values: Its values, ascending.
        offset: 1 where 0 is one of the values, else 0.
    """

    column: int
    values: Whole
    offset: int

    @cached_property
    def places(self) -> Reals:
        """The variable at each value."""
        return np.asarray(np.log2(self.values + self.offset), dtype=np.float64)


@frozen(eq=False)
class Frame:
    """The fixed part of points, [n, ...]: their choices, and what follows from these.

    Attributes:
        base: Configurations from which columns that are not relaxed are taken, [n, params].
        primes: Primes of each axis, [n, axes, primes]; 1 where there are no more.
        mass: Multiplicity of each prime in the extent, [n, axes, primes].
        low: Least exponents, [n, axes, primes, levels].
        high: Greatest exponents; 0 where there is no such prime or level.
    """

    base: Whole
    primes: Whole
    mass: Reals
    low: Reals
    high: Reals

    def __len__(self) -> int:
        return len(self.base)

    @cached_property
    def logarithms(self) -> Reals:
        """Binary logarithms of the primes, [n, axes, primes]."""
        return np.asarray(np.log2(self.primes), dtype=np.float64)

    def select(self, positions: NDArray[np.int64]) -> Frame:
        """Select some of these points."""
        return Frame(*(each[positions] for each in astuple(self, recurse=False)))


class Relaxation:
    """Points of a sketch between its configurations.

    A point is a row of variables, [size]: exponents by axis, prime and level, then knobs.

    Attributes:
        sketch: The sketch.
        bounds: Least and greatest value of every parameter by name.
        axes: Its products.
        knobs: Its ordinals that are no extents.
        levels: Column of each factor, [axes, levels]; one past the last parameter's where an axis
            has no such level.

    Raises:
        InvalidValueError: a parameter cannot be relaxed; the message names it.
    """

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.bounds = param_bounds(sketch)
        limits = np.array([self.bounds[name] for name in sketch.param_names]).reshape(-1, 2)
        self._limits = limits[:, 0], limits[:, 1]
        self.axes = _axes(sketch)
        taken = {column for axis in self.axes for column in (*axis.columns, axis.total)}
        self.knobs = tuple(
            knob
            for column, param in enumerate(sketch.params)
            if column not in taken and (knob := _knob(column, param)) is not None
        )
        levels = max((len(axis.columns) for axis in self.axes), default=0)
        extents = {extent for axis in self.axes for extent in axis.extents}
        primes = max((len(prime_factors(extent)) for extent in extents), default=0)
        self._shape = (len(self.axes), primes, levels)
        # The column past the last parameter's is always 1.
        self.levels = np.full((len(self.axes), levels), len(sketch.params), dtype=np.int64)
        for index, axis in enumerate(self.axes):
            self.levels[index, : len(axis.columns)] = axis.columns
        self._tables = [_tables(axis, primes, levels) for axis in self.axes]

    @property
    def size(self) -> int:
        """Number of variables of a point."""
        return math.prod(self._shape) + len(self.knobs)

    def frame(self, rows: Whole) -> Frame:
        """Frame that points which begin at configurations [n, params] keep.

        Raises:
            InvalidValueError: an extent is not one that its parameter lists.
        """
        parts = []
        for axis, tables in zip(self.axes, self._tables, strict=True):
            extents = np.array(sorted(set(axis.extents)), dtype=np.int64)
            if axis.total is None:
                choice = np.zeros(len(rows), dtype=np.int64)
            else:
                choice = np.minimum(
                    np.searchsorted(extents, rows[:, axis.total]), len(extents) - 1
                )
                if (extents[choice] != rows[:, axis.total]).any():
                    name = self.sketch.param_names[axis.total]
                    raise InvalidValueError(f"{name!r} is one of {extents.tolist()}")
            parts.append([table[choice] for table in tables])
        if not parts:
            shape = (len(rows), *self._shape)
            empty = np.zeros(shape)
            return Frame(rows, np.zeros(shape[:3], np.int64), np.zeros(shape[:3]), empty, empty)
        primes, mass, low, high = (np.stack(part, axis=1) for part in zip(*parts, strict=True))
        return Frame(rows, primes, mass, low, high)

    def encode(self, rows: Whole, frame: Frame) -> Reals:
        """The points of configurations: [n, params] to [n, size]."""
        factors = self._extended(rows)[:, self.levels]
        exponents = multiplicities(factors[:, :, None, :], frame.primes[..., None])
        knobs = [np.log2(rows[:, knob.column] + knob.offset) for knob in self.knobs]
        flat = exponents.reshape(len(rows), math.prod(self._shape))
        return np.concatenate([flat, *(knob[:, None] for knob in knobs)], axis=1, dtype=np.float64)

    def decode(self, points: Reals, frame: Frame) -> Reals:
        """Values of the parameters at points, within their bounds: [n, size] to [n, params]."""
        exponents = self.exponents(points)
        factors = np.exp2((exponents * frame.logarithms[..., None]).sum(axis=2))
        rows = self._extended(frame.base).astype(np.float64)
        rows[:, self.levels] = factors
        for knob, variable in zip(self.knobs, self.knob_variables(points).T, strict=True):
            rows[:, knob.column] = np.exp2(variable) - knob.offset
        return np.clip(rows[:, :-1], *self._limits, order="C")

    def pulled_back(self, gradient: Reals, rows: Reals, frame: Frame) -> Reals:
        """A gradient by values [n, params] as one by variables [n, size]; ``rows``: decoded."""
        scaled = self._extended(gradient * rows) * math.log(2.0)
        scaled[:, -1] = 0.0
        exponents = scaled[:, self.levels][:, :, None, :] * frame.logarithms[..., None]
        knobs = [
            gradient[:, knob.column] * (rows[:, knob.column] + knob.offset) * math.log(2.0)
            for knob in self.knobs
        ]
        flat = exponents.reshape(len(rows), math.prod(self._shape))
        return np.concatenate([flat, *(knob[:, None] for knob in knobs)], axis=1)

    def tangent(self, gradient: Reals, frame: Frame) -> Reals:
        """The part of a gradient [n, size] that does not change any product."""
        result: Reals = gradient.copy()
        self.exponents(result)[...] = tangent(self.exponents(gradient), frame.low, frame.high)
        return result

    def project(self, points: Reals, frame: Frame) -> Reals:
        """The nearest points at which products are right and everything is in its bounds."""
        result: Reals = points.copy()
        self.exponents(result)[...] = project(
            self.exponents(points), frame.low, frame.high, frame.mass
        )
        for index, knob in enumerate(self.knobs):
            variable = self.knob_variables(result)[:, index]
            np.clip(variable, knob.places[0], knob.places[-1], out=variable)
        return result

    def rounded(
        self, points: Reals, frame: Frame, rng: np.random.Generator | None = None
    ) -> Whole:
        """Configurations near points, [n, params], with exact products, by largest remainders.

        Other constraints, and lists of values with gaps, may be broken. With ``rng`` remainders
        are drawn by size.
        """
        exponents = round_remainders(self.exponents(points), frame.mass.astype(np.int64), rng)
        return self.configurations(exponents, points, frame)

    def configurations(self, exponents: Whole, points: Reals, frame: Frame) -> Whole:
        """Configurations of whole exponents, knobs at the value nearest to their variable."""
        rows = self._extended(frame.base)
        rows[:, self.levels] = (frame.primes[..., None] ** exponents).prod(axis=2)
        for knob, variable in zip(self.knobs, self.knob_variables(points).T, strict=True):
            between = (knob.places[1:] + knob.places[:-1]) / 2
            rows[:, knob.column] = knob.values[np.searchsorted(between, variable)]
        return np.ascontiguousarray(rows[:, :-1])

    def uniform(self, frame: Frame, rng: np.random.Generator) -> Reals:
        """Points [n, size]: each simplex and each knob uniform, then brought into their bounds."""
        points = np.empty((len(frame), self.size))
        self.exponents(points)[...] = uniform_shares(frame.mass, self._shape[2], rng)
        for index, knob in enumerate(self.knobs):
            self.knob_variables(points)[:, index] = rng.uniform(
                knob.places[0], knob.places[-1], len(frame)
            )
        return self.project(points, frame)

    def exponents(self, points: Reals) -> Reals:
        """A view of the exponents of points, [n, axes, primes, levels]."""
        return points[:, : math.prod(self._shape)].reshape(len(points), *self._shape)

    def knob_variables(self, points: Reals) -> Reals:
        """A view of the variables of knobs, [n, knobs]."""
        return points[:, math.prod(self._shape) :]

    def _extended(self, rows: NDArray[_Number]) -> NDArray[_Number]:
        return np.concatenate([rows, np.ones((len(rows), 1), rows.dtype)], axis=1)


_Table = tuple[Whole, Reals, Reals, Reals]


def _axes(sketch: Sketch) -> tuple[Axis, ...]:
    """The products of a sketch.

    Raises:
        InvalidValueError: a product is neither constant nor a parameter that lists its values, or
            a parameter is part of two.
    """
    position = {param.name: column for column, param in enumerate(sketch.params)}
    axes: list[Axis] = []
    taken: set[str] = set()
    for constraint in sketch.constraints:
        if not isinstance(constraint, ProductEquals):
            continue
        names = (*constraint.factors, *sorted(constraint.total.variables))
        twice = [name for name in names if name in taken or names.count(name) > 1]
        if twice:
            raise _refusal(sketch, twice[0], "is part of two products")
        taken.update(names)
        total = None
        extents: tuple[int, ...] = (constraint.total.value or 0,)
        if constraint.total.op == "var":
            total = position[constraint.total.args[0]]
            extents = sketch.params[total].values or ()
        if not extents or min(extents) < 1:
            raise _refusal(
                sketch,
                constraint.factors[0],
                f"is a factor of {constraint.total!r}, which is neither a positive constant nor a "
                "parameter that lists positive values",
            )
        axes.append(
            Axis(
                tuple(position[name] for name in constraint.factors),
                total,
                tuple(extents),
                tuple(sketch.params[position[name]].values for name in constraint.factors),
            )
        )
    return tuple(axes)


def _refusal(sketch: Sketch, name: str, why: str) -> InvalidValueError:
    return InvalidValueError(
        f"sketch {sketch.name!r} cannot be relaxed: parameter {name!r} {why}. Strategies that "
        "need no gradient, such as 'evolutionary', can search this space"
    )


def _knob(column: int, param: Param) -> Knob | None:
    """An ordinal as a knob; None for what is not relaxed."""
    values = np.array(sorted(set(param.values or ())), dtype=np.int64)
    if not isinstance(param, Ordinal) or len(values) < 2 or values[0] < 0:
        return None
    return Knob(column, values, 0 if values[0] else 1)


def _tables(axis: Axis, primes: int, levels: int) -> _Table:
    """Primes of each extent of an axis, [extents, primes], how often, and bounds by level.

    Where there are no more primes or levels, the prime is 1 and the rest 0.
    """
    extents = sorted(set(axis.extents))
    shape = (len(extents), primes)
    names, mass = np.ones(shape, dtype=np.int64), np.zeros(shape)
    low, high = np.zeros((*shape, levels)), np.zeros((*shape, levels))
    for index, extent in enumerate(extents):
        factors = prime_factors(extent)
        own = index, slice(len(factors)), slice(len(axis.columns))
        names[own[:2]], mass[own[:2]] = list(factors), list(factors.values())
        multiplicity = mass[own[:2]][:, None]
        least, most = np.zeros_like(low[own]), multiplicity + np.zeros_like(low[own])
        for level, domain in enumerate(axis.domains):
            usable = [value for value in domain or () if value >= 1 and extent % value == 0]
            # Without any no configuration has this extent, so no point does.
            if usable:
                found = multiplicities(np.array(usable)[:, None], names[own[:2]])
                least[:, level], most[:, level] = found.min(axis=0), found.max(axis=0)
        # What the other levels need at least, and can take at most.
        needed = least.sum(axis=1, keepdims=True) - least
        taken = most.sum(axis=1, keepdims=True) - most
        low[own] = np.maximum(least, multiplicity - taken)
        high[own] = np.minimum(most, np.maximum(least, multiplicity - needed))
    return names, mass, low, high


def multiplicities(numbers: Whole, primes: Whole) -> Whole:
    """Count how often primes divide positive numbers, with broadcasting; 0 for "prime" 1."""
    numbers, primes = np.broadcast_arrays(numbers, primes)
    found = np.zeros(numbers.shape, dtype=np.int64)
    left = numbers.copy()
    divides = (primes > 1) & (left % primes == 0)
    while divides.any():
        found += divides
        left = np.where(divides, left // primes, left)
        divides &= left % primes == 0
    return found
