"""Reductions whose windows differ from result to result, as ones over windows of one size.

TVM's operator library writes adaptive pooling so where the output does not divide the input: the
block that reduces stands in loops inside the block of one result, and the extents of these loops
depend on which result that is. Windows of one size are those of the largest one. What is beyond a
smaller window is not read; it contributes what the reduction starts with.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray
from tvm import tirx
from tvm.ir import Range, TensorLoad, TensorRegion, Var
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_equal

from autotune.ir.workloads import Axis
from autotune.ir.workloads.reference import evaluate_body
from autotune_tvm.blocks import reads, walk
from autotune_tvm.passes.statements import at
from autotune_tvm.scalar_import import BodyReader, Unsupported

__all__ = ["with_equal_windows"]

_COMBINERS = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)
# Windows whose extents are computed to find the largest.
_MOST_WINDOWS = 1 << 20


@frozen
class _Window:
    """A block that reduces inside another block.

    Attributes:
        outer: The axes of the block around it.
        loops: The loops between the blocks.
        realize: The block that reduces.
        first: What it stores first.
    """

    outer: dict[Any, Axis]
    loops: tuple[Any, ...]
    realize: Any
    first: Any


def with_equal_windows(loops: list[Any], realize: Any) -> Any | None:
    """The loop nest of a reduction over windows of one size; None of what is something else.

    Args:
        loops: The loops around a block, outermost first.
        realize: That block.

    Returns:
        One block in one loop nest, called as the block inside.

    Raises:
        Unsupported: the windows or what is reduced have no such form.
    """
    window = _window_of(realize)
    if window is None:
        return None
    block = window.realize.block
    values = dict(zip((it.var for it in block.iter_vars), window.realize.iter_values, strict=True))
    axes: list[Any] = []
    counters: list[Any] = []
    inside: Any = tirx.const(True, "bool")
    for axis in block.iter_vars:
        bound = (it for it in window.loops if it.loop_var.same_as(values[axis.var]))
        loop = next(bound, None)
        if loop is None:
            continue
        variable = tirx.Var(str(axis.var.name), axis.var.ty)
        extent, most = _extent(loop.extent, window.outer)
        limit = tirx.const(most, str(axis.var.ty.dtype))
        axes.append(tirx.IterVar(Range(0, limit), variable, tirx.IterVar.CommReduce))
        counters.append(tirx.Var(str(loop.loop_var.name), loop.loop_var.ty))
        values[axis.var] = variable
        if not isinstance(extent, tirx.IntImm):
            within = variable < extent
            inside = within if isinstance(inside, tirx.IntImm) else tirx.And(inside, within)
    alone = _reduced(window, realize.block, axes, values, inside)
    nest: Any = SBlockRealize([*realize.iter_values, *counters], realize.predicate, alone)
    for counter, axis in zip(reversed(counters), reversed(axes), strict=True):
        nest = tirx.For(counter, axis.dom.min, axis.dom.extent, tirx.ForKind.SERIAL, nest)
    for loop in reversed(loops):
        nest = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, nest)
    return nest


def _window_of(realize: Any) -> _Window | None:
    """The parts of a block with one that reduces inside; None of another one."""
    block = realize.block
    loops, inner = [], block.body
    while isinstance(inner, tirx.For):
        loops.append(inner)
        inner = inner.body
    if not isinstance(inner, SBlockRealize) or not all(map(_is_plain, (realize, inner))):
        return None
    starts = [it.init for it in (block, inner.block) if it.init is not None]
    stores = [inner.block.body, *starts]
    if len(starts) != 1 or not all(isinstance(it, tirx.BufferStore) for it in stores):
        return None
    outer: dict[Any, Axis] = {}
    for place, axis in enumerate(block.iter_vars):
        reduces = int(axis.iter_type) == tirx.IterVar.CommReduce
        # What the inner block starts with would be stored for every part of a window.
        if not _is_range(axis.dom) or (reduces and block.init is None):
            return None
        outer[axis.var] = Axis(f"d{place}", int(axis.dom.extent.value))
    kinds = {int(axis.iter_type) for axis in (*block.iter_vars, *inner.block.iter_vars)}
    if not kinds <= {tirx.IterVar.DataPar, tirx.IterVar.CommReduce}:
        return None
    pairs = zip(inner.block.iter_vars, inner.iter_values, strict=True)
    reduced = [value for axis, value in pairs if int(axis.iter_type) == tirx.IterVar.CommReduce]
    bound = [[loop.loop_var.same_as(value) for value in reduced].count(True) for loop in loops]
    return _Window(outer, tuple(loops), inner, starts[0]) if set(bound) <= {1} else None


def _is_plain(realize: Any) -> bool:
    predicate, block = realize.predicate, realize.block
    whole = isinstance(predicate, tirx.IntImm) and int(predicate.value) == 1
    return whole and len(block.match_buffers) == 0 and len(block.alloc_buffers) == 0


def _is_range(domain: Any) -> bool:
    whole = isinstance(domain.min, tirx.IntImm) and isinstance(domain.extent, tirx.IntImm)
    return whole and int(domain.min.value) == 0


def _extent(extent: Any, outer: dict[Any, Axis]) -> tuple[Any, int]:
    """The extent of a window in the simplest form that is known, and that of the largest one.

    Raises:
        Unsupported: it is not computed from the axes of a result, or a window is empty.
    """
    sizes = _values(extent, outer)
    low, high = int(sizes.min()), int(sizes.max())
    if low < 1:
        raise Unsupported(f"the window of a result has {low} elements: {extent}")
    if low == high:
        return tirx.const(high, str(extent.ty.dtype)), high
    return _without_selection(extent, outer), high


def _values(expression: Any, outer: dict[Any, Axis]) -> NDArray[Any]:
    """An expression for every value of the axes that it depends on.

    Raises:
        Unsupported: it depends on something else, or on too many results.
    """
    nodes = list(walk(expression))
    if any(isinstance(node, TensorLoad) for node in nodes):
        raise Unsupported(f"the extent of its window depends on data: {expression}")
    used = {node: outer[node] for node in nodes if isinstance(node, Var) and node in outer}
    count = math.prod(axis.extent for axis in used.values())
    if count > _MOST_WINDOWS:
        raise Unsupported(
            f"its windows have {count} extents, of which at most {_MOST_WINDOWS} are computed"
        )
    body = BodyReader(used, {}).scalar(expression)
    ranges = (np.arange(axis.extent) for axis in used.values())
    grid = dict(zip((it.name for it in used.values()), np.ix_(*ranges), strict=True))
    return np.asarray(evaluate_body(body, grid, {}))


def _without_selection(node: Any, outer: dict[Any, Axis]) -> Any:
    """The same number, quotients rounded up as quotients of sums where they are selections."""
    if isinstance(node, (tirx.Add, tirx.Sub)):
        parts = (_without_selection(part, outer) for part in (node.a, node.b))
        return type(node)(*parts)
    if isinstance(node, tirx.Select) and isinstance(node.true_value, tirx.FloorDiv):
        top, divisor = node.true_value.a, node.true_value.b
        rounded = tirx.FloorDiv(top + divisor - 1, divisor)
        if np.array_equal(_values(rounded, outer), _values(node, outer)):
            return rounded
    return node


def _reduced(
    window: _Window, around: Any, axes: list[Any], values: dict[Any, Any], inside: Any
) -> SBlock:
    """The block that reduces what is ``inside``, over the axes of both blocks.

    Args:
        window: The block that reduces.
        around: The block around it.
        axes: What is reduced over inside that.
        values: What each variable of the block that reduces is.
        inside: Holds within a window.

    Raises:
        Unsupported: it is no reduction of a known kind.
    """
    old, new = list(values), list(values.values())

    def moved(expression: Any) -> Any:
        return at(expression, old, new)

    def region(whole: Any) -> Any:
        ranges = [Range.from_min_extent(moved(it.min), moved(it.extent)) for it in whole.region]
        return TensorRegion(whole.source, ranges, whole.ty)

    block, first = window.realize.block, window.first
    store, start = block.body, first.value
    indices = [moved(index) for index in store.indices]
    same = first.buffer.same_as(store.buffer) and all(
        structural_equal(moved(one), other)
        for one, other in zip(first.indices, indices, strict=True)
    )
    if not same or not isinstance(start, (tirx.IntImm, tirx.FloatImm)):
        raise Unsupported("T.init() does not store a constant to what the block writes")
    kind, other = _update(store)
    before, value = tirx.BufferLoad(store.buffer, indices), moved(other)
    if not isinstance(inside, tirx.IntImm):
        value = tirx.if_then_else(inside, value, start)
    return SBlock(
        [*around.iter_vars, *axes],
        [region(it) for it in block.reads if not it.source.same_as(store.buffer)],
        [region(it) for it in block.writes],
        str(block.name_hint),
        tirx.BufferStore(store.buffer, kind(before, value), indices),
        tirx.BufferStore(store.buffer, start, indices),
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )


def _update(store: Any) -> tuple[Any, Any]:
    """The operation by which a store combines what was there with another value, and that."""
    before = tirx.BufferLoad(store.buffer, store.indices)
    for kind in _COMBINERS:
        if not isinstance(store.value, kind):
            continue
        for known, other in (
            (store.value.a, store.value.b),
            (store.value.b, store.value.a),
        ):
            if structural_equal(known, before) and not reads(other, store.buffer):
                return kind, other
    raise Unsupported("its update is not output = output (+, *, max or min) expression")
