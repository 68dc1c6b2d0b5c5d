"""Images sampled at places between their elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from attrs import frozen

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

__all__ = ["Image", "sampled"]


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
    wide = cast(grid, "float32") if grid.dtype in ("float16", "bfloat16") else grid
    flat = reshape(wide, (grid.shape[0], -1, rank))
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
