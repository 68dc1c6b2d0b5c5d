"""Configurations as points of a unit cube, for models that see parameters alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import combinations

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.sketches import CandidateBatch, Categorical, Param, Sketch
from autotune.sketches.candidates import Matrix
from autotune.spaces.parameters import column_scale

__all__ = ["Encoding", "encoding_for"]

Points = NDArray[np.float64]
_ABSENT = 0.5
_MOST_SIZES = 12
"""Of more sizes no products are formed: there would be too many for their weights to be found."""
_SIMPLEX = 0.5**0.5  # Two different choices are at distance 1.


@frozen(eq=False)
class _Feature:
    """Coordinates that are computed from one parameter or more; low is moved to 0, high to 1.

    ``places`` has, for each sketch, the columns of these parameters; none where it lacks one.
    """

    places: tuple[tuple[int, ...], ...]
    columns: Callable[[Matrix], Points]
    low: float = 0.0
    high: float = 1.0

    def block(self, part: int, matrix: Matrix) -> Points:
        """The coordinates of rows of a sketch; [n, coordinates]."""
        places = self.places[part]
        if not places:
            return np.full((len(matrix), self.width), _ABSENT)
        return (self.columns(matrix[:, places]) - self.low) / (self.high - self.low)

    @cached_property
    def width(self) -> int:
        """Number of coordinates."""
        count = max(map(len, self.places))
        return int(self.columns(np.zeros((1, count), dtype=np.int64)).shape[1])


@frozen(eq=False)
class Encoding:
    """Maps configurations of several sketches to points.

    A number becomes its binary logarithm where all its values are positive (sizes act by ratios),
    scaled to [0, 1]; of whole numbers the exponent of two in them is a coordinate of its own,
    since alignment and bank conflicts depend on it. So is the product of every two sizes: threads
    of a block, elements of a tile. An unordered choice, the sketch among them, becomes a corner of
    a simplex. What a sketch lacks is in the middle.

    Attributes:
        sketches: The sketches, in order.
        groups: For each coordinate the number of what it describes; those of a simplex share one.
    """

    sketches: tuple[Sketch, ...]
    groups: NDArray[np.int64]
    _features: tuple[_Feature, ...]

    def encode(self, batch: CandidateBatch) -> Points:
        """The point of each row; [n, coordinates]."""
        batch = batch.over(self.sketches)
        blocks = [
            np.concatenate(
                [feature.block(part, matrix) for part, matrix in enumerate(batch.matrices)]
            )
            for feature in self._features
        ]
        if len(self.sketches) > 1:
            blocks.append(_SIMPLEX * np.eye(len(self.sketches))[batch.owners])
        return np.concatenate([np.zeros((len(batch), 0)), *blocks], axis=1)


def encoding_for(reference: CandidateBatch) -> Encoding:
    """The encoding of a space, scaled by some or all of its rows; constants get no coordinate."""
    features: list[_Feature] = []
    sizes: list[_Feature] = []
    for param, places in _params(reference):
        columns = [
            matrix[:, own] for own, matrix in zip(places, reference.matrices, strict=True) if own
        ]
        values = np.unique(np.concatenate(columns))
        if len(values) > 1:
            found = list(_features_of(param, places, values[:, None]))
            features += found
            if len(values) > 2 and _is_size(param, values):
                sizes.append(found[0])
    if len(sizes) <= _MOST_SIZES:
        products = (_product(one, other, reference) for one, other in combinations(sizes, 2))
        features += [it for it in products if it is not None]
    widths = [feature.width for feature in features]
    if len(reference.sketches) > 1:
        widths.append(len(reference.sketches))
    groups = np.repeat(np.arange(len(widths)), np.array(widths, dtype=np.int64))
    return Encoding(reference.sketches, groups, tuple(features))


def _params(reference: CandidateBatch) -> list[tuple[Param, tuple[tuple[int, ...], ...]]]:
    """Each parameter once, with its column in each sketch; those of one name are one parameter,
    unless they have other labels."""
    found: dict[tuple[str, object], tuple[Param, dict[int, int]]] = {}
    for part, sketch in enumerate(reference.sketches):
        for place, param in enumerate(sketch.params):
            key = (param.name, param.labels if isinstance(param, Categorical) else None)
            found.setdefault(key, (param, {}))[1][part] = place
    parts = range(len(reference.sketches))
    return [
        (param, tuple((at[part],) if part in at else () for part in parts))
        for param, at in found.values()
    ]


def _numbers(param: Param, column: Matrix) -> Points | None:
    """Numbers that values stand for; None for an unordered choice."""
    if not isinstance(param, Categorical):
        return column.astype(np.float64)
    scale = column_scale(param)
    return None if scale is None else scale[column]


def _is_size(param: Param, values: NDArray[np.int64]) -> bool:
    numbers = _numbers(param, values)
    return numbers is not None and bool(numbers.min() > 0)


def _features_of(
    param: Param, places: tuple[tuple[int, ...], ...], values: Matrix
) -> Iterator[_Feature]:
    """The features of one parameter alone; ``values`` are those that it has, [values, 1]."""
    numbers = _numbers(param, values)
    if numbers is None:
        corners = _SIMPLEX * np.eye(len(param.values or ()))
        yield _Feature(places, lambda column: corners[column[:, 0]])
        return
    least = numbers.min()

    def size(column: Matrix) -> Points:
        own = _numbers(param, column)
        assert own is not None
        if least < 0:
            return own
        # Cut off for values outside of the reference rows; what starts at 0 is shifted.
        return np.asarray(np.log2(np.maximum(own, least) + (least == 0)))

    def power_of_two(column: Matrix) -> Points:
        own = _numbers(param, column)
        assert own is not None
        whole = own.astype(np.int64)
        return np.asarray(np.log2(np.maximum(whole & -whole, 1).astype(np.float64)))

    sizes = size(values)
    yield _Feature(places, size, sizes.min(), sizes.max())
    if least > 0 and len(values) > 2 and not (numbers % 1).any():
        powers = power_of_two(values)
        if np.ptp(powers) > 0 and not np.allclose(_unit(powers), _unit(sizes)):
            yield _Feature(places, power_of_two, powers.min(), powers.max())


def _product(one: _Feature, other: _Feature, reference: CandidateBatch) -> _Feature | None:
    """The product of two sizes; None where they are in no sketch together, or it is constant."""
    places = tuple(
        left + right if left and right else ()
        for left, right in zip(one.places, other.places, strict=True)
    )

    def columns(pair: Matrix) -> Points:
        return one.columns(pair[:, :1]) + other.columns(pair[:, 1:])

    found = [
        columns(matrix[:, own])
        for own, matrix in zip(places, reference.matrices, strict=True)
        if own and len(matrix)
    ]
    if not found:
        return None
    low, high = min(map(np.min, found)), max(map(np.max, found))
    return _Feature(places, columns, low, high) if low < high else None


def _unit(column: Points) -> Points:
    return np.asarray((column - column.min()) / np.ptp(column))
