"""Images resized, and sampled at places between their elements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.networks.graph import (
    Scalar,
    Value,
    binary,
    broadcast,
    cast,
    clamp,
    constant,
    einsum,
    elementwise,
    maximum,
    mean,
    reduce,
    resample,
    reshape,
    select,
    slice_axis,
    take,
    where,
)
from autotune.networks.readers.forms import vector
from autotune.networks.readers.onnx.call import Call, Operator
from autotune.networks.readers.onnx.operators.windows import convolution_window
from autotune.networks.readers.resampling import AxisResize, Image, Interpolation, sampled, taps_of

__all__ = ["RESIZING"]

_CROPS = "tf_crop_and_resize"
# Versions of Resize before this one know scales only, and divide places by them.
_FIRST_WITH_SIZES = 11


def _resize(call: Call) -> Value:
    x, new = call[0], call.kind == "Resize" and call.since >= _FIRST_WITH_SIZES
    axes = [at % x.rank for at in call.attribute("axes") or range(x.rank)]
    mode = call.attribute("mode", "nearest").replace("bilinear", "linear")
    how = Interpolation(mode, "asymmetric", "floor")
    if new:
        how = Interpolation(
            mode,
            call.attribute("coordinate_transformation_mode"),
            call.attribute("nearest_mode"),
            call.attribute("cubic_coeff_a"),
            bool(call.attribute("antialias", 0)),
            bool(call.attribute("exclude_outside")),
            call.attribute("extrapolation_value", 0.0),
        )
    regions = [(0.0, 1.0)] * len(axes)
    if how.coordinates == _CROPS:
        regions = [(float(a), float(b)) for a, b in call.known(1).reshape(2, -1).T]
    changes = _changes(call, x, axes, new)
    if not element_type(x.dtype).is_float and mode != "nearest":
        found = _resized(cast(x, "float64"), axes, changes, regions, how)
        return cast(found, x.dtype)
    return _resized(x, axes, changes, regions, how)


def _changes(call: Call, x: Value, axes: Sequence[int], new: bool) -> list[tuple[int, float]]:
    """The new length of each axis, and its scale."""
    extents = [x.shape[at] for at in axes]
    sizes = call.get(3) if new else None
    if sizes is not None and sizes.size:
        wanted = call.ints(3)
        ratios = [to / extent for to, extent in zip(wanted, extents, strict=True)]
        policy = call.attribute("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [ratio] * len(ratios)
            wanted = [math.floor(ratio * extent + 0.5) for extent in extents]
        return list(zip(wanted, ratios, strict=True))
    scales = call.attribute("scales")
    if scales is None:
        scales = [float(it) for it in call.known(2 if new else 1).ravel()]
    return [
        (math.floor(extent * scale), scale) for extent, scale in zip(extents, scales, strict=True)
    ]


def _resized(
    x: Value,
    axes: Sequence[int],
    changes: Sequence[tuple[int, float]],
    regions: Sequence[tuple[float, float]],
    how: Interpolation,
) -> Value:
    for at, (to, scale), region in zip(axes, changes, regions, strict=True):
        if (to, region) == (x.shape[at], (0.0, 1.0)) and math.isclose(scale, 1):
            continue
        matrix, added = how.weights(AxisResize(x.shape[at], to, scale, region))
        places, weights = taps_of(matrix)
        if places.shape[1] == 1 and (weights == 1).all():
            x = take(x, vector(places[:, 0]), at)
            continue
        x = resample(x, at, places, weights)
        if added.any():
            column = added.reshape(-1, *[1] * (x.rank - at - 1))
            # What is outside along one axis is so whatever another one has there.
            x = select(constant(column != 0), how.outside, x)
    return x


def _grid_sample(call: Call) -> Value:
    mode = call.attribute("mode").replace("bilinear", "linear").replace("bicubic", "cubic")
    corners = bool(call.attribute("align_corners"))
    return sampled(call[0], call[1], mode, call.attribute("padding_mode"), corners)


def _roi_align(call: Call) -> Value:
    x, rois, batch = call[0], call[1], call[2]
    ratio = int(call.attribute("sampling_ratio"))
    if ratio <= 0:
        raise UnsupportedWorkload(
            "how many samples it takes depends on data: export it with a sampling_ratio"
        )
    counts = int(call.attribute("output_height")), int(call.attribute("output_width"))
    half = call.attribute("coordinate_transformation_mode", "output_half_pixel") == "half_pixel"
    scale = float(call.attribute("spatial_scale"))
    places = []
    for axis, (low, high, count) in enumerate(zip((1, 0), (3, 2), counts, strict=True)):
        start, end = (reshape(slice_axis(rois, 1, it, it + 1), (-1, 1)) for it in (low, high))
        shift = 0.5 if half else 0.0
        steps = (np.arange(count * ratio) + 0.5) / ratio

        def place(
            first: Scalar, last: Scalar, at: Scalar, shift: float = shift, count: int = count
        ) -> Scalar:
            begin = first * scale - shift
            length = last * scale - shift - begin
            wide = length if half else maximum(length, 1)
            return begin + at * (wide / count)

        along = elementwise(place, start, end, constant(steps[None, :], rois.dtype))
        shape = [along.shape[0], 1, 1]
        shape[1 + axis] = -1
        places.append(reshape(along, shape))
    shape3 = (rois.shape[0], counts[0] * ratio, counts[1] * ratio)
    flat = [reshape(broadcast(it, shape3), (shape3[0], -1)) for it in places]
    chosen = take(x, batch, 0)
    found = _between_borders(chosen, flat, call.attribute("mode") == "max")
    parts = (*found.shape[:2], counts[0], ratio, counts[1], ratio)
    if call.attribute("mode") == "max":
        return reduce("max", reshape(found, parts), [3, 5], keepdims=False)
    return mean(reshape(found, parts), [3, 5], keepdims=False)


def _between_borders(x: Value, places: Sequence[Value], largest: bool) -> Value:
    """Elements between others; 0 where a place is more than 1 outside of the image.

    With ``largest`` it is the largest of the four products that a sum would have.
    """
    valid: Value | None = None
    clamped = []
    for place, extent in zip(places, x.shape[2:], strict=True):
        here = elementwise(lambda it, end=extent: (it >= -1) & (it <= end), place)
        valid = here if valid is None else binary("and", valid, here)
        clamped.append(clamp(place, 0, extent - 1))
    assert valid is not None
    found = Image.of(x).linear(clamped, False, "max" if largest else "add")
    mask = reshape(valid, (valid.shape[0], 1, -1))
    return elementwise(lambda c, it: where(c, it, 0), mask, found)


def _deform_conv(call: Call) -> Value:
    """A convolution whose window reads at places that are shifted by data."""
    x, w, offset, mask = call[0], call[1], call[2], call.get(4)
    window = convolution_window(call, x, w)
    groups, offset_groups = call.attribute("group"), call.attribute("offset_group")
    kernel, (n, channels) = window.kernel, x.shape[:2]
    rank, taps = len(kernel), math.prod(kernel)
    places = window.places(x.shape[2:])
    shifts = reshape(offset, (n * offset_groups, taps, rank, *places))
    flat = []
    for axis in range(rank):
        grid_shape = [1] * (2 * rank)
        grid_shape[axis], grid_shape[rank + axis] = kernel[axis], places[axis]
        base = np.add.outer(
            np.arange(kernel[axis]) * window.dilations[axis],
            np.arange(places[axis]) * window.strides[axis] - window.low[axis],
        ).reshape(grid_shape)
        whole = np.broadcast_to(base, (*kernel, *places)).reshape(1, taps, *places)
        shift = reshape(slice_axis(shifts, 2, axis, axis + 1), (n * offset_groups, taps, *places))
        place = binary("add", shift, constant(np.ascontiguousarray(whole), offset.dtype))
        flat.append(reshape(place, (n * offset_groups, -1)))
    apart = reshape(x, (n * offset_groups, channels // offset_groups, *x.shape[2:]))
    found = Image.of(apart).linear(flat, True)
    parts = (n, offset_groups, channels // offset_groups, taps, math.prod(places))
    found = reshape(found, parts)
    if mask is not None:
        found = binary("mul", found, reshape(mask, (n, offset_groups, 1, taps, -1)))
    found = reshape(found, (n, groups, channels // groups, taps, -1))
    weights = reshape(w, (groups, w.shape[0] // groups, w.shape[1], taps))
    result = reshape(einsum("ngctp,goct->ngop", found, weights), (n, w.shape[0], *places))
    bias = call.get(3)
    return result if bias is None else binary("add", result, reshape(bias, (-1, *[1] * rank)))


RESIZING: Mapping[str, Operator] = {
    "Resize": _resize,
    "Upsample": _resize,
    "GridSample": _grid_sample,
    "RoiAlign": _roi_align,
    "DeformConv": _deform_conv,
}
