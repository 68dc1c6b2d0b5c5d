"""Configurations as points of a unit cube, for models that see parameters alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.sketches import CandidateBatch, Categorical, Param, Sketch
from autotune.sketches.candidates import Matrix
from autotune.spaces.parameters import column_scale

__all__ = ["Encoding", "encoding_for"]

Points = NDArray[np.float64]
_ABSENT = 0.5
_SIMPLEX = 0.5**0.5  # Two different choices are at distance 1.


@frozen(eq=False)
class _Feature:
    """One or more columns, computed from one parameter; ``low`` goes to 0 and ``high`` to 1."""

    params: tuple[int, ...]
    columns: Callable[[NDArray[np.int64]], Points]
    low: float
    high: float


@frozen(eq=False)
class Encoding:
    """Maps configurations of several sketches to points.

    A number becomes its binary logarithm where all its values are positive (sizes act by ratios),
    scaled to [0, 1]; of whole numbers the exponent of two in them is a coordinate of its own,
    since alignment and bank conflicts depend on it. An unordered choice, the sketch among them,
    becomes a corner of a simplex. A parameter that a sketch lacks is in the middle.

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
                [
                    _block(feature, feature.params[part], matrix)
                    for part, matrix in enumerate(batch.matrices)
                ]
            )
            for feature in self._features
        ]
        if len(self.sketches) > 1:
            blocks.append(_SIMPLEX * np.eye(len(self.sketches))[batch.owners])
        return np.concatenate([np.zeros((len(batch), 0)), *blocks], axis=1)


def encoding_for(reference: CandidateBatch) -> Encoding:
    """The encoding of a space, scaled by some or all of its rows; constants get no coordinate."""
    found: dict[tuple[str, object], dict[int, int]] = {}
    params: dict[tuple[str, object], Param] = {}
    for part, sketch in enumerate(reference.sketches):
        for place, param in enumerate(sketch.params):
            key = (param.name, param.labels if isinstance(param, Categorical) else None)
            found.setdefault(key, {})[part] = place
            params.setdefault(key, param)
    features: list[_Feature] = []
    for key, places in found.items():
        values = np.unique(
            np.concatenate([reference.matrices[part][:, at] for part, at in places.items()])
        )
        where = tuple(places.get(part, -1) for part in range(len(reference.sketches)))
        if len(values) > 1:
            features += _features_of(params[key], where, values)
    widths = [_block(feature, 0, np.zeros((1, 1), np.int64)).shape[1] for feature in features]
    if len(reference.sketches) > 1:
        widths.append(len(reference.sketches))
    groups = np.repeat(np.arange(len(widths)), widths)
    return Encoding(reference.sketches, groups, tuple(features))


def _block(feature: _Feature, place: int, matrix: Matrix) -> Points:
    if place < 0:
        width = feature.columns(np.zeros(1, dtype=np.int64)).shape[1]
        return np.full((len(matrix), width), _ABSENT)
    span = feature.high - feature.low
    return np.asarray((feature.columns(matrix[:, place]) - feature.low) / span)


def _features_of(
    param: Param, where: tuple[int, ...], values: NDArray[np.int64]
) -> Iterator[_Feature]:
    scale = column_scale(param)
    if isinstance(param, Categorical) and scale is None:
        corners = _SIMPLEX * np.eye(len(param.labels))
        yield _Feature(where, lambda column: corners[column], 0.0, 1.0)
        return
    labels = scale if isinstance(param, Categorical) else None

    def number(column: NDArray[np.int64]) -> Points:
        numbers = column.astype(np.float64) if labels is None else labels[column]
        return numbers[:, None]

    least = float(number(values).min())

    def size(column: NDArray[np.int64]) -> Points:
        numbers = number(column)
        if least < 0:
            return numbers
        # Cut off for values outside of the reference rows; what starts at 0 is shifted.
        return np.asarray(np.log2(np.maximum(numbers, least) + (least == 0)))

    def power_of_two(column: NDArray[np.int64]) -> Points:
        whole = column if labels is None else labels[column].astype(np.int64)
        return np.asarray(np.log2(np.maximum(whole & -whole, 1))[:, None].astype(np.float64))

    sizes = size(values)
    yield _Feature(where, size, float(sizes.min()), float(sizes.max()))
    if least > 0 and len(values) > 2 and bool((number(values) % 1 == 0).all()):
        powers = power_of_two(values)
        if np.ptp(powers) > 0 and not np.allclose(_unit(powers), _unit(sizes)):
            yield _Feature(where, power_of_two, float(powers.min()), float(powers.max()))


def _unit(column: Points) -> Points:
    return np.asarray((column - column.min()) / np.ptp(column))
