"""Operators that move elements, read and write where data says, or make tensors of nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.networks.graph import (
    Value,
    binary,
    broadcast,
    cast,
    clamp,
    concat,
    constant,
    elementwise,
    flip,
    gather_nd,
    matmul,
    nonzero,
    pad,
    reduce,
    reshape,
    scan,
    scatter_along,
    scatter_nd,
    select,
    slice_axes,
    slice_axis,
    split,
    stack,
    take,
    take_along,
    tile,
    transpose,
    unsqueeze,
)
from autotune.networks.graph.elementwise import common_shape
from autotune.networks.readers.forms import as_type, is_float, vector
from autotune.networks.readers.torch.call import Call, Operator, number, operand, promoted

__all__ = ["INDEXING", "SHAPES", "filled"]


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


def _index_select(call: Call) -> Value:
    index = reshape(call["index"], (-1,))
    if not call.x.rank:
        return reshape(take(reshape(call.x, (1,)), index, 0), call.shape)
    return take(call.x, index, call.axis())


def _at_least_vectors(*values: Value) -> list[Value]:
    return [it if it.rank else reshape(it, (1,)) for it in values]


def _gather(call: Call) -> Value:
    axis = call.axis()
    x, index = _at_least_vectors(call.x, call["index"])
    if index.size == 0:
        return filled(call.shape, 0, call.dtype)
    return reshape(take_along(x, index, axis), call.shape)


def _masks_as_places(x: Value, indices: Sequence[Any]) -> list[Any]:
    """Masks among indices as the places that they choose."""
    found: list[Any] = []
    for index in indices:
        if not isinstance(index, Value) or index.dtype not in ("bool", "uint8"):
            found.append(index)
            continue
        if index.constant is None:
            raise UnsupportedWorkload(
                "a mask that is computed chooses as many elements as it has truths, and shapes "
                "are fixed; choose by torch.where"
            )
        found += [vector(it) for it in np.nonzero(np.atleast_1d(index.constant))]
    return found


def _by_tensors(x: Value, indices: Sequence[Any]) -> tuple[Value, Value, list[int], list[int]]:
    """A tensor with its indexed axes first, their places along a last axis, and both axes."""
    indexed = [at for at, it in enumerate(indices) if it is not None]
    rest = [at for at in range(x.rank) if at not in indexed]
    given = [cast(indices[at], "int64") for at in indexed]
    shape = common_shape([it.shape for it in given])
    places = stack([broadcast(it, shape) for it in given], len(shape))
    return transpose(x, [*indexed, *rest]), places, indexed, rest


def _index(call: Call) -> Value:
    x = call.x
    indices = _masks_as_places(x, call["indices"])
    if all(it is None for it in indices):
        return x
    if call.result.shape and 0 in call.shape:
        return filled(call.shape, 0, call.dtype)
    indexed = [at for at, it in enumerate(indices) if it is not None]
    if len(indexed) == 1:
        return take(x, cast(indices[indexed[0]], "int64"), indexed[0])
    moved, places, indexed, rest = _by_tensors(x, indices)
    found = gather_nd(moved, places)
    count = places.rank - 1
    if indexed != [*range(indexed[0], indexed[-1] + 1)]:
        return found
    before = indexed[0]
    order = [*range(count, count + before), *range(count)]
    return transpose(found, [*order, *range(count + before, count + len(rest))])


def _index_put(call: Call) -> Value:
    x, values = call.x, as_type(call["values"], call.x.dtype)
    combiner = "add" if call.get("accumulate", False) else ""
    given = call["indices"]
    masks = [it for it in given if it is not None]
    if len(masks) == 1 and masks[0].dtype == "bool" and masks[0].constant is None:
        return _masked(x, given, values, combiner)
    indices = _masks_as_places(x, given)
    if all(it is None for it in indices):
        return broadcast(values, x.shape)
    moved, places, indexed, rest = _by_tensors(x, indices)
    count = places.rank - 1
    kept = [x.shape[at] for at in rest]
    shape = list(places.shape[:-1])
    if indexed == [*range(indexed[0], indexed[-1] + 1)]:
        # Values lie as the result of reading there would: places where the axes were.
        before = indexed[0]
        whole = broadcast(values, [*kept[:before], *shape, *kept[before:]])
        order = [*range(before, before + count), *range(before)]
        values = transpose(whole, [*order, *range(before + count, whole.rank)])
    else:
        values = broadcast(values, [*shape, *kept])
    found = scatter_nd(moved, places, values, _truths(combiner, x))
    return transpose(found, list(np.argsort([*indexed, *rest])))


def _truths(combiner: str, x: Value) -> str:
    """The combiner of a type: the sum of truths is the larger one, their product the smaller."""
    return {"add": "max", "mul": "min"}.get(combiner, combiner) if x.dtype == "bool" else combiner


def _masked(x: Value, indices: Sequence[Any], values: Value, combiner: str) -> Value:
    """Values that are the same wherever a mask holds."""
    at = next(at for at, it in enumerate(indices) if it is not None)
    mask = indices[at]
    if values.rank > x.rank - at - mask.rank and values.size > 1:
        raise UnsupportedWorkload(
            "a mask that is computed writes as many values as it has truths, and shapes are "
            "fixed; choose by torch.where"
        )
    if values.size == 1:
        values = reshape(values, ())
    mask = reshape(mask, (*mask.shape, *[1] * (x.rank - at - mask.rank)))
    if combiner:
        values = broadcast(values, x.shape)
        values = binary("or" if x.dtype == "bool" else "add", x, values)
    return select(mask, values, x)


def _scatter_operands(call: Call) -> tuple[Value, Value, Value, int]:
    """A tensor, places, as many updates, and the axis."""
    axis = call.axis()
    x, index = _at_least_vectors(call.x, call["index"])
    source = call.get("src", call.get("value"))
    if isinstance(source, Value) and not (call.overload.startswith("value") and not source.rank):
        (source,) = _at_least_vectors(as_type(source, x.dtype))
        zeros, ones = [0] * source.rank, [1] * source.rank
        source = slice_axes(source, zeros, index.shape, ones)
    else:
        source = broadcast(_as_value(source, x.dtype), index.shape)
    return x, index, source, axis


def _as_value(source: Any, dtype: str) -> Value:
    return as_type(source, dtype) if isinstance(source, Value) else filled((), source, dtype)


_SCATTERS = {"add": "add", "multiply": "mul", "sum": "add", "prod": "mul"}
_SCATTERS |= {"amax": "max", "amin": "min", "mean": "add"}


def _scatter(call: Call) -> Value:
    x, index, source, axis = _scatter_operands(call)
    combiner = call.get("reduce", "")
    if call.kind == "scatter_add":
        combiner = "add"
    combiner = _SCATTERS[combiner] if combiner else ""
    found = scatter_along(x, index, source, axis, _truths(combiner, x))
    return reshape(found, call.shape)


def _scatter_reduce(call: Call) -> Value:
    """Combined with what is there, or with ``include_self=False`` in its place; or the mean."""
    x, index, source, axis = _scatter_operands(call)
    if index.size == 0:
        return call.x
    how, includes = call["reduce"], call.get("include_self", True)
    start = x
    if not includes:
        neutral = broadcast(_neutral(x.dtype, how), index.shape)
        start = scatter_along(x, index, neutral, axis)
    found = scatter_along(start, index, source, axis, _truths(_SCATTERS[how], x))
    if how == "mean":
        ones = filled(index.shape, 1, "int64")
        first = filled(x.shape, int(includes), "int64")
        count = clamp(scatter_along(first, index, ones, axis, "add"), 1)
        count = cast(count, x.dtype)
        if is_float(x.dtype):
            found = binary("div", found, count)
        else:
            rest = binary("mod", found, count)
            found = binary("div", binary("sub", found, rest), count)
    return reshape(found, call.shape)


def _neutral(dtype: str, how: str) -> Value:
    """Number that a reduction starts from."""
    if how in ("sum", "mean", "prod"):
        return filled((), int(how == "prod"), dtype)
    if dtype == "bool":
        return filled((), how == "amin", dtype)
    if is_float(dtype):
        return filled((), -math.inf if how == "amax" else math.inf, dtype)
    limits = np.iinfo(element_type(dtype).dtype)
    return filled((), int(limits.min if how == "amax" else limits.max), dtype)


def _index_reduce(call: Call) -> Value:
    """Scatter slices as ``scatter_reduce``."""
    x, index, axis = call.x, call["index"], call.axis()
    if not x.rank:
        raise UnsupportedWorkload("tensors without axes are not supported")
    rows = reshape(index, (-1, *[1] * (x.rank - 1 - axis)))
    arguments = {
        "self": x,
        "dim": axis,
        "index": broadcast(rows, call["source"].shape),
        "src": call["source"],
        "reduce": call["reduce"],
        "include_self": call["include_self"],
    }
    return _scatter_reduce(Call(call.kind, call.overload, arguments, call.results))


def _masked_scatter(call: Call) -> Value:
    """Put elements of the source, one after the other, to the places at which a mask holds."""
    x, source = call.x, reshape(as_type(call["source"], call.x.dtype), (-1,))
    mask = broadcast(as_type(call["mask"], "bool"), call.shape)
    if source.size == 0 or mask.size == 0:
        return broadcast(x, call.shape)
    flat = reshape(mask, (-1,))
    order = binary("sub", scan("add", cast(flat, "int64"), 0), 1)
    taken = take(source, clamp(order, 0, source.size - 1), 0)
    return select(mask, reshape(taken, call.shape), broadcast(x, call.shape))


def _put(call: Call) -> Value:
    x, index = call.x, reshape(call["index"], (-1,))
    if index.size == 0:
        return x
    source = reshape(as_type(call["source"], x.dtype), (-1,))
    combiner = _truths("add" if call["accumulate"] else "", x)
    return reshape(scatter_along(reshape(x, (-1,)), index, source, 0, combiner), x.shape)


def _nonzero(call: Call) -> Value:
    if call.x.constant is None:
        raise UnsupportedWorkload(
            "it finds as many places as there are, and a network's shapes are fixed"
        )
    return nonzero(call.x)[0]


def _bucketize(call: Call) -> Value:
    """Count the boundaries below each element, or not above it."""
    is_search = call.kind == "searchsorted"
    borders = call["sorted_sequence"] if is_search else call["boundaries"]
    values = call["self"]
    if call.get("sorter") is not None:
        raise UnsupportedWorkload("a sorter is not supported")
    right = bool(call.get("right", False)) or call.get("side") == "right"
    if not isinstance(values, Value):
        values = filled((), values, borders.dtype)
    if borders.rank > 1:
        borders = unsqueeze(borders, [borders.rank - 1])
    values = unsqueeze(values, [values.rank])
    kind = promoted(borders, values)
    pair = operand(borders, kind), operand(values, kind)
    below = binary("le" if right else "lt", *pair)
    if is_float(kind):
        # NaN is behind all boundaries.
        below = elementwise(
            lambda it, value: it | value.differs(value), below, pair[1], dtype="bool"
        )
    found = reduce("add", cast(below, "int64"), [below.rank - 1], keepdims=False)
    return reshape(cast(found, call.dtype), call.shape)


def _embedding_bag(call: Call) -> list[Value]:
    """Sums (``mode`` 0), means (1) or extremes (2) of the rows of each bag.

    Which row belongs to which bag is a matrix of ones and zeros; sums are a product with it.
    """
    table, indices, offsets = (call[it] for it in ("weight", "indices", "offsets"))
    mode, padding = call.get("mode", 0), call.get("padding_idx", -1)
    if call.get("include_last_offset", False):
        offsets = slice_axis(offsets, 0, 0, -1)
    count, length = offsets.shape[0], indices.shape[0]
    starts = reshape(cast(offsets, "int64"), (-1, 1))
    begun = binary("le", starts, vector(np.arange(length).reshape(1, -1)))
    bag = binary("sub", reduce("add", cast(begun, "int64"), [0], keepdims=False), 1)
    members = binary("eq", vector(np.arange(count).reshape(-1, 1)), unsqueeze(bag, [0]))
    if padding >= 0:
        kept = binary("ne", cast(indices, "int64"), padding)
        members = binary("and", members, unsqueeze(kept, [0]))
    rows = take(table, indices, 0) if length else filled((0, table.shape[1]), 0, table.dtype)
    if mode == 2:
        found = _largest_of_bags(rows, members, count)
    else:
        if call.get("per_sample_weights") is not None:
            rows = binary("mul", rows, reshape(call["per_sample_weights"], (-1, 1)))
        found = matmul(cast(members, table.dtype), rows)
        if mode == 1:
            sizes = clamp(reduce("add", cast(members, table.dtype), [1]), 1)
            found = binary("div", found, sizes)
    sizes = reduce("add", cast(members, "int64"), [1], keepdims=False)
    rest = [cast(it, call["offsets"].dtype) for it in (bag, sizes, offsets)]
    return [found, *rest]


def _largest_of_bags(rows: Value, members: Value, count: int) -> Value:
    width = rows.shape[1]
    if rows.shape[0] == 0:
        return filled((count, width), 0, rows.dtype)
    inside = unsqueeze(members, [2])
    each = select(inside, unsqueeze(rows, [0]), -math.inf)
    largest = reduce("max", each, [1], keepdims=False)
    some = reduce("max", cast(members, "uint8"), [1])
    return select(binary("ne", some, 0), largest, 0)


INDEXING: Mapping[str, Operator] = {
    "index_select": _index_select,
    "embedding": lambda call: take(call["weight"], call["indices"], 0),
    "gather": _gather,
    **dict.fromkeys(("index", "_unsafe_index"), _index),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), _index_put),
    **dict.fromkeys(("scatter", "scatter_add"), _scatter),
    "scatter_reduce": _scatter_reduce,
    "index_reduce": _index_reduce,
    "masked_scatter": _masked_scatter,
    "take": lambda call: take(reshape(call.x, (-1,)), call["index"], 0),
    "put": _put,
    "nonzero": _nonzero,
    **dict.fromkeys(("bucketize", "searchsorted"), _bucketize),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), _embedding_bag),
}
