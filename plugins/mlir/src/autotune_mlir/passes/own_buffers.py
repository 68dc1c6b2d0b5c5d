"""A buffer of its own for each tensor that a program fills."""

from __future__ import annotations

from typing import Any

from autotune_mlir.traversal import operations_in

__all__ = ["separate_empty_tensors"]

_EMPTY = "tensor.empty"


def separate_empty_tensors(ir: Any, kernel: Any) -> None:
    """Make an empty tensor for each use of one: equal ones have become one.

    Bufferization would give what is filled one after the other a single buffer.

    Args:
        ir: The ``ir`` module of the bindings.
        kernel: The function, on tensors.
    """
    for empty in [it for it in operations_in(kernel) if it.name == _EMPTY]:
        uses = [(use.owner, use.operand_number) for use in empty.results[0].uses]
        for user, number in uses[1:]:
            user.operands[number] = empty.clone(ir.InsertionPoint(empty)).results[0]
