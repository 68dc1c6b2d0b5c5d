"""Masked vectors of elements that the processor has no masks for.

A copy that pads reads vectors of which the lanes beyond an extent are masked, and tiles of a
padded result are written so. AVX2 masks elements of 32 and 64 bits only: LLVM makes of a masked
vector of halves a branch for each element. All lanes of nearly all of these vectors are inside,
and one branch for the whole vector tells.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import reduce
from typing import Any

from autotune_mlir.importing.scalar_import import defining

__all__ = ["MASKED", "split_masked"]

MASKED = frozenset({"vector.transfer_read", "vector.transfer_write"})
"""Operations that :func:`split_masked` takes."""

_SIGNED_AT_LEAST = 5  # of arith.cmpi
_KEPT = ("permutation_map", "in_bounds")


def split_masked(ir: Any, operations: Sequence[Any], least_bits: int) -> None:
    """Read and write vectors without a mask where all of their lanes are inside.

    Args:
        ir: The ``ir`` module of the bindings; the context is the current one.
        operations: Transfers on buffers; those without a mask are left alone.
        least_bits: Bits of the narrowest elements that the processor has masks for.
    """
    for operation in operations:
        mask = _mask(operation)
        if mask is None or _bits(operation) >= least_bits or _lanes(mask) == 1:
            continue
        made = defining(mask)
        # What else makes masks are constants, and parts of others.
        if made is not None and made.name == "vector.create_mask" and _is_inside(operation):
            _split(ir, operation, made)


def _mask(operation: Any) -> Any | None:
    segments = list(operation.attributes["operandSegmentSizes"])
    return operation.operands[len(operation.operands) - 1] if segments[-1] else None


def _is_inside(operation: Any) -> bool:
    """Whether nothing but the mask keeps lanes from being read or written."""
    return all(str(inside) == "true" for inside in operation.attributes["in_bounds"])


def _vector(operation: Any) -> Any:
    """The value of vector type that is read or written."""
    return operation.results[0] if len(operation.results) else operation.operands[0]


def _bits(operation: Any) -> int:
    """Bits of an element."""
    found = re.fullmatch(r"[a-z]+(\d+)", str(_vector(operation).type.element_type))
    return int(found[1]) if found else 64


def _lanes(mask: Any) -> int:
    return math.prod(mask.type.shape)


def _split(ir: Any, operation: Any, mask: Any) -> None:
    """A choice between an operation without its mask, and the same with it."""
    kinds = [result.type for result in operation.results]
    create = ir.Operation.create
    with ir.InsertionPoint(operation), operation.location:
        condition = _whole(ir, mask)
        choice = create("scf.if", results=kinds, operands=[condition], regions=2)
        for region, masked in zip(choice.regions, (False, True), strict=True):
            block = ir.Block.create_at_start(region, [])
            with ir.InsertionPoint(block):
                made = _copied(ir, operation, masked)
                create("scf.yield", operands=list(made.results))
    for result, chosen in zip(operation.results, choice.results, strict=True):
        result.replace_all_uses_with(chosen)
    operation.erase()


def _whole(ir: Any, mask: Any) -> Any:
    """Whether all lanes of a mask that was made of extents are set."""
    index = ir.IndexType.get()
    predicate = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _SIGNED_AT_LEAST)
    truth = ir.IntegerType.get_signless(1)

    def made(name: str, kind: Any, *operands: Any, **attributes: Any) -> Any:
        return ir.Operation.create(name, [kind], list(operands), attributes).results[0]

    inside = [
        made(
            "arith.cmpi",
            truth,
            length,
            made("arith.constant", index, value=ir.IntegerAttr.get(index, extent)),
            predicate=predicate,
        )
        for length, extent in zip(mask.operands, mask.results[0].type.shape, strict=True)
    ]
    return reduce(lambda one, other: made("arith.andi", truth, one, other), inside)


def _copied(ir: Any, operation: Any, masked: bool) -> Any:
    """A copy of an operation, with its mask or without it, where operations are inserted."""
    operands = list(operation.operands)
    segments = list(operation.attributes["operandSegmentSizes"])
    if not masked:
        operands, segments = operands[:-1], [*segments[:-1], 0]
    attributes = {name: operation.attributes[name] for name in _KEPT}
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(segments)
    kinds = [result.type for result in operation.results]
    return ir.Operation.create(operation.name, kinds, operands, attributes)
