"""Reductions of a vector to one number, in halves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from autotune_mlir.passes.carried_extremes import EXTREMES, chosen, compare
from autotune_mlir.passes.vector_maker import VectorMaker, constant_of

__all__ = ["REDUCTION", "reduce_in_halves"]

REDUCTION = "vector.multi_reduction"

_OF_FLOATS = MappingProxyType(
    {
        "#vector.kind<add>": "arith.addf",
        "#vector.kind<mul>": "arith.mulf",
        "#vector.kind<maximumf>": "arith.maximumf",
        "#vector.kind<minimumf>": "arith.minimumf",
    }
)
_OF_INTEGERS = MappingProxyType(
    {
        "#vector.kind<add>": "arith.addi",
        "#vector.kind<mul>": "arith.muli",
        **{f"#vector.kind<{it}>": f"arith.{it}" for it in ("maxsi", "minsi", "maxui", "minui")},
    }
)


def reduce_in_halves(ir: Any, reductions: Sequence[Any]) -> list[Any]:
    """Combine the halves of a vector, then those of the result, down to one number.

    LLVM keeps the order of floats that are added, and of those whose maximum may be NaN, and MLIR
    takes integers one by one: as many operations as there are lanes would wait for one another.
    Whether there is a NaN among numbers is found out beside their maximum or minimum.

    Args:
        ir: The ``ir`` module of the bindings.
        reductions: Operations :data:`REDUCTION`. Those with several results, and of an odd number
            of lanes, are left alone.

    Returns:
        The operations that combine floats now, but for comparisons.
    """
    made: list[Any] = []
    for reduction in reductions:
        kind, combiner = reduction.operands[0].type, str(reduction.attributes["kind"])
        are_floats = isinstance(kind.element_type, ir.FloatType)
        combiner = (_OF_FLOATS if are_floats else _OF_INTEGERS).get(combiner, "")
        if not combiner or not _has_one_result(reduction):
            continue
        lanes = kind.shape[-1]
        with ir.InsertionPoint(reduction), reduction.location:
            if combiner in EXTREMES and lanes & (lanes - 1) == 0:
                _reduce_numbers(ir, reduction, combiner)
                continue
            combining = _reduce(ir, reduction, combiner)
            made += combining if are_floats else []
    return made


def _has_one_result(reduction: Any) -> bool:
    kind = reduction.operands[0].type
    reduced = [int(axis) for axis in reduction.attributes["reduction_dims"]]
    return reduced == [kind.rank - 1] and math.prod(kind.shape[:-1]) == 1


def _reduce_numbers(ir: Any, reduction: Any, combiner: str) -> None:
    """Comparisons of halves in place of ``reduction``, and NaN where there was one."""
    source, start = reduction.operands
    element, lanes, make = source.type.element_type, source.type.shape[-1], VectorMaker(ir)
    result, kind = start, start.type
    create = ir.Operation.create

    def further(left: Any, right: Any) -> Any:
        return chosen(ir, compare(ir, EXTREMES[combiner], left, right), left, right)

    row = ir.VectorType.get([lanes], element)
    value = create("vector.shape_cast", [row], [source]).results[0]
    unordered = compare(ir, "uno", value, value)
    bit = ir.IntegerType.get_signless(1)
    any_lane = {"kind": ir.Attribute.parse("#vector.kind<or>")}
    found = create("vector.reduction", [bit], [unordered], any_lane).results[0]
    while lanes > 1:
        lanes //= 2
        value = further(*(make.part(value, at, lanes) for at in (0, lanes)))
    value = make.element(value, [0])
    if isinstance(kind, ir.VectorType):
        result = make.element(start, [0] * kind.rank)
    value = further(value, result)
    found = create("arith.ori", [bit], [found, compare(ir, "uno", result, result)]).results[0]
    strange = constant_of(ir, element, ir.FloatAttr.get(element, math.nan))
    value = chosen(ir, found, strange, value)
    if isinstance(kind, ir.VectorType):
        value = create("vector.broadcast", [kind], [value]).results[0]
    reduction.results[0].replace_all_uses_with(value)
    reduction.erase()


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
