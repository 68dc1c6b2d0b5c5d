"""Images resized, as ONNX's operator specification says, and torch, or sampled between elements.

The result of resizing along an axis is a product of a matrix with what is there; axes are resized
one after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.networks.graph import (
    Scalar,
    Value,
    binary,
    broadcast,
    cast,
    clamp,
    elementwise,
    minimum,
    reshape,
    slice_axis,
    take_along,
    unary,
    where,
)
from autotune.networks.readers.forms import widened

__all__ = [
    "taps_of",
    "AxisResize",
    "COORDINATES",
    "Image",
    "Interpolation",
    "ROUNDINGS",
    "sampled",
]

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
"""Position of a result's element among the elements before, by name of the transformation."""

ROUNDINGS: dict[str, Callable[[Numbers], Numbers]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""Choices of the nearest element, by name."""


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


def taps_of(matrix: Numbers) -> tuple[NDArray[np.int64], Numbers]:
    """Places ``[to, taps]`` of what is not 0 in the rows of a matrix, and the numbers there."""
    taps = max(1, int((matrix != 0).sum(1).max(initial=0)))
    places = np.argsort(matrix == 0, axis=1, kind="stable")[:, :taps]
    return places, np.take_along_axis(matrix, places, 1)


def _triangle(away: Numbers) -> Numbers:
    return np.clip(1.0 - away, 0.0, None)


def _cubic(away: Numbers, a: float) -> Numbers:
    near = ((a + 2) * away - (a + 3)) * away * away + 1
    far = ((a * away - 5 * a) * away + 8 * a) * away - 4 * a
    return np.where(away <= 1, near, np.where(away < 2, far, 0.0))


def _lanczos(away: Numbers) -> Numbers:
    return np.where(away < 3, np.sinc(away) * np.sinc(away / 3), 0.0)


@frozen(eq=False)
class Image:
    """An image whose elements are read at places that are computed.

    Attributes:
        flat: ``[n, c, elements]``.
        extents: Of the image.
    """

    flat: Value
    extents: tuple[int, ...]

    @staticmethod
    def of(x: Value) -> Image:
        """An image ``[n, c, *image]``."""
        return Image(reshape(x, (*x.shape[:2], -1)), x.shape[2:])

    def at(self, places: Sequence[Value], outside: bool) -> Value:
        """Elements ``[n, c, p]`` at whole places ``[n, p]`` of each axis.

        Args:
            places: Indices (int64).
            outside: Whether places outside are 0, in place of the nearest element.
        """
        index: Value | None = None
        inside: Value | None = None
        for place, extent in zip(places, self.extents, strict=True):
            near = clamp(place, 0, extent - 1)
            index = near if index is None else binary("add", binary("mul", index, extent), near)
            here = elementwise(lambda it, last=extent - 1: (it >= 0) & (it <= last), place)
            inside = here if inside is None else binary("and", inside, here)
        assert index is not None and inside is not None
        shape = (*self.flat.shape[:2], index.shape[-1])
        batch = (index.shape[0], 1, index.shape[-1])
        found = take_along(self.flat, broadcast(reshape(index, batch), shape), 2)
        if not outside:
            return found
        return elementwise(lambda c, it: where(c, it, 0), reshape(inside, batch), found)

    def linear(self, places: Sequence[Value], outside: bool, combiner: str = "add") -> Value:
        """Elements at places between others, by the distance from those around."""
        return self.interpolated(places, outside, (0, 1), _linear_weights, combiner=combiner)

    def interpolated(
        self,
        places: Sequence[Value],
        outside: bool,
        steps: Sequence[int],
        weights: Callable[[Scalar, int], Scalar],
        found_place: Callable[[Value, int], Value] = lambda place, axis: place,
        combiner: str = "add",
    ) -> Value:
        """The elements around each place, times weights, added up or else combined."""
        total: Value | None = None
        for corner in itertools.product(steps, repeat=len(places)):
            part = self.product(places, outside, corner, weights, found_place)
            total = part if total is None else binary(combiner, total, part)
        assert total is not None
        return total

    def product(
        self,
        places: Sequence[Value],
        outside: bool,
        corner: Sequence[int],
        weights: Callable[[Scalar, int], Scalar],
        found_place: Callable[[Value, int], Value],
    ) -> Value:
        """The elements some steps away from each place, times their weights."""
        factor: Value | None = None
        whole = []
        for axis, (place, step) in enumerate(zip(places, corner, strict=True)):
            floor = unary("floor", place)
            share = elementwise(lambda it, low, at=step: weights(it - low, at), place, floor)
            factor = share if factor is None else binary("mul", factor, share)
            whole.append(cast(found_place(binary("add", floor, step), axis), "int64"))
        assert factor is not None
        element = self.at(whole, outside)
        return binary(
            "mul", element, reshape(cast(factor, element.dtype), (-1, 1, factor.shape[1]))
        )


def _linear_weights(apart: Scalar, step: int) -> Scalar:
    return apart if step else 1 - apart


def _cubic_weights(apart: Scalar, step: int) -> Scalar:
    away = (apart - step).call("abs")
    a = -0.75
    near = ((away * (a + 2) - (a + 3)) * away) * away + 1
    far = ((away * a - 5 * a) * away + 8 * a) * away - 4 * a
    return where(away <= 1, near, far)


def _reflected(place: Value, low: float, high: float) -> Value:
    """Within bounds, turned around at them as often as need be."""
    span = high - low
    if span <= 0:
        return binary("mul", place, 0.0)

    def turned(it: Scalar) -> Scalar:
        away = (it - low).call("abs")
        rest = away % (2 * span)
        return minimum(rest, -rest + 2 * span) + low

    return elementwise(turned, place)


def sampled(x: Value, grid: Value, mode: str, padding: str, corners: bool) -> Value:
    """An image at places between -1 and 1 along each axis.

    Args:
        x: ``[n, c, *image]``.
        grid: ``[n, *shape, rank]``: places, of the last axis of the image first.
        mode: ``nearest``, ``linear`` or ``cubic``.
        padding: What is outside: ``zeros``, ``border`` or ``reflection``.
        corners: Whether -1 and 1 are the centres of the outermost elements, or their borders.
    """
    rank, shape = x.rank - 2, grid.shape[1:-1]
    flat = reshape(widened(grid), (grid.shape[0], -1, rank))
    places = []
    for axis, extent in enumerate(x.shape[2:]):
        at = reshape(slice_axis(flat, 2, rank - 1 - axis, rank - axis), flat.shape[:2])
        scale, shift = ((extent - 1) / 2, 0.0) if corners else (extent / 2, -0.5)
        places.append(elementwise(lambda it, by=scale, more=shift: (it + 1) * by + more, at))
    outside = padding == "zeros"

    def inside(place: Value, axis: int) -> Value:
        """A place by the mode of what is outside."""
        extent = x.shape[2 + axis]
        if padding == "reflection":
            low, high = (0, extent - 1) if corners else (-0.5, extent - 0.5)
            place = _reflected(place, low, high)
        return place if outside else clamp(place, 0, extent - 1)

    image = Image.of(x)
    if mode == "cubic":
        found = image.interpolated(places, outside, (-1, 0, 1, 2), _cubic_weights, inside)
    else:
        places = [inside(place, axis) for axis, place in enumerate(places)]
        if mode == "nearest":
            found = image.at([cast(unary("round", it), "int64") for it in places], outside)
        else:
            found = image.linear(places, outside)
    return reshape(found, (*x.shape[:2], *shape))
