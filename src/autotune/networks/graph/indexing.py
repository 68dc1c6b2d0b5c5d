"""Elements read and written where data says.

Negative indices count from the end; others that are out of range are an error before the program
runs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.expressions import (
    Gather,
    IndexValue,
    IntExpr,
    ScalarExpr,
    Select,
    const,
    var,
)
from autotune.ir.workloads import Stage, Tensor
from autotune.networks.graph.graph import Requirement, Value, constant
from autotune.networks.graph.making import HALVES, host, load, normal_axis, program, spatial
from autotune.networks.graph.scalars import Scalar, maximum, minimum, where

__all__ = ["gather_nd", "one_hot", "scatter_along", "scatter_nd", "take", "take_along"]


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
