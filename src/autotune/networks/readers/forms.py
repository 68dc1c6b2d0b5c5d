"""Forms of operators that models of ONNX and of torch have alike, and their operands' types.

Images are resized as ONNX's operator specification says, and torch: the result along an axis is a
product of a matrix with what is there, and axes are resized one after the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.ir.element_types import element_type
from autotune.networks.graph import (
    Scalar,
    Value,
    Window,
    binary,
    broadcast,
    cast,
    clamp,
    constant,
    elementwise,
    loop,
    maximum,
    minimum,
    reshape,
    select,
    slice_axis,
    take_along,
    unary,
    where,
    window_reduce,
)
from autotune.networks.graph.making import computed_type

__all__ = [
    "AxisResize",
    "Image",
    "Interpolation",
    "Step",
    "as_type",
    "batch_affine",
    "celu",
    "column",
    "gelu",
    "gelu_tanh",
    "grown",
    "is_float",
    "margins_of_parts",
    "ordered",
    "repeated",
    "sampled",
    "scaled",
    "softplus",
    "taps_of",
    "vector",
    "widened",
    "window_counts",
    "with_bias",
]


def is_float(dtype: str) -> bool:
    """Tell if a type is one of floating-point numbers."""
    return element_type(dtype).is_float


def widened(x: Value) -> Value:
    """The elements in the type that sums of them are of."""
    return cast(x, computed_type(x.dtype))


def vector(numbers: object) -> Value:
    """A constant of int64."""
    return constant(np.asarray(numbers, np.int64))


def as_type(x: Value, dtype: str) -> Value:
    """The elements in another type; what becomes a truth is one unless it is 0."""
    if x.dtype == dtype:
        return x
    if dtype == "bool":
        return elementwise(lambda it: it.differs(0), x, dtype="bool", name="cast")
    if is_float(x.dtype) and dtype.startswith("uint"):
        # Of what does not fit, compilers and processors make different numbers.
        return cast(cast(x, "int64"), dtype)
    return cast(x, dtype)


def ordered(x: Value) -> Value:
    """Truths as whole numbers, which have an order."""
    return as_type(x, "uint8") if x.dtype == "bool" else x


def column(value: Value, rank: int, axis: int = 1) -> Value:
    """A number for each index of an axis, shaped so that it broadcasts to ``rank`` axes."""
    return reshape(value, (-1, *[1] * (rank - 1 - axis)))


def with_bias(found: Value, bias: Value | None) -> Value:
    """``[n, c, *image]`` and a number for each channel added, if there is one."""
    return found if bias is None else binary("add", found, column(bias, found.rank))


# Functions of an element.


def softplus(x: Scalar) -> Scalar:
    """``log(1 + exp(x))``, also of large numbers."""
    return maximum(x, 0) + (1 + (-x.call("abs")).call("exp")).call("log")


def celu(x: Scalar, alpha: float = 1.0) -> Scalar:
    """``x``, below 0 an exponential that is as steep there."""
    return where(x < 0, ((x / alpha).call("exp") - 1) * alpha, x)


def gelu(x: Scalar) -> Scalar:
    """``x`` times the share of a normal distribution below it."""
    return x * 0.5 * ((x * math.sqrt(0.5)).call("erf") + 1)


def gelu_tanh(x: Scalar) -> Scalar:
    """Approximate :func:`gelu`."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (inner.call("tanh") + 1)


# Normalisations.


def scaled(x: Value, scale: Value | None, bias: Value | None, dtype: str) -> Value:
    """``x * scale + bias`` in the type of ``x``, and then in another one."""
    if scale is not None:
        x = binary("mul", x, cast(scale, x.dtype))
    if bias is not None:
        x = binary("add", x, cast(bias, x.dtype))
    return cast(x, dtype)


def batch_affine(
    x: Value, centre: Value, spread: Value, scale: Value, bias: Value, epsilon: float
) -> Value:
    """``(x - centre) / sqrt(spread + epsilon) * scale + bias`` as one product and one sum.

    Args:
        x: ``[n, c, *image]``.
        centre: ``[c]``, as ``spread``, ``scale`` and ``bias``.
        spread: The variance.
        scale: The factor.
        bias: The term.
        epsilon: Added to the variance.
    """
    kind = computed_type(x.dtype)
    centre, spread, scale, bias = (
        column(cast(it, kind), x.rank) for it in (centre, spread, scale, bias)
    )
    factor = elementwise(lambda s, v: s / (v + epsilon).call("sqrt"), scale, spread)
    offset = elementwise(lambda b, c, f: b - c * f, bias, centre, factor)
    found = elementwise(
        lambda it, by, more: it * by + more, widened(x), factor, offset, name="batch_norm"
    )
    return cast(found, x.dtype)


# Pools.


def margins_of_parts(window: Window, image: Sequence[int]) -> tuple[int, ...]:
    """Elements by which margins behind grow, so that part windows are taken in.

    None begins in the margin behind the image.
    """
    more = []
    for at, extent in enumerate(image):
        stride, low = window.strides[at], window.low[at]
        reach = (window.kernel[at] - 1) * window.dilations[at] + 1
        room = extent + low + window.high[at] - reach
        count = -(-room // stride) + 1
        if (count - 1) * stride >= extent + low:
            count -= 1
        more.append(max(0, (count - 1) * stride - room))
    return tuple(more)


def grown(window: Window, more: Sequence[int]) -> Window:
    """The window with larger margins behind."""
    high = [it + extra for it, extra in zip(window.high, more, strict=True)]
    return Window(window.kernel, window.strides, window.low, high, window.dilations)


def window_counts(
    image: Sequence[int], window: Window, more: Sequence[int], dtype: str, margins: bool
) -> Value:
    """The number of elements of each window, ``[1, 1, *places]``.

    Args:
        image: Extents.
        window: The window.
        more: As of :func:`margins_of_parts`; what part windows have there does not count.
        dtype: Type of the result.
        margins: Whether the window's own margins count.
    """
    around = grown(window, more)
    if margins:
        image = [sum(it) for it in zip(window.low, image, window.high, strict=True)]
        none = [0] * len(image)
        around = Window(window.kernel, window.strides, none, more, window.dilations)
    return window_reduce("add", constant(np.ones((1, 1, *image)), dtype), around)


# Recurrences.

Step = Callable[[Sequence[Value], Value, Sequence[Value]], list[Value]]
"""From states, the inputs' part of the gates, and weights to the next states."""


def repeated(
    step: Step,
    inputs: Value,
    starts: Sequence[Value],
    fixed: Sequence[Value],
    reverse: bool,
    mask: Value | None = None,
) -> tuple[Value, list[Value]]:
    """All first states ``[time, batch, hidden]`` of a step along time, and the last states.

    Args:
        step: The step.
        inputs: ``[time, batch, gates]``.
        starts: The states before the first step.
        fixed: Weights.
        reverse: Whether the last of ``inputs`` comes first.
        mask: ``[time, batch, 1]``; where it ends, states stay and what is shown is 0.
    """

    def one(
        states: Sequence[Value], slices: Sequence[Value], known: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        after = step(states, slices[0], known)
        if mask is None:
            return after, [after[0]]
        shown = select(slices[1], after[0], 0)
        kept = [select(slices[1], new, old) for new, old in zip(after, states, strict=True)]
        return kept, [shown]

    slices = [inputs] if mask is None else [inputs, mask]
    last, kept = loop(
        one, inputs.shape[0], starts, slices, fixed, [reverse] * len(slices), [reverse]
    )
    return kept[0], last


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


_COORDINATES: dict[str, Callable[[AxisResize, Numbers], Numbers]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": _torch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_half_pixel_for_nn": _half_pixel_for_nearest,
    "tf_crop_and_resize": _crop,
}
"""Position of a result's element among the elements before, by name of the transformation."""

_ROUNDINGS: dict[str, Callable[[Numbers], Numbers]] = {
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
        coordinates: One of :data:`_COORDINATES`.
        rounding: One of :data:`_ROUNDINGS`, for ``nearest``.
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
        at = _COORDINATES[self.coordinates](axis, np.arange(axis.to, dtype=np.float64))
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
            nearest = _ROUNDINGS[self.rounding](at).astype(np.int64)[:, None]
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
            factor: Value | None = None
            whole = []
            for axis, (place, step) in enumerate(zip(places, corner, strict=True)):
                floor = unary("floor", place)
                share = elementwise(lambda it, low, at=step: weights(it - low, at), place, floor)
                factor = share if factor is None else binary("mul", factor, share)
                whole.append(cast(found_place(binary("add", floor, step), axis), "int64"))
            assert factor is not None
            element = self.at(whole, outside)
            by = reshape(cast(factor, element.dtype), (-1, 1, factor.shape[1]))
            part = binary("mul", element, by)
            total = part if total is None else binary(combiner, total, part)
        assert total is not None
        return total


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
