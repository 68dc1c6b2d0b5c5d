"""Weights with which an axis is resized, as ONNX's operator specification says, and torch.

The result along an axis is a product of a matrix with what is there; axes are resized one after
the other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

__all__ = ["COORDINATES", "ROUNDINGS", "AxisResize", "Interpolation"]

Numbers = NDArray[np.float64]

_RADII = {"linear": 1, "cubic": 2, "lanczos": 3}


@frozen
class AxisResize:
    """Change of an axis.

    Attributes:
        extent: Elements before.
        to: Elements after.
        scale: Elements after for each one before, not rounded.
        region: Begin and end of the part that is resized, as parts of the axis; for coordinates
            ``tf_crop_and_resize``.
    """

    extent: int
    to: int
    scale: float
    region: tuple[float, float] = (0.0, 1.0)


def _half_pixel(axis: AxisResize, at: Numbers) -> Numbers:
    return (at + 0.5) / axis.scale - 0.5


def _symmetric(axis: AxisResize, at: Numbers) -> Numbers:
    rounded = axis.to / (axis.scale * axis.extent)
    return axis.extent / 2 * (1 - rounded) + _half_pixel(axis, at)


def _torch_half_pixel(axis: AxisResize, at: Numbers) -> Numbers:
    return _half_pixel(axis, at) if axis.to > 1 else np.zeros_like(at)


def _align_corners(axis: AxisResize, at: Numbers) -> Numbers:
    length = axis.scale * axis.extent
    return np.zeros_like(at) if length == 1 else at * (axis.extent - 1) / (length - 1)


def _asymmetric(axis: AxisResize, at: Numbers) -> Numbers:
    return at / axis.scale


def _half_pixel_for_nearest(axis: AxisResize, at: Numbers) -> Numbers:
    return (at + 0.5) / axis.scale


def _crop(axis: AxisResize, at: Numbers) -> Numbers:
    (begin, end), length = axis.region, axis.scale * axis.extent
    last = axis.extent - 1
    if length == 1:
        return np.full_like(at, (begin + end) * last / 2)
    return begin * last + at * (end - begin) * last / (length - 1)


COORDINATES: dict[str, Callable[[AxisResize, Numbers], Numbers]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": _torch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_half_pixel_for_nn": _half_pixel_for_nearest,
    "tf_crop_and_resize": _crop,
}
"""Where an element of the result is among the elements before, by name of the transformation."""

ROUNDINGS: dict[str, Callable[[Numbers], Numbers]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""Which element is the nearest one, by name."""


@frozen
class Interpolation:
    """Interpolation of elements between others.

    Attributes:
        mode: ``nearest``, ``linear``, ``cubic`` or ``lanczos``.
        coordinates: One of :data:`COORDINATES`.
        rounding: One of :data:`ROUNDINGS`, for ``nearest``.
        coefficient: Of the cubic polynomial (Keys' ``a``).
        smooth: Whether a result of fewer elements is an average of all that it stands for.
        leave_out: Whether elements outside have no weight; otherwise they are those at the ends.
        outside: The result at places outside, for ``tf_crop_and_resize``.
    """

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    coefficient: float = -0.75
    smooth: bool = False
    leave_out: bool = False
    outside: float = 0.0

    def weights(self, axis: AxisResize) -> tuple[Numbers, Numbers]:
        """The matrix ``[to, extent]`` for an axis, and what is added to its product ``[to]``."""
        at = COORDINATES[self.coordinates](axis, np.arange(axis.to, dtype=np.float64))
        weights, places = self._taps(at, axis.scale)
        if self.leave_out:
            weights = np.where((places < 0) | (places >= axis.extent), 0.0, weights)
            total = weights.sum(1, keepdims=True)
            weights = weights / np.where(total == 0, 1.0, total)
        matrix = np.zeros((axis.to, axis.extent))
        rows = np.broadcast_to(np.arange(axis.to)[:, None], places.shape)
        np.add.at(matrix, (rows, np.clip(places, 0, axis.extent - 1)), weights)
        added = np.zeros(axis.to)
        if self.coordinates == "tf_crop_and_resize":
            is_outside = (at < 0) | (at > axis.extent - 1)
            matrix[is_outside], added[is_outside] = 0.0, self.outside
        return matrix, added

    def _taps(self, at: Numbers, scale: float) -> tuple[Numbers, NDArray[np.int64]]:
        """Weights and places of the elements that count for each of the result."""
        if self.mode == "nearest":
            nearest = ROUNDINGS[self.rounding](at).astype(np.int64)[:, None]
            return np.ones(nearest.shape), nearest
        shrink = min(scale, 1.0) if self.smooth else 1.0
        radius = int(np.ceil(_RADII[self.mode] / shrink))
        places = np.floor(at).astype(np.int64)[:, None] + np.arange(1 - radius, radius + 1)
        away = np.abs(places - at[:, None]) * shrink
        if self.mode == "cubic":
            weights = _cubic(away, self.coefficient)
        else:
            weights = _triangle(away) if self.mode == "linear" else _lanczos(away)
        return weights / weights.sum(1, keepdims=True), places


def _triangle(away: Numbers) -> Numbers:
    return np.clip(1.0 - away, 0.0, None)


def _cubic(away: Numbers, a: float) -> Numbers:
    near = ((a + 2) * away - (a + 3)) * away * away + 1
    far = ((a * away - 5 * a) * away + 8 * a) * away - 4 * a
    return np.where(away <= 1, near, np.where(away < 2, far, 0.0))


def _lanczos(away: Numbers) -> Numbers:
    return np.where(away < 3, np.sinc(away) * np.sinc(away / 3), 0.0)
