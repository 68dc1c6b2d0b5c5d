"""Reads scans of TVM's operator library (``cumsum``, ``cumprod``).

They come as one block that holds loops: a parallel one over all sequences, in which the first
element is stored and a loop continues it, at indices that are computed from one flat position.
They are read as a scan over the dimensions of the result, which does the same operations in the
same order. That is proven of the indices, whatever made them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from attrs import frozen
from tvm import tirx
from tvm.ir import Range, TensorLoad
from tvm.sym import Analyzer
from tvm_ffi import structural_equal

from autotune_tvm.passes.statements import at, reads
from autotune_tvm.scans import COMBINE

__all__ = ["ScanLoops", "scan_loops"]

_NEUTRAL = {"add": 0, "mul": 1}


@frozen(eq=False)
class _Loops:
    """Loops that scan.

    Attributes:
        sequences: The variable of the loop over sequences.
        step: The variable of the loop along one.
        first: Stores the first element of a sequence.
        store: Stores another element.
        combiner: How it does.
        previous: What it reads of its result.
        value: What it adds of its own.
        shape: Extents of the result.
        extents: Of both loops.
    """

    sequences: Any
    step: Any
    first: Any
    store: Any
    combiner: str
    previous: Any
    value: Any
    shape: tuple[int, ...]
    extents: tuple[int, int]


@frozen(eq=False)
class ScanLoops:
    """Loops that scan a tensor, over its dimensions.

    Attributes:
        name: The block that they stand in.
        buffer: What they store to.
        axes: A variable for each of its dimensions.
        along: The dimension along which they continue.
        combiner: By what.
        value: What each element adds of its own.
    """

    name: str
    buffer: Any
    axes: tuple[Any, ...]
    along: int
    combiner: str
    value: Any


def scan_loops(statement: Any, name: str) -> ScanLoops | None:
    """Scan in ``statement``; None of other statements.

    Args:
        statement: What stands in a function or in a block without variables.
        name: Of the block.
    """
    loops = _loops_of(statement)
    if loops is None:
        return None
    for along in range(len(loops.shape)):
        made = _in_dimensions(loops, along, name)
        if made is not None:
            return made
    return None


def _loops_of(statement: Any) -> _Loops | None:
    """The parts of two loops that scan; None of other statements."""
    if not _is_counted(statement) or not isinstance(statement.body, tirx.SeqStmt):
        return None
    parts = list(statement.body.seq)
    if len(parts) != 2 or not isinstance(parts[0], tirx.BufferStore) or not _is_counted(parts[1]):
        return None
    (first, loop), store = parts, parts[1].body
    if not isinstance(store, tirx.BufferStore) or not store.buffer.same_as(first.buffer):
        return None
    combiner = next((it for it, kind in COMBINE.items() if isinstance(store.value, kind)), None)
    extents = list(store.buffer.shape)
    if combiner not in _NEUTRAL or not all(isinstance(it, tirx.IntImm) for it in extents):
        return None
    previous, value = store.value.a, store.value.b
    own = isinstance(previous, TensorLoad) and previous.source.same_as(store.buffer)
    if str(statement.loop_var.ty.dtype) != str(loop.loop_var.ty.dtype):
        return None
    if not own or reads(value, store.buffer) or reads(first.value, store.buffer):
        return None
    return _Loops(
        statement.loop_var,
        loop.loop_var,
        first,
        store,
        combiner,
        previous,
        value,
        tuple(map(int, extents)),
        (int(statement.extent), int(loop.extent)),
    )


def _is_counted(statement: Any) -> bool:
    """Return whether it is a loop over a known number of values from 0, serial or parallel."""
    return (
        isinstance(statement, tirx.For)
        and statement.kind in (tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL)
        and isinstance(statement.extent, tirx.IntImm)
        and isinstance(statement.min, tirx.IntImm)
        and int(statement.min) == 0
        and (statement.step is None or int(statement.step) == 1)
    )


def _in_dimensions(loops: _Loops, along: int, name: str) -> ScanLoops | None:
    """The loops over the dimensions of the result; None if they do not scan ``along`` one."""
    others = math.prod(extent for place, extent in enumerate(loops.shape) if place != along)
    if loops.extents != (others, loops.shape[along] - 1):
        return None
    dtype = str(loops.sequences.ty.dtype)
    axes = [tirx.Var(f"v{place}", dtype) for place in range(len(loops.shape))]
    analyzer = Analyzer()
    for axis, extent in zip(axes, loops.shape, strict=True):
        analyzer.bind(axis, Range.from_min_extent(0, extent))
    analyzer.bind(loops.step, Range.from_min_extent(0, max(1, loops.extents[1])))
    sequence: Any = tirx.const(0, dtype)
    for place, (axis, extent) in enumerate(zip(axes, loops.shape, strict=True)):
        sequence = sequence if place == along else sequence * extent + axis

    def moved(node: Any) -> Any:
        return analyzer.simplify(at(node, [loops.sequences], [sequence]))

    def are(indices: Sequence[Any], position: Any) -> bool:
        wanted = [position if axis is axes[along] else axis for axis in axes]
        pairs = zip(indices, wanted, strict=True)
        return all(analyzer.can_prove_equal(moved(one), other) for one, other in pairs)

    first = tirx.const(0, dtype)
    # A sequence of one element has no other that is continued.
    continues = loops.extents[1] == 0 or (
        are(loops.store.indices, loops.step + 1) and are(loops.previous.indices, loops.step)
    )
    if not continues or not are(loops.first.indices, first):
        return None
    start = tirx.const(_NEUTRAL[loops.combiner], str(loops.store.buffer.dtype))
    own, position = moved(loops.first.value), axes[along]
    value = moved(at(loops.value, [loops.step], [position - 1]))
    if structural_equal(own, start):
        # Without the element itself: the first has none before it.
        if loops.extents[1] > 1:
            value = at(moved(loops.value), [loops.step], [position - 1])
        value = tirx.if_then_else(position >= 1, value, start)
    elif not structural_equal(analyzer.simplify(at(value, [position], [first])), own):
        return None
    return ScanLoops(name, loops.store.buffer, tuple(axes), along, loops.combiner, value)
