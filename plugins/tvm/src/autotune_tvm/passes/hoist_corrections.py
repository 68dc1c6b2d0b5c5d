"""Correcting sums once for each copy of the factor that the corrections are made of.

A call of signed bytes (:func:`autotune_tvm.dot_products.vnni_512_signed`) subtracts from its sums
what is too much in them, so that it is right wherever a schedule puts it: as many subtractions as
products. What it subtracts depends on the right factor alone. Where a schedule copies that factor,
all corrections of a column are added up once behind the copy, and sums start with them instead of
with zero. Integers wrap around, so that results are the same in every bit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from attrs import frozen
from tvm import tirx
from tvm.ir import IRModule, Range, TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.s_tir.stmt import MatchBufferRegion
from tvm.sym import Analyzer, IntervalSet
from tvm.tirx.analysis import undefined_vars
from tvm_ffi import structural_map

from autotune_tvm.blocks import reads
from autotune_tvm.dot_products import CORRECTED
from autotune_tvm.passes.statements import (
    buffers_read,
    buffers_written,
    inside,
    region_at,
    replaced,
    statements,
    with_bodies,
    with_fields,
)

__all__ = ["hoist_corrections"]

_ZERO = tirx.const(0, "int32")
# Four rows by 1024 x 1024 weights are 0.84 to 1.09 times as fast as with corrections in each call,
# 32 rows by 2048 x 1008 are 1.4 times as fast (one thread of a Zen 4).
_MIN_ROWS = 8


@frozen(eq=False)
class _Call:
    """A call that corrects its sums.

    Attributes:
        realize: Its block.
        loops: All around it, outermost first.
        factor: The region that its corrections are made of, in the block's variables, and the
            buffer that stands for it.
        sums: The region that it adds to.
        axes: Of the block: those on which its corrections depend.
        columns: The dimensions of the sums along these axes.
        total: All corrections, indexed by ``columns``.
    """

    realize: Any
    loops: tuple[Any, ...]
    factor: Any
    sums: Any
    axes: tuple[Any, ...]
    columns: tuple[int, ...]
    total: Any


def hoist_corrections(module: IRModule, constants: Collection[str] = ()) -> IRModule:
    """A scheduled module whose sums start with their corrections.

    Calls stay as they are where no sequence of statements copies the factor, all of it that a sum
    needs, before it starts the sums, or where these have few rows: to read the factor once more
    then takes longer than to subtract.

    Args:
        module: After the schedule.
        constants: Names of operands that are copied before the program runs, and what is computed
            of their copies alone with them: of these, corrections cost nothing.
    """
    return with_bodies(module, lambda body: _all_hoisted(body, constants))


def _all_hoisted(root: Any, constants: Collection[str]) -> Any:
    for node in list(statements(root)):
        if isinstance(node, SBlockRealize) and CORRECTED in node.block.annotations:
            call = _call(node, root)
            root = root if call is None else _hoisted(root, call, constants)
    return root


def _call(realize: Any, root: Any) -> _Call | None:
    """What a call reads and writes; None where corrections depend on more than columns."""
    block, store = realize.block, realize.block.body
    matches = [it for it in block.match_buffers if reads(store.value.b, it.buffer)]
    (sums,) = (it.source for it in block.match_buffers if it.buffer.same_as(store.buffer))
    needed = _variables(bound.min for bound in matches[0].source.region)
    axes = [it for it in block.iter_vars if it.iter_type == it.DataPar and it.var in needed]
    # The longest one is shared among threads.
    axes.sort(key=lambda axis: -int(axis.dom.extent))
    varying = {axis.var for axis in axes}
    used = [_variables([bound.min]) for bound in sums.region]
    *_, lanes = range(len(used))
    columns = [n for n, found in enumerate(used) if n == lanes or found & varying]
    if any(used[n] - varying for n in columns):
        return None
    shape = [sums.source.shape[n] for n in columns]
    total = tirx.decl_buffer(shape, str(sums.source.dtype), f"{sums.source.name}_corrections")
    loops = tuple(it for it in _path(root, realize) if isinstance(it, tirx.For))
    return _Call(realize, loops, matches[0], sums, tuple(axes), tuple(columns), total)


def _variables(expressions: Iterable[Any]) -> set[Any]:
    return {variable for each in expressions for variable in undefined_vars(each, [])}


def _path(node: Any, wanted: Any) -> list[Any]:
    """The statements from one down to another in it; empty where it is not in it."""
    if node.same_as(wanted):
        return [node]
    below = next(filter(None, (_path(inner, wanted) for inner in inside(node))), [])
    return [node, *below] if below else []


def _hoisted(root: Any, call: _Call, constants: Collection[str]) -> Any:
    """The body of a function with all corrections added up first, where that is possible."""
    body = replaced(root, lambda node: _with_total(node, call, constants))
    if body.same_as(root):
        return root
    block = with_fields(body.block, alloc_buffers=[*body.block.alloc_buffers, call.total])
    return SBlockRealize(body.iter_values, body.predicate, block)


def _with_total(node: Any, call: _Call, constants: Collection[str]) -> Any:
    """A sequence that copies the factor, with corrections behind the copy; None for others."""
    parts = list(node.seq) if isinstance(node, tirx.SeqStmt) else []
    calls = [n for n, part in enumerate(parts) if _path(part, call.realize)]
    copied = call.factor.source.source
    copies = [n for n, part in enumerate(parts) if copied in buffers_written(part)]
    if not calls or not copies or copies[-1] >= calls[0]:
        return None
    begin, loops = copies[-1] + 1, _path(parts[calls[0]], call.realize)
    starts = [it for part in parts[begin:] for it in statements(part) if _starts(it, call)]
    sources = {str(it.name) for it in buffers_read(parts[copies[-1]]) if it != copied}
    least = 1 if sources <= set(constants) else _MIN_ROWS
    added = _total(call, [loop for loop in loops if isinstance(loop, tirx.For)], least)
    if added is None or len(starts) != 1:
        return node
    corrected = _started(starts[0], call)

    def changed(inner: Any) -> Any:
        if inner.same_as(starts[0]):
            return corrected
        return _uncorrected(inner) if inner.same_as(call.realize) else None

    rest = [replaced(part, changed) for part in parts[begin:]]
    return tirx.SeqStmt([*parts[:begin], added, *rest])


def _starts(node: Any, call: _Call) -> bool:
    """Whether a statement sets a sum to zero."""
    if not isinstance(node, SBlockRealize) or not isinstance(node.block.body, tirx.BufferStore):
        return False
    value, buffer = node.block.body.value, node.block.body.buffer
    is_zero = isinstance(value, tirx.IntImm) and int(value.value) == 0
    return is_zero and buffer.same_as(call.sums.source)


def _started(realize: Any, call: _Call) -> Any:
    """The block that sets sums to their corrections."""
    store = realize.block.body
    indices = [store.indices[n] for n in call.columns]
    body = tirx.BufferStore(store.buffer, tirx.BufferLoad(call.total, indices), store.indices)
    read = tirx.BufferRegion(call.total, [Range.from_min_extent(index, 1) for index in indices])
    block = with_fields(realize.block, reads=[read], body=body)
    return SBlockRealize(realize.iter_values, realize.predicate, block)


def _uncorrected(realize: Any) -> Any:
    """The call that subtracts nothing."""
    store, annotations = realize.block.body, dict(realize.block.annotations)
    del annotations[CORRECTED]
    body = tirx.BufferStore(store.buffer, store.value.a, store.indices)
    block = with_fields(realize.block, body=body, annotations=annotations)
    return SBlockRealize(realize.iter_values, realize.predicate, block)


def _total(call: _Call, within: Sequence[Any], least: int) -> Any:
    """Loops that add up all corrections of the sums that are added to inside some loops.

    None where these loops are not over all that a sum is over, or over less than ``least`` rows.
    """
    variables, ranges = call.realize.block.iter_vars, _ranges(call, within)
    if ranges is None:
        return None
    reduced = [it for it in variables if it.iter_type == it.CommReduce]
    axes = [*call.axes, *reduced]
    others = [it for it in variables if not any(it.same_as(axis) for axis in axes)]
    rows = math.prod(int(ranges[it.var].extent) for it in others)
    if rows < least or any(int(ranges[it.var].extent) < int(it.dom.extent) for it in reduced):
        return None
    loops = [tirx.Var(str(axis.var.name), axis.var.ty) for axis in axes]
    places = [ranges[axis.var].min + loop for axis, loop in zip(axes, loops, strict=True)]
    nest = [(loop, ranges[axis.var].extent) for axis, loop in zip(axes, loops, strict=True)]
    columns = len(call.axes)
    clear = _block(call, call.axes, places[:columns], clears=True)
    add = _serial(nest[columns:], _block(call, axes, places, clears=False))
    if columns and len(within) == len(call.loops):
        (loop, extent), *rest = nest[:columns]
        body = _serial(rest, tirx.SeqStmt([clear, add]))
        return tirx.For(loop, _ZERO, extent, tirx.ForKind.PARALLEL, body)
    return _serial(nest[:columns], tirx.SeqStmt([clear, add]))


def _serial(nest: Sequence[tuple[Any, Any]], body: Any) -> Any:
    """Loops around a statement, outermost first: variables and extents."""
    for loop, extent in reversed(nest):
        body = tirx.For(loop, _ZERO, extent, tirx.ForKind.SERIAL, body)
    return body


def _block(call: _Call, axes: Sequence[Any], places: Sequence[Any], *, clears: bool) -> Any:
    """The block that adds a call's corrections of its lanes, or the one that clears them.

    Args:
        call: What is corrected.
        axes: Of its block: those of the new one.
        places: A value for each of them.
        clears: Whether corrections are set to zero.
    """
    own = [axis.var for axis in axes]
    fresh = [tirx.Var(str(variable.name), variable.ty) for variable in own]
    bounds = [call.sums.region[n] for n in call.columns]
    total = region_at(tirx.BufferRegion(call.total, bounds), own, fresh)
    lanes = bounds[-1].extent
    *outer, last = (bound.min for bound in total.region)
    indices = [*outer, tirx.Ramp(last, 1, lanes)]
    if clears:
        value, needed, matched = tirx.Broadcast(tirx.const(0, "int32"), lanes), [], []
    else:
        region, known = region_at(call.factor.source, own, fresh), call.factor.buffer
        buffer = tirx.decl_buffer(known.shape, known.dtype, str(known.name), offset_factor=1)
        value = tirx.BufferLoad(call.total, indices) - _with_source(
            call.realize.block.body.value.b, buffer
        )
        needed, matched = [total, region], [MatchBufferRegion(buffer, region)]
    variables = [
        tirx.IterVar(axis.dom, variable, axis.iter_type)
        for axis, variable in zip(axes, fresh, strict=True)
    ]
    store, name = tirx.BufferStore(call.total, value, indices), str(call.total.name)
    made = SBlock(variables, needed, [total], name, store, None, [], matched)
    return SBlockRealize(list(places), True, made)


def _with_source(expression: Any, buffer: Any) -> Any:
    """The expression that reads another buffer."""
    return structural_map(
        expression, (TensorLoad, lambda load: tirx.BufferLoad(buffer, load.indices))
    )


def _ranges(call: _Call, within: Sequence[Any]) -> dict[Any, Any] | None:
    """Where the variables of a block are inside some loops; None where that is not certain."""
    analyzer = Analyzer()
    domains = {}
    for loop in call.loops:
        if any(loop.same_as(other) for other in within):
            domains[loop.loop_var] = IntervalSet(loop.min, loop.min + loop.extent - 1)
        else:
            analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
    found = {}
    for axis, value in zip(call.realize.block.iter_vars, call.realize.iter_values, strict=True):
        reached = analyzer.int_set(value, domains)
        extent = analyzer.simplify(reached.max_value - reached.min_value + 1)
        inside_domain = tirx.And(reached.min_value >= 0, reached.max_value < axis.dom.extent)
        if not isinstance(extent, tirx.IntImm) or not analyzer.can_prove(inside_domain):
            return None
        found[axis.var] = Range.from_min_extent(reached.min_value, extent)
    return found
