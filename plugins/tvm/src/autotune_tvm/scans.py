"""Scans as blocks: each element continues what is stored before it along a dimension.

Such a block stores ``out[i, t] = if_then_else(t == 0, neutral, out[i, t - 1]) + x[i, t]``, and its
variable ``t`` is an ordered one. None of TVM's own schedules takes that. Where the steps of a
sketch are replayed, which keep the order (:func:`autotune.nest.derive.check_scan`), the block is
:func:`opened`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import frozen
from tvm import tirx
from tvm.ir import Call, IRModule, Op, Range, TensorLoad
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm_ffi import structural_map

__all__ = ["COMBINE", "Continuation", "continuation", "opened", "scan_block", "with_scans"]

COMBINE: Mapping[str, Any] = MappingProxyType(
    {"add": tirx.Add, "mul": tirx.Mul, "max": tirx.Max, "min": tirx.Min}
)
"""Operators of TIR, by combiner."""

_CONDITIONAL = Op.get("prim.if_then_else")


@frozen(eq=False)
class Continuation:
    """Continuation of a block of a scan.

    Attributes:
        along: The dimension along which it does.
        combiner: By what.
        start: What the first element combines its own value with.
    """

    along: int
    combiner: str
    start: Any


def with_scans(function: tirx.PrimFunc, scans: Mapping[str, Continuation]) -> tirx.PrimFunc:
    """The function with blocks that scan.

    Args:
        function: Has these blocks, which store what each element adds of its own.
        scans: How they continue, by name.
    """

    def changed(block: Any) -> Any:
        found = scans.get(str(block.name_hint))
        return block if found is None else scan_block(block, found)

    return structural_map(function, (SBlock, changed)) if scans else function


def scan_block(block: Any, found: Continuation) -> Any:
    """The block that continues what ``block`` stores of each element: its own part of it."""
    buffer, indices = block.body.buffer, list(block.body.indices)
    along = indices[found.along]
    one, zero = (tirx.const(number, str(along.ty.dtype)) for number in (1, 0))
    before = [index - one if index is along else index for index in indices]
    known = tirx.if_then_else(tirx.EQ(along, zero), found.start, tirx.BufferLoad(buffer, before))
    value = COMBINE[found.combiner](known, block.body.value)
    axes = [
        tirx.IterVar(it.dom, it.var, tirx.IterVar.Ordered) if it.var.same_as(along) else it
        for it in block.iter_vars
    ]
    inside = [tirx.max(index - one, zero) if index is along else index for index in indices]
    own = tirx.BufferRegion(buffer, [Range.from_min_extent(index, 1) for index in inside])
    store = tirx.BufferStore(buffer, value, indices)
    return SBlock(axes, [own, *block.reads], block.writes, str(block.name_hint), store)


def opened(module: IRModule) -> IRModule:
    """The module with scans that TVM's schedules take.

    They refuse blocks with an ordered variable, or that read what they write. Who schedules these
    keeps the order along the axis of a scan.
    """

    def changed(block: Any) -> Any:
        if continuation(block) is None:
            return block
        buffer = block.body.buffer
        return SBlock(
            [tirx.IterVar(it.dom, it.var, tirx.IterVar.DataPar) for it in block.iter_vars],
            [_inside(it, block) for it in block.reads if not it.source.same_as(buffer)],
            block.writes,
            str(block.name_hint),
            block.body,
        )

    functions = {
        name: structural_map(it, (SBlock, changed)) for name, it in module.functions.items()
    }
    return IRModule(functions, attrs=module.attrs)


def _inside(region: Any, block: Any) -> Any:
    """A region that a block reads, moved to where it begins in the buffer if it lies before it.

    An exclusive scan of sequences of one element has such a region. It is never read, and TVM
    refuses to schedule a stage of whose result no part is read.
    """
    analyzer = Analyzer()
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    ranges = [
        Range.from_min_extent(tirx.const(0, str(it.min.ty.dtype)), it.extent)
        if analyzer.can_prove(it.min < 0)
        else it
        for it in region.region
    ]
    return tirx.BufferRegion(region.source, ranges)


def continuation(block: Any) -> tuple[Continuation, Any] | None:
    """Continuation of a block, and what each element adds; None of blocks without this form."""
    store = block.body
    if not isinstance(store, tirx.BufferStore) or block.init is not None:
        return None
    for combiner, kind in COMBINE.items():
        if not isinstance(store.value, kind):
            continue
        known = store.value.a
        if not isinstance(known, Call) or not known.op.same_as(_CONDITIONAL):
            return None
        condition, start, before = known.args
        if not isinstance(before, TensorLoad) or not before.source.same_as(store.buffer):
            return None
        along = _dimension(store.indices, before.indices)
        if along is None or not _is_first(condition, store.indices[along]):
            return None
        return Continuation(along, combiner, start), store.value.b
    return None


def _dimension(indices: Sequence[Any], before: Sequence[Any]) -> int | None:
    """The one dimension in which ``before`` is one less."""
    found = [
        place
        for place, (own, other) in enumerate(zip(indices, before, strict=True))
        if not own.same_as(other)
    ]
    if len(found) != 1:
        return None
    other = before[found[0]]
    less = isinstance(other, tirx.Sub) and other.a.same_as(indices[found[0]])
    return found[0] if less and _is_number(other.b, 1) else None


def _is_first(condition: Any, index: Any) -> bool:
    return (
        isinstance(condition, tirx.EQ)
        and bool(condition.a.same_as(index))
        and _is_number(condition.b, 0)
    )


def _is_number(value: Any, number: int) -> bool:
    return isinstance(value, tirx.IntImm) and int(value.value) == number
