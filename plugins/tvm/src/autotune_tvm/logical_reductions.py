"""Reductions of truth values (``any``, ``all``) as those of numbers, with a comparison after.

TVM does not split reductions of truth values, and its vectors of those that lie in local memory
are not compiled. As bytes they are the largest or the smallest of the numbers 0 and 1.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Range
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_equal

from autotune_tvm.blocks import reads

__all__ = ["as_numbers"]

_BYTE = "int8"
# With the truth value that changes nothing, and what combines bytes in its place.
_COMBINERS: tuple[tuple[Any, bool, Any], ...] = (
    (tirx.Or, False, tirx.Max),
    (tirx.And, True, tirx.Min),
    (tirx.BitwiseOr, False, tirx.Max),
    (tirx.BitwiseAnd, True, tirx.Min),
)


def as_numbers(realize: Any, name: str) -> tuple[Any, Any, Any] | None:
    """A reduction of truth values as two blocks; None of other blocks.

    Args:
        realize: A block that stores once, with the values of its variables.
        name: What the bytes and the block that reduces them are called.

    Returns:
        The buffer of the bytes, the block that reduces to it in the place of ``realize``, and a
        loop nest that compares.
    """
    block = realize.block
    store, first = block.body, block.init
    if not isinstance(store, tirx.BufferStore) or not isinstance(first, tirx.BufferStore):
        return None
    if str(store.buffer.dtype) != "bool" or not isinstance(first.value, tirx.IntImm):
        return None
    old = tirx.BufferLoad(store.buffer, store.indices)
    for kind, neutral, combine in _COMBINERS:
        if not isinstance(store.value, kind) or bool(first.value.value) != neutral:
            continue
        for known, other in ((store.value.a, store.value.b), (store.value.b, store.value.a)):
            if structural_equal(known, old) and not reads(other, store.buffer):
                return _two_blocks(realize, name, combine, other)
    return None


def _two_blocks(realize: Any, name: str, combine: Any, other: Any) -> tuple[Any, Any, Any]:
    block, store = realize.block, realize.block.body
    numbers = tirx.decl_buffer(store.buffer.shape, _BYTE, name)
    value = combine(tirx.BufferLoad(numbers, store.indices), tirx.Cast(_BYTE, other))
    start = (tirx.min_value if combine is tirx.Max else tirx.max_value)(_BYTE)
    writes = [tirx.BufferRegion(numbers, region.region) for region in block.writes]
    reduced = SBlock(
        block.iter_vars,
        block.reads,
        writes,
        name,
        tirx.BufferStore(numbers, value, store.indices),
        tirx.BufferStore(numbers, start, store.indices),
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )
    replaced = SBlockRealize(realize.iter_values, realize.predicate, reduced)
    return numbers, replaced, _compared(numbers, store.buffer, str(block.name_hint))


def _compared(numbers: Any, truths: Any, name: str) -> Any:
    """The loop nest that stores where the numbers are positive."""
    kinds = [extent.ty.dtype for extent in truths.shape]
    axes = [
        tirx.IterVar(Range(0, extent), tirx.Var(f"v{place}", str(kind)), tirx.IterVar.DataPar)
        for place, (extent, kind) in enumerate(zip(truths.shape, kinds, strict=True))
    ]
    own = [axis.var for axis in axes]
    points = [Range.from_min_extent(at, 1) for at in own]
    positive = tirx.BufferLoad(numbers, own) > tirx.const(0, _BYTE)
    block = SBlock(
        axes,
        [tirx.BufferRegion(numbers, points)],
        [tirx.BufferRegion(truths, points)],
        name,
        tirx.BufferStore(truths, positive, own),
    )
    counters = [tirx.Var(f"i{place}", str(kind)) for place, kind in enumerate(kinds)]
    nest: Any = SBlockRealize(counters, tirx.const(True, "bool"), block)
    for counter, extent in zip(reversed(counters), reversed(list(truths.shape)), strict=True):
        start = tirx.const(0, str(counter.ty.dtype))
        nest = tirx.For(counter, start, extent, tirx.ForKind.SERIAL, nest)
    return nest
