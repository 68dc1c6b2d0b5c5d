"""Convolutions and pooling; images resized, and sampled at places between their elements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from autotune.errors import UnsupportedWorkload
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
    convolution,
    convolution_integer,
    einsum,
    elementwise,
    maximum,
    mean,
    pad,
    reduce,
    resample,
    reshape,
    scatter_along,
    select,
    slice_axis,
    take,
    transposed_convolution,
    unary,
    where,
    window_arg,
    window_reduce,
)
from autotune.networks.graph.making import computed_type
from autotune.networks.readers.forms import (
    AxisResize,
    Image,
    Interpolation,
    grown,
    margins_of_parts,
    sampled,
    taps_of,
    vector,
    widened,
    window_counts,
    with_bias,
)
from autotune.networks.readers.onnx.call import Call, Operator
from autotune.networks.readers.onnx.operators.products import byte_factors, scaled_sums

__all__ = ["WINDOWS", "convolution_window"]


def convolution_window(call: Call, x: Value, w: Value) -> Window:
    """The window of a convolution, by its attributes and weights."""
    kernel = call.attribute("kernel_shape") or w.shape[2:]
    return _window(call, x.shape[2:], kernel)


def _steps(call: Call, rank: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Strides and dilations along each axis of an image, and margins before and behind it."""
    strides = call.attribute("strides") or [1] * rank
    dilations = call.attribute("dilations") or [1] * rank
    pads = call.attribute("pads") or [0] * (2 * rank)
    return list(strides), list(dilations), list(pads[:rank]), list(pads[rank:])


def _window(call: Call, image: Sequence[int], kernel: Sequence[int]) -> Window:
    """A window by the attributes that convolutions and pools share."""
    rank = len(image)
    strides, dilations, low, high = _steps(call, rank)
    how = call.attribute("auto_pad", "NOTSET")
    for at in range(rank if how != "NOTSET" else 0):
        reach = (kernel[at] - 1) * dilations[at] + 1
        total = max(0, (-(-image[at] // strides[at]) - 1) * strides[at] + reach - image[at])
        total = 0 if how == "VALID" else total
        low[at] = -(-total // 2) if how == "SAME_LOWER" else total // 2
        high[at] = total - low[at]
    return Window(kernel, strides, low, high, dilations)


def _conv(call: Call) -> Value:
    x, w = call[0], call[1]
    window, groups = convolution_window(call, x, w), call.attribute("group", 1)
    pair = byte_factors(call, x, w, 0)
    if pair is None:
        return with_bias(convolution(x, w, window, groups), call.get(2))
    a, b = pair
    total = convolution_integer(a.stored, b.stored, window, groups, a.zero, b.zero)
    return with_bias(scaled_sums(total, a, b, x.rank - 2), call.get(2))


def _conv_integer(call: Call) -> Value:
    x, w = call[0], call[1]
    window, groups = convolution_window(call, x, w), call.attribute("group", 1)
    return convolution_integer(x, w, window, groups, call.get(2), call.get(3))


def _conv_transpose(call: Call) -> Value:
    x, w = call[0], call[1]
    image, kernel = x.shape[2:], call.attribute("kernel_shape") or w.shape[2:]
    rank = len(image)
    strides, dilations, low, high = _steps(call, rank)
    more = list(call.attribute("output_padding") or [0] * rank)
    how, wanted = call.attribute("auto_pad", "NOTSET"), call.attribute("output_shape")
    if how == "VALID":
        low, high = [0] * rank, [0] * rank
    elif how != "NOTSET" and wanted is None:
        wanted = [extent * stride for extent, stride in zip(image, strides, strict=True)]
    for at, length in enumerate(list(wanted or [])[-rank:]):
        reach = (kernel[at] - 1) * dilations[at] + 1
        total = strides[at] * (image[at] - 1) + more[at] + reach - length
        low[at] = total // 2 if how == "SAME_UPPER" else total - total // 2
        high[at] = total - low[at]
    window = Window(kernel, strides, low, high, dilations)
    groups = call.attribute("group", 1)
    return with_bias(transposed_convolution(x, w, window, groups, more), call.get(2))


def _pool_window(call: Call, x: Value) -> tuple[Window, tuple[int, ...]]:
    """The window of a pool, and by how much its margins behind grow to take part ones in."""
    image = x.shape[2:]
    window = _window(call, image, call.attribute("kernel_shape"))
    if not call.attribute("ceil_mode") or call.attribute("auto_pad", "NOTSET") != "NOTSET":
        return window, (0,) * len(image)
    return window, margins_of_parts(window, image)


def _max_pool(call: Call) -> list[Value]:
    x = call[0]
    window = grown(*_pool_window(call, x))
    found = [window_reduce("max", x, window)]
    if not call.wants(1):
        return found
    image = x.shape[2:]
    places = window_arg(x, window)
    if call.attribute("storage_order"):
        places = _by_columns(places, image)
    channels = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(image))
    return [*found, binary("add", places, vector(channels * math.prod(image)))]


def _by_columns(places: Value, image: Sequence[int]) -> Value:
    """Places counted along the first axis first."""
    rows = math.prod(image)
    found: Value | None = None
    step = 1
    for extent in image:
        rows //= extent
        index = binary("mod", binary("div", places, rows), extent)
        part = binary("mul", index, step)
        found = part if found is None else binary("add", found, part)
        step *= extent
    return places if found is None else found


def _average_pool(call: Call) -> Value:
    x = call[0]
    window, more = _pool_window(call, x)
    total = window_reduce("add", x, grown(window, more), computed_type(x.dtype))
    margins = bool(call.attribute("count_include_pad"))
    count = window_counts(x.shape[2:], window, more, total.dtype, margins)
    return cast(binary("div", total, count), x.dtype)


def _powers(x: Value, p: float) -> Value:
    wide = unary("abs", widened(x))
    return binary("mul", wide, wide) if p == 2 else wide if p == 1 else binary("pow", wide, p)


def _root(x: Value, p: float) -> Value:
    return unary("sqrt", x) if p == 2 else x if p == 1 else binary("pow", x, 1 / p)


def _lp_pool(call: Call) -> Value:
    x, p = call[0], call.attribute("p")
    total = window_reduce("add", _powers(x, p), grown(*_pool_window(call, x)))
    return cast(_root(total, p), x.dtype)


def _global(kind: str, call: Call) -> Value:
    x = call[0]
    axes = list(range(2, x.rank))
    if kind == "max":
        return reduce("max", x, axes)
    if kind == "mean":
        return mean(x, axes)
    p = call.attribute("p", 2)
    return cast(_root(reduce("add", _powers(x, p), axes), p), x.dtype)


def _max_unpool(call: Call) -> Value:
    x, places = call[0], call[1]
    kernel = call.attribute("kernel_shape")
    strides, _, low, high = _steps(call, len(kernel))
    image = [
        (extent - 1) * strides[at] - low[at] - high[at] + kernel[at]
        for at, extent in enumerate(x.shape[2:])
    ]
    shape = (*x.shape[:2], *image)
    zeros = constant(np.zeros(math.prod(shape), element_type(x.dtype).dtype), x.dtype)
    flat = scatter_along(zeros, reshape(places, (-1,)), reshape(x, (-1,)), 0)
    found = reshape(flat, shape)
    if call.get(2) is None:
        return found
    wanted = call.ints(2)
    grown = [max(0, want - have) for want, have in zip(wanted, shape, strict=True)]
    found = pad(found, [0] * len(wanted), grown)
    for axis, extent in enumerate(wanted):
        found = slice_axis(found, axis, 0, extent)
    return found


def _lrn(call: Call) -> Value:
    x, size = call[0], call.attribute("size")
    apart = reshape(x, (x.shape[0], 1, x.shape[1], -1))
    low, high = [(size - 1) // 2, 0], [size // 2, 0]
    total = window_reduce("add", _powers(apart, 2), Window.of([size, 1], None, low, high))
    scaled = binary("mul", total, call.attribute("alpha") / size)
    norm = binary("pow", binary("add", scaled, call.attribute("bias")), call.attribute("beta"))
    return reshape(cast(binary("div", widened(apart), norm), x.dtype), x.shape)


def _col2im(call: Call) -> Value:
    """Blocks added where they came from: the reverse of cutting an image into them."""
    x, image, block = call[0], call.ints(1), call.ints(2)
    rank = len(image)
    strides, dilations, low, high = _steps(call, rank)
    whole = [sum(it) for it in zip(low, image, high, strict=True)]
    window = Window(block, strides, [0] * rank, [0] * rank, dilations)
    flat = np.zeros((*block, *window.places(whole)), np.int64)
    for at in range(rank):
        shape = [1] * (2 * rank)
        shape[at], shape[rank + at] = flat.shape[at], flat.shape[rank + at]
        place = np.add.outer(
            np.arange(flat.shape[at]) * dilations[at],
            np.arange(flat.shape[rank + at]) * strides[at],
        )
        flat = flat * whole[at] + place.reshape(shape)
    channels = x.shape[1] // math.prod(block)
    data = reshape(x, (x.shape[0], channels, -1))
    zeros = np.zeros((*data.shape[:2], math.prod(whole)), element_type(x.dtype).dtype)
    places = broadcast(vector(flat.reshape(1, 1, -1)), data.shape)
    found = scatter_along(constant(zeros, x.dtype), places, data, 2, "add")
    found = reshape(found, (*data.shape[:2], *whole))
    return pad(found, [0, 0, *(-it for it in low)], [0, 0, *(-it for it in high)])


def _roi_pool(call: Call) -> Value:
    raise UnsupportedWorkload("regions that are rounded to whole elements are not supported")


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


WINDOWS: Mapping[str, Operator] = {
    "Conv": _conv,
    "ConvInteger": _conv_integer,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "LpPool": _lp_pool,
    "GlobalMaxPool": partial(_global, "max"),
    "GlobalAveragePool": partial(_global, "mean"),
    "GlobalLpPool": partial(_global, "lp"),
    "MaxUnpool": _max_unpool,
    "MaxRoiPool": _roi_pool,
    "LRN": _lrn,
    "Col2Im": _col2im,
    "Resize": _resize,
    "Upsample": _resize,
    "GridSample": _grid_sample,
    "RoiAlign": _roi_align,
    "DeformConv": _deform_conv,
}
