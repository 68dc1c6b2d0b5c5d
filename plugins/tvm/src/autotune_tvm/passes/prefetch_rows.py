"""Fetching what the next row reads while this one is computed.

The first stage along a row waits for memory, and memory for the others. A stage that computes for
longer, on what the caches hold by then, may ask for the next row on the way.
"""

from __future__ import annotations

from typing import Any

from tvm import DataType, tirx
from tvm.ir import IRModule, TensorLoad
from tvm.s_tir import SBlockRealize
from tvm_ffi import structural_walk

from autotune_tvm.passes.statements import at, rebuilt, replaced, with_bodies

__all__ = ["PREFETCH", "ROWS", "prefetch_rows"]

PREFETCH = "autotune.prefetch"
"""The annotation of blocks that ask for what they read in the next row: of which buffer."""

ROWS = "autotune.rows"
"""The annotation of loops over rows."""

_LINE_BYTES = 64
# For reading, into the second cache.
_READ, _LOCALITY, _DATA = 0, 2, 1


def prefetch_rows(module: IRModule) -> IRModule:
    """A scheduled module whose marked blocks ask for what they read in the next row.

    Once for each line of a vector. Behind the last row that is what nothing needs.
    """
    return with_bodies(module, lambda body: replaced(body, _with_prefetches))


def _with_prefetches(node: Any) -> Any | None:
    if not isinstance(node, tirx.For) or ROWS not in node.annotations:
        return None
    row = node.loop_var

    def changed(inner: Any) -> Any | None:
        vector = inner if _is_vector(inner) else None
        realize = inner if vector is None else vector.body
        load = _marked_load(realize)
        if load is None:
            return None
        return tirx.SeqStmt([*_prefetches(load, realize, vector, row), inner])

    return rebuilt(node, [replaced(node.body, changed)])


def _is_vector(node: Any) -> bool:
    return isinstance(node, tirx.For) and node.kind == tirx.ForKind.VECTORIZED


def _marked_load(realize: Any) -> Any | None:
    """The first load of the buffer that is asked for; None where nothing is."""
    if not isinstance(realize, SBlockRealize) or PREFETCH not in realize.block.annotations:
        return None
    name = str(realize.block.annotations[PREFETCH])
    found: list[Any] = []

    def note(load: Any) -> None:
        if str(load.source.name) == name:
            found.append(load)

    structural_walk(realize.block.body, (TensorLoad, note))
    # The initialisation of a reduction is marked as well, and loads nothing.
    return found[0] if found else None


def _prefetches(load: Any, realize: Any, vector: Any | None, row: Any) -> list[Any]:
    """Prefetches of what a block loads in the next row, in all lanes if there are any."""
    own = [item.var for item in realize.block.iter_vars]
    step = max(1, _LINE_BYTES * 8 // DataType(str(load.source.dtype)).bits)
    lanes = [] if vector is None else [vector.loop_var]
    numbers = [tirx.const(number, "int32") for number in (_READ, _LOCALITY, _DATA)]
    made = []
    for lane in range(0, 1 if vector is None else int(vector.extent), step):
        given = [row + 1, *(tirx.const(lane, it.ty.dtype) for it in lanes)]
        values = [at(value, [row, *lanes], given) for value in realize.iter_values]
        indices = [at(index, own, values) for index in load.indices]
        address = tirx.address_of(tirx.BufferLoad(load.source, indices))
        call = tirx.call_llvm_intrin("void", "llvm.prefetch", address, *numbers)
        made.append(tirx.Evaluate(call))
    return made
