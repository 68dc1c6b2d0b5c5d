"""Reductions of a vector of floats to one number, in halves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from autotune_mlir.passes.vector_maker import VectorMaker

__all__ = ["REDUCTION", "reduce_in_halves"]

REDUCTION = "vector.multi_reduction"

_COMBINERS = MappingProxyType(
    {
        "#vector.kind<add>": "arith.addf",
        "#vector.kind<mul>": "arith.mulf",
        "#vector.kind<maximumf>": "arith.maximumf",
        "#vector.kind<minimumf>": "arith.minimumf",
    }
)


def reduce_in_halves(ir: Any, reductions: Sequence[Any]) -> list[Any]:
    """Combine the halves of a vector, then those of the result, down to one number.

    LLVM keeps the order of floats that are added, and of those whose maximum may be NaN: as many
    operations as there are lanes would wait for one another.

    Args:
        ir: The ``ir`` module of the bindings.
        reductions: Operations :data:`REDUCTION`. Those with several results, of integers and of
            an odd number of lanes are left alone.

    Returns:
        The operations that combine numbers now.
    """
    made: list[Any] = []
    for reduction in reductions:
        combiner = _COMBINERS.get(str(reduction.attributes["kind"]))
        if combiner is None or not _has_one_result(ir, reduction):
            continue
        with ir.InsertionPoint(reduction), reduction.location:
            made += _reduce(ir, reduction, combiner)
    return made


def _has_one_result(ir: Any, reduction: Any) -> bool:
    kind = reduction.operands[0].type
    if not isinstance(kind.element_type, ir.FloatType):
        return False
    reduced = [int(axis) for axis in reduction.attributes["reduction_dims"]]
    return reduced == [kind.rank - 1] and math.prod(kind.shape[:-1]) == 1


def _reduce(ir: Any, reduction: Any, combiner: str) -> list[Any]:
    """The operations in place of ``reduction``, which is gone if nothing is left of it."""
    source, start = reduction.operands
    element = source.type.element_type
    *outer, lanes = source.type.shape
    made = []
    make = VectorMaker(ir)

    def combined(left: Any, right: Any) -> Any:
        made.append(ir.Operation.create(combiner, [left.type], [left, right]))
        return made[-1].results[0]

    def shaped(value: Any, shape: Sequence[int]) -> Any:
        kind = ir.VectorType.get(list(shape), element)
        return ir.Operation.create("vector.shape_cast", [kind], [value]).results[0]

    value = shaped(source, [lanes])
    while lanes % 2 == 0:
        lanes //= 2
        value = combined(*(make.part(value, at, lanes) for at in (0, lanes)))
    if lanes > 1:
        reduction.operands[0] = shaped(value, [*outer, lanes])
        return made
    if isinstance(start.type, ir.VectorType):
        value = shaped(value, outer)
    else:
        first = {"static_position": ir.DenseI64ArrayAttr.get([0])}
        value = ir.Operation.create("vector.extract", [element], [value], first).results[0]
    reduction.results[0].replace_all_uses_with(combined(value, start))
    reduction.erase()
    return made
