"""Bound on the time of an unscheduled program, found without running it.

A sum of floats is added in the order in which it stands: TVM gives LLVM no leave to reorder it.
Where the innermost loops are those of a sum, no addition begins before the last one has ended.
"""

from __future__ import annotations

import math
from typing import Any

from autotune.backends import LEAST_IN_SUM, SECONDS_PER_ADDITION

__all__ = ["of_function"]


def of_function(function: Any) -> float:
    """Seconds that a call takes at least; 0.0 where nothing can be said.

    Args:
        function: An unscheduled ``PrimFunc``.
    """
    return SECONDS_PER_ADDITION * _dependent_additions(function.body, ())


def _dependent_additions(node: Any, loops: tuple[Any, ...]) -> int:
    """Additions inside a statement of which each waits for another.

    Args:
        node: A statement.
        loops: Those around it, the outermost first.
    """
    from tvm import tirx
    from tvm.s_tir import SBlockRealize

    from autotune_tvm.passes.statements import inside

    if isinstance(node, tirx.For):
        serial = node.kind == tirx.ForKind.SERIAL and isinstance(node.extent, tirx.IntImm)
        return _dependent_additions(node.body, (*loops, node)) if serial else 0
    if isinstance(node, SBlockRealize) and _adds_floats(node.block):
        return _of_block(node, loops)
    return sum(_dependent_additions(statement, loops) for statement in inside(node))


def _of_block(realize: Any, loops: tuple[Any, ...]) -> int:
    from tvm import tirx
    from tvm.ir import Var

    axes = realize.block.iter_vars
    kinds = {
        binding: axis.iter_type
        for axis, binding in zip(axes, realize.iter_values, strict=True)
        if isinstance(binding, Var)
    }
    if len(kinds) != len(axes):
        return 0
    in_sum = 1
    for loop in reversed(loops):
        if kinds.get(loop.loop_var) != tirx.IterVar.CommReduce:
            break
        in_sum *= int(loop.extent)
    return math.prod(int(loop.extent) for loop in loops) if in_sum >= LEAST_IN_SUM else 0


def _adds_floats(block: Any) -> bool:
    """Return whether a block adds to what it writes: ``C[i] = C[i] + ...`` of floats."""
    from tvm import tirx
    from tvm.ir import TensorLoad

    store = block.body
    if block.init is None or not isinstance(store, tirx.BufferStore):
        return False
    value = store.value
    return (
        isinstance(value, tirx.Add)
        and "float" in str(store.buffer.dtype)
        and isinstance(value.a, TensorLoad)
        and bool(value.a.source.same_as(store.buffer))
    )
