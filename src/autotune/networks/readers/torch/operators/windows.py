"""Convolutions and pooling; images resized, and sampled between their elements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import (
    Value,
    Window,
    arg,
    binary,
    cast,
    clamp,
    convolution,
    reduce,
    resample,
    reshape,
    scatter_along,
    slice_axis,
    take,
    take_along,
    transpose,
    transposed_convolution,
    unary,
    window_arg,
    window_reduce,
)
from autotune.networks.graph.making import computed_type
from autotune.networks.readers.forms import (
    AxisResize,
    Interpolation,
    grown,
    is_float,
    margins_of_parts,
    sampled,
    taps_of,
    vector,
    window_counts,
    with_bias,
)
from autotune.networks.readers.torch.call import Call, Operator
from autotune.networks.readers.torch.operators.shapes import filled

__all__ = ["WINDOWS"]


def _each(value: Any, rank: int, default: int = 1) -> list[int]:
    """A number for each axis; torch lets one stand for all."""
    if value is None or (isinstance(value, Sequence) and not value):
        return [default] * rank
    if isinstance(value, int):
        return [value] * rank
    return list(value) * rank if len(value) == 1 else list(value)


def _convolution(call: Call) -> Value:
    """Of all forms: names with a number of axes, ``transposed`` or not."""
    x, w, bias = call.get("input"), call["weight"], call.get("bias")
    rank = w.rank - 2
    batched = x.rank == w.rank
    x = x if batched else reshape(x, (1, *x.shape))
    strides, dilations = (_each(call.get(it), rank) for it in ("stride", "dilation"))
    groups, kernel = call.get("groups", 1), w.shape[2:]
    padding = call.get("padding", 0)
    if call.get("transposed", call.kind.startswith("conv_transpose")):
        low = _each(padding, rank, 0)
        more = _each(call.get("output_padding"), rank, 0)
        window = Window(kernel, strides, low, low, dilations)
        found = transposed_convolution(x, w, window, groups, more)
    else:
        low, high = _margins(padding, kernel, dilations, rank)
        window = Window(kernel, strides, low, high, dilations)
        found = convolution(x, w, window, groups)
    return reshape(with_bias(found, bias), call.shape)


def _margins(
    padding: Any, kernel: Sequence[int], dilations: Sequence[int], rank: int
) -> tuple[list[int], list[int]]:
    if padding == "same":
        totals = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
        return [it // 2 for it in totals], [it - it // 2 for it in totals]
    low = [0] * rank if padding == "valid" else _each(padding, rank, 0)
    return low, low


def _pool_rank(call: Call) -> int:
    """Number of axes of the image, which is in the name of the operator."""
    return int(next(it for it in call.kind if it in "123"))


def _image(x: Value, rank: int) -> Value:
    """``[n, c, *image]`` of what may lack axes before the image."""
    return reshape(x, (*[1] * (rank + 2 - x.rank), *x.shape))


def _pool_window(call: Call, image: Sequence[int]) -> tuple[Window, tuple[int, ...]]:
    """The window of a pool, and by how much its margins behind grow to take part ones in."""
    rank = len(image)
    kernel = _each(call["kernel_size"], rank)
    strides = _each(call.get("stride"), rank)
    if not call.get("stride"):
        strides = kernel
    low = _each(call.get("padding"), rank, 0)
    window = Window(kernel, strides, low, low, _each(call.get("dilation"), rank))
    more = margins_of_parts(window, image) if call.get("ceil_mode") else (0,) * rank
    return window, more


def _max_pool(call: Call) -> Value | list[Value]:
    rank = _pool_rank(call)
    x = _image(call.x, rank)
    window = grown(*_pool_window(call, x.shape[2:]))
    found = reshape(window_reduce("max", x, window), call.shape)
    if not call.kind.endswith("indices"):
        return found
    return [found, reshape(window_arg(x, window, last_nan=True), call.shape)]


def _average_pool(call: Call) -> Value:
    rank = _pool_rank(call)
    x = _image(call.x, rank)
    window, more = _pool_window(call, x.shape[2:])
    total = window_reduce("add", x, grown(window, more), computed_type(x.dtype))
    count = _counts(call, x, window, more, total.dtype)
    return reshape(cast(binary("div", total, count), x.dtype), call.shape)


def _counts(call: Call, x: Value, window: Window, more: Sequence[int], dtype: str) -> Any:
    """By what each place of a window is divided."""
    divisor = call.get("divisor_override")
    if divisor:
        return divisor
    margins = bool(call.get("count_include_pad", True))
    return window_counts(x.shape[2:], window, more, dtype, margins)


def _bounds(extent: int, to: int) -> list[tuple[int, int]]:
    """Beginnings and ends of the windows of an adaptive pool."""
    return [(at * extent // to, -(-(at + 1) * extent // to)) for at in range(to)]


def _uniform(image: Sequence[int], to: Sequence[int]) -> Window | None:
    """The window of an adaptive pool whose places are all alike."""
    if any(length == 0 or extent % length for extent, length in zip(image, to, strict=True)):
        return None
    kernel = [extent // length for extent, length in zip(image, to, strict=True)]
    return Window.of(kernel, kernel)


def _adaptive_average(call: Call) -> Value:
    rank = _pool_rank(call)
    x = _image(call.x, rank)
    to = call.shape[-rank:]
    window = _uniform(x.shape[2:], to)
    if x.size == 0 or 0 in to:
        return filled(call.shape, 0, call.dtype)
    if window is not None:
        total = window_reduce("add", x, window, computed_type(x.dtype))
        found = cast(binary("div", total, math.prod(window.kernel)), x.dtype)
        return reshape(found, call.shape)
    found = cast(x, computed_type(x.dtype))
    for axis, length in enumerate(to, start=2):
        bounds = _bounds(x.shape[axis], length)
        taps = max(end - start for start, end in bounds)
        places = np.array([[min(s + t, e - 1) for t in range(taps)] for s, e in bounds])
        weights = [[(s + t < e) / (e - s) for t in range(taps)] for s, e in bounds]
        found = resample(found, axis, places, np.array(weights))
    return reshape(cast(found, x.dtype), call.shape)


def _adaptive_max(call: Call) -> list[Value]:
    """Largest elements, and where they are: windows are lists of places."""
    rank = _pool_rank(call)
    x = _image(call.x, rank)
    image, to = x.shape[2:], call.shape[-rank:]
    if x.size == 0 or 0 in to:
        return [filled(call.shape, 0, call.dtype), filled(call.shape, 0, "int64")]
    places = np.zeros((1,) * (2 * rank), np.int64)
    for axis, (extent, length) in enumerate(zip(image, to, strict=True)):
        bounds = _bounds(extent, length)
        taps = max(end - start for start, end in bounds)
        own = np.array([[min(s + t, e - 1) for t in range(taps)] for s, e in bounds])
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = own.shape
        places = places * extent + own.reshape(shape)
    whole = np.broadcast_to(places, places.shape).reshape(math.prod(to), -1)
    flat = reshape(x, (*x.shape[:2], -1))
    windows = take(flat, vector(whole), 2)
    found = reduce("max", windows, [3], keepdims=False)
    first = arg("max", windows, 3)
    chosen = vector(np.broadcast_to(whole, windows.shape))
    index = take_along(chosen, first, 3)
    return [reshape(found, call.shape), reshape(index, call.shape)]


def _max_pool_backward(call: Call) -> Value:
    gradient, x, places = (call[it] for it in ("grad_output", "self", "indices"))
    rank = _pool_rank(call)
    flat = filled((*x.shape[:-rank], math.prod(x.shape[-rank:])), 0, gradient.dtype)
    shape = (*places.shape[:-rank], -1)
    values = reshape(gradient, shape)
    found = scatter_along(flat, reshape(places, shape), values, x.rank - rank, "add")
    return reshape(found, call.shape)


def _average_pool_backward(call: Call) -> Value:
    """Each gradient over its window: a transposed convolution of every channel by itself."""
    rank = _pool_rank(call)
    gradient, x = _image(call["grad_output"], rank), _image(call["self"], rank)
    window, more = _pool_window(call, x.shape[2:])
    count = _counts(call, x, window, more, computed_type(x.dtype))
    share = binary("div", cast(gradient, computed_type(x.dtype)), count)
    found = _spread_out(share, window, x.shape[2:])
    return reshape(cast(found, x.dtype), call.shape)


def _spread_out(share: Value, window: Window, image: Sequence[int]) -> Value:
    """The transpose of a sum over windows."""
    one = filled((1, 1, *window.kernel), 1, share.dtype)
    apart = reshape(share, (-1, 1, *share.shape[2:]))
    grown, more = _fitted(window, share.shape[2:], image)
    found = transposed_convolution(apart, one, grown, 1, more)
    return reshape(found, (*share.shape[:2], *image))


def _fitted(
    window: Window, places: Sequence[int], image: Sequence[int]
) -> tuple[Window, list[int]]:
    """A window whose transpose gives exactly this image."""
    high, more = [], []
    for at, (count, extent) in enumerate(zip(places, image, strict=True)):
        reach = (window.kernel[at] - 1) * window.dilations[at] + 1
        whole = (count - 1) * window.strides[at] + reach
        behind = whole - window.low[at] - extent
        high.append(max(0, behind))
        more.append(max(0, -behind))
    return Window(window.kernel, window.strides, window.low, high, window.dilations), more


def _adaptive_average_backward(call: Call) -> Value:
    rank = _pool_rank(call)
    gradient, x = _image(call["grad_output"], rank), _image(call["self"], rank)
    found = cast(gradient, computed_type(x.dtype))
    for axis, extent in enumerate(x.shape[2:], start=2):
        bounds = _bounds(extent, gradient.shape[axis])
        shares = [[(s <= at < e) / (e - s) for s, e in bounds] for at in range(extent)]
        found = resample(found, axis, *taps_of(np.array(shares)))
    return reshape(cast(found, x.dtype), call.shape)


def _convolution_backward(call: Call) -> list[Value | None]:
    """Gradients of the image, the weights and the bias, of those that are asked for."""
    gradient, x, w = (call[it] for it in ("grad_output", "input", "weight"))
    rank = w.rank - 2
    if call.get("transposed"):
        raise UnsupportedWorkload("gradients of transposed convolutions are not supported")
    strides, low, dilations = (
        _each(call.get(it), rank, default)
        for it, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    window, groups = Window(w.shape[2:], strides, low, low, dilations), call["groups"]
    wanted = call["output_mask"]
    found: list[Value | None] = [None, None, None]
    if wanted[0]:
        grown, more = _fitted(window, gradient.shape[2:], x.shape[2:])
        found[0] = transposed_convolution(gradient, w, grown, groups, more)
    if wanted[1]:
        found[1] = _weight_gradient(gradient, x, w, window, groups)
    if wanted[2]:
        found[2] = reduce("add", gradient, [0, *range(2, gradient.rank)], keepdims=False)
    return found


def _weight_gradient(gradient: Value, x: Value, w: Value, window: Window, groups: int) -> Value:
    """A convolution of the image with the gradient, whose batch is what is summed over."""
    n, channels = x.shape[:2]
    inner, outer = channels // groups, gradient.shape[1] // groups
    image = reshape(x, (n, groups, inner, *x.shape[2:]))
    image = transpose(image, (2, 1, 0, *range(3, image.rank)))
    image = reshape(image, (inner, groups * n, *x.shape[2:]))
    weights = reshape(gradient, (n, groups, outer, *gradient.shape[2:]))
    weights = transpose(weights, (1, 2, 0, *range(3, weights.rank)))
    weights = reshape(weights, (groups * outer, n, *gradient.shape[2:]))
    # Steps of the one are places of the other.
    turned = Window(gradient.shape[2:], window.dilations, window.low, window.high, window.strides)
    found = convolution(image, weights, turned, groups)
    for axis, extent in enumerate(w.shape[2:], start=2):
        found = slice_axis(found, axis, 0, extent)
    return transpose(found, (1, 0, *range(2, found.rank)))


def _scale(call: Call, axis: int) -> float | None:
    """Factor by which an axis becomes longer, where that is given."""
    given = call.get("scale_factors")
    if given:
        return float(given[axis])
    names = ("scales",) if "scales" in call.arguments else ("scales_d", "scales_h", "scales_w")
    known = [call.get(it) for it in names if it in call.arguments]
    return float(known[axis]) if known and known[axis] is not None else None


def _nearest(call: Call) -> Value:
    """Elements below the places, or next to them."""
    x = call.x
    for axis, to in enumerate(call.shape[2:], start=2):
        places = _neighbours(call, x.shape[axis], to, _scale(call, axis - 2))
        if to != x.shape[axis] or (places != np.arange(to)).any():
            x = take(x, vector(places), axis)
    return x


def _neighbours(call: Call, extent: int, to: int, scale: float | None) -> np.ndarray[Any, Any]:
    """Places as torch computes them, in single precision; it never scales by 1 or 2."""
    is_exact = "exact" in call.kind
    if not is_exact and to in (extent, 2 * extent):
        return np.asarray(np.arange(to) * extent // to)
    step = np.float32(1 / scale) if scale else np.float32(extent) / np.float32(to)
    at = (np.arange(to, dtype=np.float32) + np.float32(0.5 if is_exact else 0)) * step
    return np.asarray(np.minimum(np.floor(at).astype(np.int64), extent - 1))


def _interpolated(call: Call) -> Value:
    x, corners = call.x, bool(call["align_corners"])
    mode = next((it for it in ("cubic", "lanczos") if it in call.kind), "linear")
    smooth = call.kind.endswith("_aa")
    how = Interpolation(
        mode,
        "align_corners" if corners else "half_pixel",
        # Keys' polynomial is another one where results are averages.
        coefficient=-0.5 if smooth else -0.75,
        smooth=smooth,
        leave_out=smooth,
    )
    found = x if is_float(x.dtype) else cast(x, "float64")
    for axis, to in enumerate(call.shape[2:]):
        extent, scale = x.shape[axis + 2], _scale(call, axis)
        if extent == to and (scale is None or scale == 1):
            continue
        ratio = to / extent if scale is None or corners else scale
        matrix, _ = how.weights(AxisResize(extent, to, ratio))
        found = resample(found, axis + 2, *taps_of(matrix))
    return found if found.dtype == x.dtype else _rounded(found, x.dtype)


def _rounded(found: Value, dtype: str) -> Value:
    if dtype != "uint8":
        raise UnsupportedWorkload(f"images of {dtype} are not supported")
    return cast(clamp(unary("round", found), 0, 255), dtype)


_MODES = ("linear", "nearest", "cubic")
_MARGINS = ("zeros", "border", "reflection")


def _grid_sample(call: Call) -> Value:
    mode, margins = _MODES[call["interpolation_mode"]], _MARGINS[call["padding_mode"]]
    return sampled(call.x, call["grid"], mode, margins, bool(call["align_corners"]))


_SMOOTH = ("bilinear2d", "bicubic2d", "lanczos2d")


WINDOWS: Mapping[str, Operator] = {
    **dict.fromkeys(("convolution", "_convolution"), _convolution),
    **{f"conv{at}d": _convolution for at in (1, 2, 3)},
    **{f"conv_transpose{at}d": _convolution for at in (1, 2, 3)},
    **{f"max_pool{at}d": _max_pool for at in (1, 2, 3)},
    **{f"max_pool{at}d_with_indices": _max_pool for at in (1, 2, 3)},
    **{f"avg_pool{at}d": _average_pool for at in (1, 2, 3)},
    **{f"adaptive_avg_pool{at}d": _adaptive_average for at in (1, 2, 3)},
    **{f"_adaptive_avg_pool{at}d": _adaptive_average for at in (2, 3)},
    **{f"adaptive_max_pool{at}d": _adaptive_max for at in (1, 2, 3)},
    **{f"max_pool{at}d_with_indices_backward": _max_pool_backward for at in (2, 3)},
    **{f"avg_pool{at}d_backward": _average_pool_backward for at in (2, 3)},
    **{f"_adaptive_avg_pool{at}d_backward": _adaptive_average_backward for at in (2, 3)},
    "convolution_backward": _convolution_backward,
    **{f"upsample_nearest{at}d": _nearest for at in (1, 2, 3)},
    **{f"_upsample_nearest_exact{at}d": _nearest for at in (1, 2, 3)},
    **{f"grid_sampler_{at}d": _grid_sample for at in (1, 2, 3)},
    **{f"upsample_{it}": _interpolated for it in ("linear1d", "trilinear3d", *_SMOOTH[:2])},
    **{f"_upsample_{it}_aa": _interpolated for it in _SMOOTH},
}
