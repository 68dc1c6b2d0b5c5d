"""Operators that move elements, read and write where data says, make constants, or sort."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.networks.graph import (
    Value,
    binary,
    broadcast,
    cast,
    concat,
    constant,
    elementwise,
    gather_nd,
    non_max_suppression,
    nonzero,
    one_hot,
    pad,
    reshape,
    scatter_along,
    scatter_nd,
    select,
    slice_axis,
    split,
    squeeze,
    take,
    take_along,
    tile,
    top_k,
    transpose,
    unique,
    unsqueeze,
    where,
)
from autotune.networks.readers.forms import vector
from autotune.networks.readers.onnx.call import Call, Operator
from autotune.networks.readers.onnx.model_file import dtype_of, sparse_value, tensor_value

__all__ = ["SHAPES"]


def _shape(call: Call) -> Value:
    part = slice(call.attribute("start", 0), call.attribute("end"))
    rows = call.tracker.rows(call[0])
    if rows is None:
        return vector(call[0].shape[part])
    extents = [vector([it]) for it in call[0].shape]
    extents[rows.axis] = reshape(rows.count, (1,))
    return concat(extents[part], 0)


def _size(call: Call) -> Value:
    rows = call.tracker.rows(call[0])
    if rows is None:
        return vector(call[0].size)
    return binary("mul", reshape(rows.count, ()), call[0].size // call[0].shape[rows.axis])


def _reshape(call: Call) -> Value:
    x = call[0]
    wanted = list(call.listed("shape", 1) or [])
    if not call.attribute("allowzero"):
        for at, extent in enumerate(wanted):
            if extent == 0:
                if at >= x.rank:
                    raise UnsupportedWorkload(f"{x!r} has no axis {at} whose length it keeps")
                wanted[at] = x.shape[at]
    if x.size == 0 and -1 in wanted and 0 not in wanted:
        wanted[wanted.index(-1)] = 0
    return reshape(x, wanted)


def _flatten(call: Call) -> Value:
    x, axis = call[0], call.attribute("axis")
    rows = math.prod(x.shape[: axis if axis >= 0 else axis + x.rank])
    return reshape(x, (rows, x.size // rows if rows else 0))


def _concat(call: Call) -> Value:
    parts = [it for it in call.tensors if it.shape != (0,)] or call.tensors[:1]
    return concat(parts, call.attribute("axis", 1))


def _split(call: Call) -> list[Value]:
    x, axis = call[0], call.attribute("axis", 0)
    length, sizes = x.shape[axis], call.listed("split", 1)
    if sizes is None:
        count = call.attribute("num_outputs") or len(call.outputs)
        part = -(-length // count)
        ends = [min(length, part * number) for number in range(count + 1)]
        sizes = [end - start for start, end in pairwise(ends)]
    return list(split(x, sizes, axis % x.rank))


def _slice(call: Call) -> Value:
    x = call[0]
    starts, ends = call.listed("starts", 1) or [], call.listed("ends", 2) or []
    axes = call.listed("axes", 3)
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if call.get(4) is None else call.ints(4)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        x = slice_axis(x, axis, start, end, step)
    return x


def _expand(call: Call) -> Value:
    x, wanted = call[0], call.ints(1)
    return broadcast(x, np.broadcast_shapes(x.shape, tuple(wanted)))


def _pad(call: Call) -> Value:
    x = call[0]
    widths = call.attribute("pads", call.attribute("paddings"))
    widths = call.ints(1) if widths is None else widths
    value: Value | float = call.get(2) or call.attribute("value", 0)
    axes = list(range(x.rank)) if call.get(3) is None else call.ints(3)
    low, high = [0] * x.rank, [0] * x.rank
    for axis, before, after in zip(axes, widths[: len(axes)], widths[len(axes) :], strict=True):
        low[axis], high[axis] = before, after
    return pad(x, low, high, call.attribute("mode"), value)


def _constant_of_shape(call: Call) -> Value:
    told = call.attribute("value")
    value = constant(np.zeros(1, np.float32)) if told is None else tensor_value(told, call.folder)
    return constant(np.full(call.ints(0), value.constant), value.dtype)


_PLAIN = {"value_float": "float32", "value_floats": "float32", "value_int": "int64"}
_PLAIN["value_ints"] = "int64"


def _constant(call: Call) -> Value:
    for name, value in call.attributes.items():
        if name == "value":
            return tensor_value(value, call.folder)
        if name == "sparse_value":
            return sparse_value(value, call.folder)
        if name in _PLAIN:
            return constant(np.asarray(value, _PLAIN[name]))
    raise UnsupportedWorkload("constants that are text are not supported")


def _range(call: Call) -> Value:
    start, limit, step = (call.number(position) for position in range(3))
    count = max(0, math.ceil((limit - start) / step))
    kind = element_type(call[0].dtype)
    numbers = start + np.arange(count) * step
    return constant(kind.stored(np.asarray(numbers)), call[0].dtype)


def _eye_like(call: Call) -> Value:
    dtype = dtype_of(call.attribute("dtype")) if call.attribute("dtype") else call[0].dtype
    rows, columns = call[0].shape
    return constant(np.eye(rows, columns, call.attribute("k")), dtype)


def _trilu(call: Call) -> Value:
    x = call[0]
    if x.size == 0:
        return x
    rows, columns = (np.arange(extent) for extent in x.shape[-2:])
    apart = vector(columns[None, :] - rows[:, None])
    offset = cast(call.get(1) or vector(0), "int64")
    kept = binary("ge" if call.attribute("upper") else "le", apart, reshape(offset, ()))
    return select(kept, x, 0)


def _depth_to_space(call: Call) -> Value:
    x, block = call[0], call.attribute("blocksize")
    n, c, h, w = x.shape
    inner = c // block**2
    if call.attribute("mode", "DCR") == "DCR":
        apart = transpose(reshape(x, (n, block, block, inner, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        apart = transpose(reshape(x, (n, inner, block, block, h, w)), (0, 1, 4, 2, 5, 3))
    return reshape(apart, (n, inner, h * block, w * block))


def _space_to_depth(call: Call) -> Value:
    x, block = call[0], call.attribute("blocksize")
    n, c, h, w = x.shape
    apart = reshape(x, (n, c, h // block, block, w // block, block))
    order = (0, 3, 5, 1, 2, 4) if call.attribute("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return reshape(transpose(apart, order), (n, c * block**2, h // block, w // block))


def _reverse_sequence(call: Call) -> Value:

    x, time, batch = call[0], call.attribute("time_axis"), call.attribute("batch_axis")
    lengths = cast(call[1], "int64")
    steps = vector(np.arange(x.shape[time]).reshape(-1, *[1] * (x.rank - 1 - time)))
    lengths = reshape(lengths, (-1, *[1] * (x.rank - 1 - batch)))
    places = elementwise(
        lambda step, length: where(step < length, length - step - 1, step), steps, lengths
    )
    return take_along(x, broadcast(places, x.shape), time)


def _window(call: Call) -> Value:
    """Windows of Hann, Hamming and Blackman."""
    size, dtype = call.number(0), dtype_of(call.attribute("output_datatype"))
    period = size if call.attribute("periodic") else size - 1
    angle = 2 * np.pi * np.arange(size) / max(period, 1)
    a, b, c = _COEFFICIENTS[call.kind]
    return constant(a - b * np.cos(angle) + c * np.cos(2 * angle), dtype)


_COEFFICIENTS = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


def _combiner(call: Call) -> str:
    reduction = str(call.attribute("reduction", "none"))
    return "" if reduction == "none" else reduction


def _scatter(call: Call) -> Value:
    return scatter_along(call[0], call[1], call[2], call.attribute("axis"), _combiner(call))


def _tensor_scatter(call: Call) -> Value:
    """Updates behind what a cache holds already, of each sequence at its own place."""
    cache, update, axis = call[0], call[1], call.attribute("axis") % call[0].rank
    steps = vector(np.arange(update.shape[axis]).reshape(-1, *[1] * (cache.rank - 1 - axis)))
    start = cast(call.get(2) or vector([0] * cache.shape[0]), "int64")
    places = binary("add", reshape(start, (-1, *[1] * (cache.rank - 1))), steps)
    if call.attribute("mode") == "circular":
        places = binary("mod", places, cache.shape[axis])
    return scatter_along(cache, broadcast(places, update.shape), update, axis)


def _one_hot(call: Call) -> Value:
    indices, depth, values = call[0], int(call.number(1)), call[2]
    off, on = (take(values, vector(at), 0) for at in range(2))
    return one_hot(cast(indices, "int64"), depth, off, on, call.attribute("axis"))


def _compress(call: Call) -> Value:
    x, axis = call[0], call.attribute("axis")
    places = np.flatnonzero(call.known(1))
    return (
        take(reshape(x, (-1,)), vector(places), 0)
        if axis is None
        else take(x, vector(places), axis)
    )


def _non_zero(call: Call) -> Value:
    call.known(0)
    return transpose(nonzero(call[0])[0])


def _unique(call: Call) -> list[Value]:
    call.known(0)
    return list(unique(call[0], call.attribute("axis"), bool(call.attribute("sorted")))[:4])


def _top_k(call: Call) -> list[Value]:
    k = call.attribute("k") if "k" in call.attributes else int(call.number(1))
    largest = bool(call.attribute("largest", 1))
    return list(top_k(call[0], k, call.attribute("axis"), largest))


def _non_max_suppression(call: Call) -> Value:
    """Boxes that are kept; of what is no constant there is room for the most."""
    most, boxes, scores = int(call.number(2, 0.0)), call[0], call[1]
    overlap, score = call.number(3, 0.0), call.number(4, -np.inf)
    centred = bool(call.attribute("center_point_box"))
    kept, count = non_max_suppression(boxes, scores, most, overlap, score, centred)
    if count.constant is None:
        call.tracker.has_sources = True
        return kept
    return vector(np.asarray(kept.constant)[: int(count.constant)])


SHAPES: Mapping[str, Operator] = {
    **dict.fromkeys(_COEFFICIENTS, _window),
    "Shape": _shape,
    "Size": _size,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": lambda call: squeeze(call[0], call.listed("axes", 1)),
    "Unsqueeze": lambda call: unsqueeze(call[0], call.listed("axes", 1) or []),
    "Transpose": lambda call: transpose(call[0], call.attribute("perm")),
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Expand": _expand,
    "Tile": lambda call: tile(call[0], call.ints(1)),
    "Pad": _pad,
    "ConstantOfShape": _constant_of_shape,
    "Constant": _constant,
    "Range": _range,
    "EyeLike": _eye_like,
    "Trilu": _trilu,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "ReverseSequence": _reverse_sequence,
    "Gather": lambda call: take(call[0], call[1], call.attribute("axis")),
    "GatherElements": lambda call: take_along(call[0], call[1], call.attribute("axis")),
    "GatherND": lambda call: gather_nd(call[0], call[1], call.attribute("batch_dims", 0)),
    "Scatter": _scatter,
    "ScatterElements": _scatter,
    "ScatterND": lambda call: scatter_nd(call[0], call[1], call[2], _combiner(call)),
    "TensorScatter": _tensor_scatter,
    "OneHot": _one_hot,
    "Compress": _compress,
    "NonZero": _non_zero,
    "Unique": _unique,
    "TopK": _top_k,
    "NonMaxSuppression": _non_max_suppression,
}
