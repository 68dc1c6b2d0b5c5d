"""Operators that move elements, or make tensors of nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.networks.graph import (
    Value,
    broadcast,
    concat,
    constant,
    flip,
    pad,
    reshape,
    scatter_along,
    select,
    slice_axis,
    split,
    stack,
    take,
    tile,
    transpose,
)
from autotune.networks.readers.forms import as_type, vector
from autotune.networks.readers.torch.call import Call, Operator, number

__all__ = ["SHAPES", "filled"]


def filled(shape: Sequence[int], value: Any, dtype: str) -> Value:
    """A constant of one number."""
    return constant(np.full(tuple(shape), number(value, dtype)), dtype)


def _shaped(call: Call) -> Value:
    """Whatever keeps the order of elements: torch says the shape."""
    return reshape(call.x, call.shape)


def _view(call: Call) -> Value:
    if call.dtype != call.x.dtype:
        raise UnsupportedWorkload(f"the bits of {call.x.dtype} as {call.dtype} are not supported")
    return _shaped(call)


def _expand(call: Call) -> Value:
    return broadcast(call.x, call.shape)


def _broadcast_in_dim(call: Call) -> Value:
    """Torch's primitive: axes are at these places of the result."""
    x, places = call.x, call["broadcast_dimensions"]
    apart = [x.shape[places.index(at)] if at in places else 1 for at in range(len(call.shape))]
    return broadcast(reshape(x, apart), call.shape)


def _swapped(call: Call) -> Value:
    x = call.x
    order = list(range(x.rank))
    names = list(call.arguments)[1:3]
    one, other = (
        (((call[it] % x.rank) if x.rank else 0) for it in names)
        if names
        else (0, max(0, x.rank - 1))
    )
    if x.rank:
        order[one], order[other] = order[other], order[one]
    return transpose(x, order)


def _select(call: Call) -> Value:
    axis, index = call.axis(), call["index"]
    return reshape(_along(call.x, axis, index, None), call.shape)


def _along(x: Value, axis: int, start: int | None, stop: int | None, step: int = 1) -> Value:
    if stop is None and start is not None and step == 1:
        at = start + x.shape[axis] if start < 0 else start
        return slice_axis(x, axis, at, at + 1)
    return slice_axis(x, axis, start, stop, step)


def _slice(call: Call) -> Value:
    return slice_axis(call.x, call.axis(), call["start"], call["end"], call["step"])


def _cat(call: Call) -> Value:
    parts = call["tensors"]
    dtype = call.dtype
    kept = [as_type(it, dtype) for it in parts if it.shape != (0,)]
    return concat(kept, call["dim"]) if kept else as_type(parts[0], dtype)


def _parts(call: Call) -> list[Value]:
    """Parts along an axis; torch says how long they are."""
    axis = call.axis()
    sizes = [it.shape[axis] for it in call.results if it is not None]
    return list(split(call.x, sizes, axis))


def _repeat(call: Call) -> Value:
    repeats = call.get("repeats", call.get("dims"))
    x = call.x
    more = len(repeats) - x.rank
    whole = [1] * max(0, -more) + list(repeats)
    return tile(reshape(x, [1] * max(0, more) + list(x.shape)), whole)


def _repeat_interleave(call: Call) -> Value:
    x, repeats = call.x, call.get("repeats")
    if isinstance(repeats, Value) or repeats is None:
        known = repeats.constant if isinstance(repeats, Value) else x.constant
        if known is None:
            raise UnsupportedWorkload("how often elements are repeated depends on data")
        if repeats is None:
            return vector(np.repeat(np.arange(len(known)), known))
    else:
        known = np.asarray(repeats)
    axis = call.get("dim")
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    axis %= max(1, x.rank)
    places = np.repeat(np.arange(x.shape[axis]), known)
    return take(x, vector(places), axis)


def _flip(call: Call) -> Value:
    return flip(call.x, [it % max(1, call.x.rank) for it in call["dims"]] if call.x.rank else [])


def _roll(call: Call) -> Value:
    x, axes = call.x, call["dims"]
    shifts = call["shifts"]
    if not axes:
        flat = reshape(x, (-1,))
        return reshape(_rolled(flat, 0, shifts[0]), x.shape)
    for axis, shift in zip(axes, shifts, strict=True):
        x = _rolled(x, axis % x.rank, shift)
    return x


def _rolled(x: Value, axis: int, shift: int) -> Value:
    extent = x.shape[axis]
    shift = shift % extent if extent else 0
    if not shift:
        return x
    parts = [slice_axis(x, axis, extent - shift, None), slice_axis(x, axis, 0, extent - shift)]
    return concat(parts, axis)


def _padded(x: Value, widths: Sequence[int], mode: str, value: Any = 0) -> Value:
    """Margins as torch lists them: of the last axis first."""
    low, high = [0] * x.rank, [0] * x.rank
    for at in range(len(widths) // 2):
        low[x.rank - 1 - at], high[x.rank - 1 - at] = widths[2 * at], widths[2 * at + 1]
    return pad(x, low, high, mode, number(value, x.dtype) if mode == "constant" else 0)


_PAD_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _pad(call: Call) -> Value:
    mode = call.get("mode", "constant")
    widths = call.get("pad", call.get("padding"))
    if mode == "constant":
        return _padded(call.x, widths, mode, call.get("value", 0))
    x = call.x
    if mode == "circular":
        # What is cut off is no part of the circle.
        x = _padded(x, [min(0, it) for it in widths], "constant")
        widths = [max(0, it) for it in widths]
    return _padded(x, widths, _PAD_MODES[mode])


def _extended(mode: str, call: Call) -> Value:
    return _padded(call.x, call["padding"], mode)


def _places(call: Call) -> np.ndarray[Any, Any]:
    """Return, for each element of a view, the flat element of the first tensor that it is."""
    flat = np.arange(call.x.size).reshape(call.x.shape)
    if call.kind.startswith("as_strided"):
        return _strided_places(call, flat)
    return np.asarray(np.diagonal(flat, call["offset"], call["dim1"], call["dim2"]))


def _strided_places(call: Call, flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Elements by their steps in memory, which the first tensor fills without holes."""
    x, strides = call.x, call.strides
    order = sorted(range(x.rank), key=lambda at: (-strides[at], at))
    in_memory = np.transpose(flat, order)
    expected = 1
    for at in reversed(order):
        if x.shape[at] > 1 and strides[at] != expected:
            raise UnsupportedWorkload("the tensor does not fill its memory")
        expected *= x.shape[at]
    offset = call.get("storage_offset", 0)
    places = np.full(tuple(call["size"]), offset)
    for at, (extent, step) in enumerate(zip(call["size"], call["stride"], strict=True)):
        shape = [1] * len(call["size"])
        shape[at] = extent
        places = places + (np.arange(extent) * step).reshape(shape)
    return np.asarray(in_memory.reshape(-1)[places])


def _chosen(call: Call) -> Value:
    """A view whose elements are listed."""
    places = _places(call)
    return reshape(take(reshape(call.x, (-1,)), vector(places.reshape(-1)), 0), places.shape)


def _written(call: Call) -> Value:
    """The first tensor with a view of it replaced."""
    x, places = call.x, _places(call)
    source = broadcast(as_type(call["src"], x.dtype), places.shape)
    flat = scatter_along(reshape(x, (-1,)), vector(places.reshape(-1)), reshape(source, (-1,)), 0)
    return reshape(flat, x.shape)


def _slice_written(call: Call) -> Value:
    """The first tensor with a part along an axis replaced: parts around it, joined."""
    x, axis = call.x, call.axis()
    if call.kind.startswith("select"):
        start = call["index"] % x.shape[axis]
        stop, step = start + 1, 1
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        source = reshape(broadcast(as_type(call["src"], x.dtype), call["src"].shape), shape)
    else:
        start, stop, step = slice(call["start"], call["end"], call["step"]).indices(x.shape[axis])
        source = as_type(call["src"], x.dtype)
        if step != 1:
            return NotImplemented  # type: ignore[no-any-return]
        wanted = (*x.shape[:axis], max(0, stop - start), *x.shape[axis + 1 :])
        source = broadcast(source, wanted)
    parts = [slice_axis(x, axis, 0, start), source, slice_axis(x, axis, max(start, stop), None)]
    kept = [it for it in parts if it.shape[axis]]
    return concat(kept, axis) if kept else x


def _copy(call: Call) -> Value:
    source = call.get("src", call.get("other"))
    return broadcast(as_type(source, call.dtype), call.shape)


def _triangle(call: Call) -> Value:
    x = call.x
    rows, columns = (np.arange(extent) for extent in x.shape[-2:])
    apart = columns[None, :] - rows[:, None]
    offset = call["diagonal"]
    kept = apart <= offset if call.kind == "tril" else apart >= offset
    return select(constant(kept), x, False if x.dtype == "bool" else 0)


# Tensors of nothing.


def _full(call: Call) -> Value:
    value = call.get("fill_value", call.get("value", call.get("s", 0)))
    if isinstance(value, Value):
        return broadcast(as_type(value, call.dtype), call.shape)
    return filled(call.shape, value, call.dtype)


def _ones(call: Call) -> Value:
    return filled(call.shape, 1, call.dtype)


def _zeros(call: Call) -> Value:
    return filled(call.shape, 0, call.dtype)


def _arange(call: Call) -> Value:
    start, step = call.get("start", 0), call.get("step", 1)
    kind = element_type(call.dtype)
    numbers = start + np.arange(call.shape[0]) * step
    return constant(kind.stored(np.asarray(numbers)), call.dtype)


def _scalar(call: Call) -> Any:
    """Number in a tensor of one element, where that is known."""
    x = call.x
    if x.constant is None:
        raise UnsupportedWorkload("it makes a number of a tensor, whose value is not known")
    return element_type(x.dtype).numbers(x.constant).item()


_SAME = (
    "alias",
    "clone",
    "contiguous",
    "detach",
    "detach_",
    "lift",
    "lift_fresh",
    "lift_fresh_copy",
    "positive",
    "resolve_conj",
    "resolve_neg",
    "real",
    "conj",
    "_conj",
    "conj_physical",
    "to",
    "_to_copy",
    "convert_element_type",
    "type_as",
    "alias_copy",
    "dropout",
    "alpha_dropout",
    "feature_dropout",
    "feature_alpha_dropout",
    "_conj_physical",
    "view_of",
)
_RESHAPED = (
    "reshape",
    "_unsafe_view",
    "view_as",
    "reshape_as",
    "flatten",
    "unflatten",
    "squeeze",
    "unsqueeze",
    "ravel",
    "_reshape_alias",
    "view_copy",
    "squeeze_copy",
    "unsqueeze_copy",
    "atleast_1d",
    "atleast_2d",
)

SHAPES: Mapping[str, Operator] = {
    **dict.fromkeys(_SAME, lambda call: as_type(call.x, call.dtype)),
    **dict.fromkeys(_RESHAPED, _shaped),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to", "expand_copy"), _expand),
    **dict.fromkeys(("permute", "permute_copy"), lambda call: transpose(call.x, call["dims"])),
    **dict.fromkeys(("transpose", "t", "swapaxes", "swapdims", "transpose_copy"), _swapped),
    **dict.fromkeys(("select", "select_copy"), _select),
    **dict.fromkeys(("slice", "slice_copy"), _slice),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "tensor_split"), _parts),
    **dict.fromkeys(
        (
            "split_copy",
            "split_with_sizes_copy",
            "unsafe_split",
            "unsafe_chunk",
            "unsafe_split_with_sizes",
        ),
        _parts,
    ),
    **dict.fromkeys(("repeat", "tile"), _repeat),
    **dict.fromkeys(("constant_pad_nd", "pad"), _pad),
    **{f"reflection_pad{at}d": partial(_extended, "reflect") for at in (1, 2, 3)},
    **{f"replication_pad{at}d": partial(_extended, "edge") for at in (1, 2, 3)},
    **dict.fromkeys(("diagonal", "diagonal_copy", "as_strided", "as_strided_copy"), _chosen),
    **dict.fromkeys(("diagonal_scatter", "as_strided_scatter"), _written),
    **dict.fromkeys(("select_scatter", "slice_scatter"), _slice_written),
    **dict.fromkeys(("copy", "copy_"), _copy),
    **dict.fromkeys(("tril", "triu"), _triangle),
    **dict.fromkeys(("full", "full_like", "new_full", "fill", "scalar_tensor"), _full),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _ones),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "zero"), _zeros),
    **dict.fromkeys(
        (
            "empty",
            "empty_like",
            "new_empty",
            "empty_strided",
            "empty_permuted",
            "new_empty_strided",
        ),
        _zeros,
    ),
    "broadcast_in_dim": _broadcast_in_dim,
    "view": _view,
    "stack": lambda call: stack([as_type(it, call.dtype) for it in call["tensors"]], call["dim"]),
    "repeat_interleave": _repeat_interleave,
    "flip": _flip,
    "roll": _roll,
    "arange": _arange,
    "_local_scalar_dense": _scalar,
    "item": _scalar,
}
