"""Operations that only move elements: their order, their shape, parts of them, what is around.

Also elements read and written where data says: negative indices count from the end there; others
that are out of range are an error before the program runs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    Binary,
    Gather,
    IndexValue,
    IntExpr,
    ScalarExpr,
    Select,
    const,
    var,
)
from autotune.ir.workloads import Stage, Tensor
from autotune.networks.graph.elementwise import (
    Number,
    Scalar,
    broadcast_indices,
    common_shape,
    maximum,
    minimum,
    scalar_constant,
    where,
)
from autotune.networks.graph.graph import Requirement, Value, constant
from autotune.networks.graph.making import (
    HALVES,
    axis_names,
    host,
    load,
    normal_axes,
    normal_axis,
    program,
    spatial,
)

__all__ = [
    "PAD_MODES",
    "broadcast",
    "concat",
    "flip",
    "gather_nd",
    "one_hot",
    "pad",
    "padded",
    "reshape",
    "scatter_along",
    "scatter_nd",
    "slice_axes",
    "slice_axis",
    "split",
    "squeeze",
    "stack",
    "take",
    "take_along",
    "tile",
    "transpose",
    "unsqueeze",
]

PAD_MODES = ("constant", "edge", "reflect", "wrap")


def moved(name: str, x: Value, shape: Sequence[int], indices: Sequence[IntExpr]) -> Value:
    """A tensor of ``shape`` whose element at ``i0, i1, ...`` is that of ``x`` at ``indices``."""

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        output = Tensor("y", tuple(shape), x.dtype)
        return [Stage(output, spatial(shape), load(given[0], indices))]

    return program(name, [x], stages)


def transpose(x: Value, order: Sequence[int] | None = None) -> Value:
    """The axes of ``x`` in another order: axis ``d`` of the result is axis ``order[d]`` of it.

    Args:
        x: A tensor.
        order: Axes; from the last to the first by default.

    Raises:
        InvalidValueError: it does not name every axis once.
    """
    axes = [normal_axis(it, x.rank) for it in (range(x.rank)[::-1] if order is None else order)]
    if sorted(axes) != [*range(x.rank)]:
        raise InvalidValueError(f"{list(axes)} is no order of {x.rank} axes")
    shape = [x.shape[axis] for axis in axes]
    if [it for it in axes if x.shape[it] > 1] == [at for at in range(x.rank) if x.shape[at] > 1]:
        return reshape(x, shape)
    if x.constant is not None:
        # Weights of a whole network are only looked at in another order.
        return constant(x.constant.transpose(axes), x.dtype)
    return moved("transpose", x, shape, [var(f"i{axes.index(at)}") for at in range(x.rank)])


def reshape(x: Value, shape: Sequence[int]) -> Value:
    """The elements of ``x`` in another shape; -1 stands for what is left.

    Raises:
        InvalidValueError: it has another number of elements.
    """
    wanted = [int(extent) for extent in shape]
    if wanted.count(-1) == 1:
        known = -prod(wanted)
        if known == 0 or x.size % known:
            raise InvalidValueError(f"{x!r} has no shape {list(shape)}")
        wanted[wanted.index(-1)] = x.size // known
    if prod(wanted) != x.size or min(wanted, default=0) < 0:
        raise InvalidValueError(f"{x!r} has no shape {list(shape)}")
    if tuple(wanted) == x.shape:
        return x
    if x.constant is not None:
        return constant(x.constant.reshape(wanted), x.dtype)
    return host("reshape", [x], [(tuple(wanted), x.dtype)], shape=tuple(wanted))[0]


def squeeze(x: Value, axes: Sequence[int] | None = None) -> Value:
    """Without these axes, which have the extent 1; without all such axes by default.

    Raises:
        InvalidValueError: an axis is longer.
    """
    if axes is None:
        axes = [at for at, extent in enumerate(x.shape) if extent == 1]
    left_out = normal_axes(axes, x.rank)
    if any(x.shape[axis] != 1 for axis in left_out):
        raise InvalidValueError(f"axes {left_out} of {x!r} are not all of extent 1")
    return reshape(x, [extent for at, extent in enumerate(x.shape) if at not in left_out])


def unsqueeze(x: Value, axes: Sequence[int]) -> Value:
    """With further axes of extent 1, at these places of the result."""
    rank = x.rank + len(axes)
    new, extents = normal_axes(axes, rank), iter(x.shape)
    return reshape(x, [1 if at in new else next(extents) for at in range(rank)])


def broadcast(x: Value, shape: Sequence[int]) -> Value:
    """Broadcast to a shape, as numpy does it.

    Raises:
        InvalidValueError: it does not broadcast to it.
    """
    wanted = tuple(map(int, shape))
    if common_shape([x.shape, wanted]) != wanted:
        raise InvalidValueError(f"{x!r} does not broadcast to {list(shape)}")
    if x.size == prod(wanted):
        return reshape(x, wanted)
    return moved("broadcast", x, wanted, broadcast_indices(x.shape, wanted))


def slice_axes(
    x: Value, starts: Sequence[int], counts: Sequence[int], steps: Sequence[int]
) -> Value:
    """Of every axis ``counts`` elements from ``starts``, ``steps`` apart."""
    if tuple(counts) == x.shape and not any(starts) and all(it == 1 for it in steps):
        return x
    names = axis_names(x.rank)
    indices = [
        start + step * var(name) if count > 1 else const(start)
        for name, start, count, step in zip(names, starts, counts, steps, strict=True)
    ]
    return moved("slice", x, counts, indices)


def slice_axis(x: Value, axis: int, start: int | None, stop: int | None, step: int = 1) -> Value:
    """``start:stop:step`` of one axis, as Python understands it."""
    axis = normal_axis(axis, x.rank)
    chosen = range(*slice(start, stop, step).indices(x.shape[axis]))
    starts, counts, steps = [0] * x.rank, list(x.shape), [1] * x.rank
    starts[axis], counts[axis], steps[axis] = chosen.start if chosen else 0, len(chosen), step
    return slice_axes(x, starts, counts, steps)


def flip(x: Value, axes: Sequence[int]) -> Value:
    """The elements from the last to the first along these axes."""
    for axis in axes:
        x = slice_axis(x, axis, None, None, -1)
    return x


def split(x: Value, sizes: Sequence[int], axis: int) -> tuple[Value, ...]:
    """Parts of these sizes along an axis.

    Raises:
        InvalidValueError: they are not the whole axis.
    """
    if sum(sizes) != x.shape[axis]:
        raise InvalidValueError(f"axis {axis} of {x!r} is not split into {list(sizes)}")
    ends = accumulate(sizes)
    return tuple(
        slice_axis(x, axis, end - size, end) for end, size in zip(ends, sizes, strict=True)
    )


def concat(values: Sequence[Value], axis: int) -> Value:
    """Concatenate tensors along an axis.

    Raises:
        InvalidValueError: their types, or their shapes beside that axis, differ.
    """
    axis = normal_axis(axis, values[0].rank)
    shapes = {(*it.shape[:axis], *it.shape[axis + 1 :], it.dtype) for it in values}
    if len(shapes) > 1 or len({it.rank for it in values}) > 1:
        raise InvalidValueError(f"{list(values)} are not joined along axis {axis}")
    parts = [it for it in values if it.shape[axis]] or list(values[:1])
    ends = list(accumulate(it.shape[axis] for it in parts))
    shape = (*parts[0].shape[:axis], ends[-1], *parts[0].shape[axis + 1 :])
    names = axis_names(len(shape))

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        body: ScalarExpr | None = None
        for tensor, end in zip(reversed(given), reversed(ends), strict=True):
            indices = [var(name) for name in names]
            indices[axis] = indices[axis] - (end - tensor.shape[axis])
            element = load(tensor, indices)
            behind = Binary("lt", IndexValue(var(names[axis])), IndexValue(const(end)))
            body = element if body is None else Select(behind, element, body)
        assert body is not None
        return [Stage(Tensor("y", shape, parts[0].dtype), spatial(shape), body)]

    return parts[0] if len(parts) == 1 else program("concat", parts, stages)


def stack(values: Sequence[Value], axis: int) -> Value:
    """Stack tensors along a new axis."""
    return concat([unsqueeze(it, [axis]) for it in values], axis)


def tile(x: Value, repeats: Sequence[int]) -> Value:
    """``repeats[d]`` times along every axis ``d``."""
    between = [extent for pair in zip([1] * x.rank, x.shape, strict=True) for extent in pair]
    wanted = [extent for pair in zip(repeats, x.shape, strict=True) for extent in pair]
    shape = [count * extent for count, extent in zip(repeats, x.shape, strict=True)]
    return reshape(broadcast(reshape(x, between), wanted), shape)


def padded(
    tensor: Tensor, low: Sequence[int], high: Sequence[int], value: Number, name: str
) -> Stage:
    """A stage that surrounds a tensor with a number; widths are not negative."""
    pairs = zip(low, tensor.shape, high, strict=True)
    shape = tuple(before + extent + after for before, extent, after in pairs)
    names = axis_names(len(shape), "p")
    inside: ScalarExpr | None = None
    for axis, before, extent, whole in zip(names, low, tensor.shape, shape, strict=True):
        bounds = []
        if before:
            bounds.append(Binary("ge", IndexValue(var(axis)), IndexValue(const(before))))
        if before + extent < whole:
            bounds.append(Binary("lt", IndexValue(var(axis)), IndexValue(const(before + extent))))
        for bound in bounds:
            inside = bound if inside is None else Binary("and", inside, bound)
    element = load(tensor, [var(it) - before for it, before in zip(names, low, strict=True)])
    outside = scalar_constant(value, tensor.dtype).body
    body: ScalarExpr = element if inside is None else Select(inside, element, outside)
    return Stage(Tensor(name, shape, tensor.dtype), spatial(shape, "p"), body)


def pad(
    x: Value,
    low: Sequence[int],
    high: Sequence[int],
    mode: str = "constant",
    value: Number | Value = 0,
) -> Value:
    """With margins of these widths before and behind every axis; negative ones cut off.

    Args:
        x: A tensor.
        low: Widths before, by axis.
        high: Widths behind, by axis.
        mode: What is in them: ``constant``, ``edge``, ``reflect`` without the edge, or ``wrap``.
        value: The number of ``constant``, or a scalar of the type of ``x`` that holds it.

    Raises:
        UnknownNameError: there is no such mode.
        InvalidValueError: nothing is there to be reflected.
    """
    if mode not in PAD_MODES:
        raise UnknownNameError("mode of padding", mode, PAD_MODES)
    if mode != "constant":
        for axis, (before, after) in enumerate(zip(low, high, strict=True)):
            x = _extended(x, axis, before, after, mode)
        return x
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        x = slice_axis(x, axis, max(0, -before), x.shape[axis] - max(0, -after))
    low, high = [max(0, it) for it in low], [max(0, it) for it in high]
    if not any((*low, *high)):
        return x
    if isinstance(value, Value) and value.constant is None:
        return _around(x, low, high, value)
    number = _number(value)
    if 0 in x.shape:
        shape = [sum(it) for it in zip(low, x.shape, high, strict=True)]
        return constant(np.full(shape, number), x.dtype)
    return program("pad", [x], lambda given: [padded(given[0], low, high, number, "y")])


def _number(value: Number | Value) -> Number:
    """A number, or what a constant of one element holds."""
    if not isinstance(value, Value):
        return value
    known = element_type(value.dtype).numbers(np.asarray(value.constant).reshape(()))
    return known.item()  # type: ignore[no-any-return]


def _around(x: Value, low: Sequence[int], high: Sequence[int], value: Value) -> Value:
    """Margins of a number that is known when the program runs only."""

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        stage = padded(given[0], low, high, 0, "y")
        assert isinstance(stage.body, Select)
        number = load(given[1], [0] * value.rank)
        body = Select(stage.body.condition, stage.body.on_true, number)
        return [Stage(stage.output, stage.axes, body)]

    return program("pad", [x, value], stages)


def _extended(x: Value, axis: int, before: int, after: int, mode: str) -> Value:
    """With margins along one axis that hold elements of it."""
    extent = x.shape[axis]
    if not before and not after:
        return x
    if extent == 0 or (mode == "reflect" and extent == 1 and max(before, after) > 0):
        raise InvalidValueError(f"axis {axis} of {x!r} has nothing for margins of mode {mode!r}")
    places = np.arange(-before, extent + after)
    if mode == "edge":
        places = np.clip(places, 0, extent - 1)
    elif mode == "wrap":
        places = places % extent
    elif extent > 1:
        around = places % (2 * extent - 2)
        places = np.minimum(around, 2 * extent - 2 - around)
    return take(x, constant(places), axis)


Array = NDArray[Any]

_COMBINERS: Mapping[str, Callable[[Scalar, Scalar], Scalar]] = MappingProxyType(
    {"add": operator.add, "mul": operator.mul, "max": maximum, "min": minimum}
)


def take(x: Value, indices: Value, axis: int) -> Value:
    """``x[..., indices, ...]``: the axes of the indices stand where that axis was."""
    axis = normal_axis(axis, x.rank)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    inner = [var(f"i{at}") for at in range(axis, axis + indices.rank)]
    outer = [var(f"i{at}") for at in range(len(shape)) if not axis <= at < axis + indices.rank]

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        chosen = _wrapped(load(given[1], inner), given[1].dtype, indices, x.shape[axis])
        body = Gather(given[0].name, _placed(outer, {axis: chosen}))
        return [Stage(Tensor("y", shape, x.dtype), spatial(shape), body)]

    return program("take", [x, indices], stages, [_in_range(1, x.shape[axis])])


def take_along(x: Value, indices: Value, axis: int) -> Value:
    """Along an axis the elements at these indices, each at its own place of the other axes.

    Raises:
        InvalidValueError: the indices are longer than ``x`` along another axis.
    """
    axis = normal_axis(axis, x.rank)
    places = [var(f"i{at}") for at in range(x.rank)]
    _check_along(x, indices, axis)

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        chosen = _wrapped(load(given[1], places), given[1].dtype, indices, x.shape[axis])
        outer = [place for at, place in enumerate(places) if at != axis]
        body = Gather(given[0].name, _placed(outer, {axis: chosen}))
        return [Stage(Tensor("y", indices.shape, x.dtype), spatial(indices.shape), body)]

    return program("take_along", [x, indices], stages, [_in_range(1, x.shape[axis])])


def gather_nd(x: Value, indices: Value, batch_dims: int = 0) -> Value:
    """Slices of ``x`` at places that are along the last axis of ``indices``.

    The first ``batch_dims`` axes of both are the same.

    Raises:
        InvalidValueError: a place has more indices than ``x`` has axes.
    """
    depth = indices.shape[-1]
    if batch_dims + depth > x.rank:
        raise InvalidValueError(f"{x!r} has no places of {batch_dims} + {depth} indices")
    batch = indices.shape[:-1]
    shape = (*batch, *x.shape[batch_dims + depth :])
    places = [var(f"i{at}") for at in range(len(shape))]
    axes = range(batch_dims, batch_dims + depth)
    extents = [x.shape[axis] for axis in axes]

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        chosen = {}
        for number, axis in enumerate(axes):
            element = load(given[1], [*places[: len(batch)], const(number)])
            chosen[axis] = _wrapped(element, given[1].dtype, indices, x.shape[axis])
        outer = [*places[:batch_dims], *places[len(batch) :]]
        body = Gather(given[0].name, _placed(outer, chosen)) if chosen else load(given[0], outer)
        return [Stage(Tensor("y", shape, x.dtype), spatial(shape), body)]

    if not extents:
        return program("gather", [x, indices], stages)
    return program("gather", [x, indices], stages, [_in_range(1, *extents)])


def one_hot(indices: Value, depth: int, off: Value, on: Value, axis: int = -1) -> Value:
    """``on`` at each index along a new axis, ``off`` beside it; nowhere for one out of range."""
    axis = normal_axis(axis, indices.rank + 1)
    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
    others = [var(f"i{at}") for at in range(len(shape)) if at != axis]

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        index = Scalar(load(given[0], others), indices.dtype).cast("int64")
        wrapped = where(index < 0, index + depth, index) if _may_be_negative(indices) else index
        here = wrapped.equals(Scalar(IndexValue(var(f"i{axis}")), "int64"))
        body = Select(here.body, load(given[2], [0] * on.rank), load(given[1], [0] * off.rank))
        return [Stage(Tensor("y", shape, on.dtype), spatial(shape), body)]

    return program("one_hot", [indices, off, on], stages)


def scatter_along(
    x: Value, indices: Value, updates: Value, axis: int, combiner: str = ""
) -> Value:
    """``x`` with updates along an axis at these indices: written, or combined with what is there.

    Args:
        x: A tensor.
        indices: Along ``axis``, each at its own place of the other axes.
        updates: As many as indices.
        axis: The axis.
        combiner: ``add``, ``mul``, ``max`` or ``min``; "" to write.
    """
    axis = normal_axis(axis, x.rank)
    _check_along(x, indices, axis)
    _check_updates(updates, indices.shape, combiner)
    if 0 in indices.shape:
        return x
    if indices.constant is not None:
        places: list[Array] = list(np.indices(indices.shape, sparse=True))
        places[axis] = _counted(indices.constant, x.shape[axis])
        written = _written(x, x.shape, places, updates, combiner)
        if written is not None:
            return written
    results, checks = [(x.shape, x.dtype)], [_in_range(1, x.shape[axis])]
    operands = [x, indices, updates]
    return host("scatter_along", operands, results, checks, axis=axis, combiner=combiner)[0]


def scatter_nd(x: Value, indices: Value, updates: Value, combiner: str = "") -> Value:
    """``x`` with slices written, or combined, at places along the last axis of ``indices``."""
    depth = indices.shape[-1] if indices.rank else 0
    _check_updates(updates, (*indices.shape[:-1], *x.shape[depth:]), combiner)
    if 0 in indices.shape:
        return x
    extents = x.shape[: indices.shape[-1]]
    if indices.constant is not None and depth:
        columns = np.moveaxis(indices.constant, -1, 0)
        places = [_counted(it, extent) for it, extent in zip(columns, extents, strict=True)]
        written = _written(x, extents, places, updates, combiner)
        if written is not None:
            return written
    results, checks = [(x.shape, x.dtype)], [_in_range(1, *extents)]
    return host("scatter_nd", [x, indices, updates], results, checks, combiner=combiner)[0]


def _counted(indices: Array, extent: int) -> Array:
    """Known indices of an axis, counted from its first element.

    Raises:
        InvalidValueError: one is out of range.
    """
    Requirement(0, -extent, extent - 1).check(indices, "scatter")
    return np.where(indices < 0, indices + extent, indices)


def _written(
    x: Value, extents: Sequence[int], places: Sequence[Array], updates: Value, combiner: str
) -> Value | None:
    """A scatter at known places, as a choice of every element between old and new.

    Args:
        x: What is written to.
        extents: Of the axes that are indexed, the first ones.
        places: Indices along these axes, in the order of the updates.
        updates: What is written.
        combiner: As of :func:`scatter_nd`.

    Returns:
        None where several updates are combined with one element, or halves are.
    """
    flat = np.ravel_multi_index(np.broadcast_arrays(*places), tuple(extents)).reshape(-1)
    is_plain = x.dtype not in (*HALVES, "bool") and len(np.unique(flat)) == len(flat)
    if combiner and not is_plain:
        return None
    source = np.full(math.prod(extents), -1, np.int32)
    # Of several at one place the last one stays.
    source[flat] = np.arange(len(flat), dtype=np.int32)
    shape = (len(flat), *x.shape[len(extents) :])
    rows = host("reshape", [updates], [(shape, updates.dtype)], shape=shape)[0]
    here = [var(f"i{at}") for at in range(x.rank)]

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        number = Scalar(load(given[1], here[: len(extents)]), "int32")
        inner = [IndexValue(it) for it in here[len(extents) :]]
        update = Scalar(Gather(given[2].name, (maximum(number, 0).body, *inner)), x.dtype)
        old = Scalar(load(given[0], here), x.dtype)
        new = _COMBINERS[combiner](old, update) if combiner else update
        body = where(number >= 0, new, old).body
        return [Stage(Tensor("y", x.shape, x.dtype), spatial(x.shape), body)]

    return program("scatter", [x, constant(source.reshape(tuple(extents))), rows], stages)


def _check_updates(updates: Value, shape: Sequence[int], combiner: str) -> None:
    if updates.shape != tuple(shape):
        raise InvalidValueError(f"{updates!r} are no updates of the shape {list(shape)}")
    if combiner not in ("", "add", "mul", "max", "min"):
        raise InvalidValueError(f"no combiner {combiner!r}; there are add, mul, max and min")


def _check_along(x: Value, indices: Value, axis: int) -> None:
    beside = [
        at
        for at in range(x.rank)
        if at != axis and indices.shape[at : at + 1] > x.shape[at : at + 1]
    ]
    if indices.rank != x.rank or beside:
        raise InvalidValueError(f"{indices!r} are no indices along axis {axis} of {x!r}")


def _in_range(operand: int, *extents: int) -> Requirement:
    """Indices of an operand into these extents, one for each place along its last axis."""
    if len(extents) == 1:
        return Requirement(operand, -extents[0], extents[0] - 1)
    return Requirement(operand, tuple(-it for it in extents), tuple(it - 1 for it in extents))


def _may_be_negative(indices: Value) -> bool:
    if indices.constant is not None:
        return bool((indices.constant < 0).any())
    return not indices.dtype.startswith("u")


def _wrapped(element: ScalarExpr, dtype: str, indices: Value, extent: int) -> ScalarExpr:
    """An index that counts from the start."""
    index = Scalar(element, dtype)
    if not _may_be_negative(indices):
        return index.body
    # An 8-bit index may have to become more than its type holds.
    wide = index.cast("int64") if dtype in ("int8", "int16") else index
    return where(wide < 0, wide + extent, wide).body


def _placed(outer: Sequence[IntExpr], chosen: dict[int, ScalarExpr]) -> tuple[ScalarExpr, ...]:
    """Computed indices of some axes among those that are axes of the stage."""
    others = iter(outer)
    rank = len(outer) + len(chosen)
    return tuple(chosen[at] if at in chosen else IndexValue(next(others)) for at in range(rank))
