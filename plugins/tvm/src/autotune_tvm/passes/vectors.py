"""Programs that TVM makes vectors of where it would read single elements.

TVM makes no vector of a loop in which a value depends on a condition of its own for each element,
such as which of two tensors an element of their concatenation is from. Where a vector never lies
across the bound, the condition of its first element is that of all.

The weights of a convolution as a matrix are read at ``W[row, k // 9, k % 9 // 3, k % 3]``, the
``k``-th element of the row. Where a block fetches a part of ``k`` that has a divisor in common
with the nine, such as 96, TVM divides by that first and does not find the number again: vectors
become single elements, and eight of them at 32-bit places no CUDA at all. Read at
``W[row, 0, 0, k]``, the same place in a row-major buffer, there is nothing to find.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx
from tvm.ir import Call, IRModule, Op, TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.sym import Analyzer
from tvm_ffi import structural_map

from autotune_tvm.passes.statements import at, rebuilt, replaced, with_bodies, with_fields

__all__ = ["asked_once", "flat_reads", "once_for_all", "uniform_conditions"]

_CONDITIONAL = Op.get("prim.if_then_else")
# For an index below a number, at or below it, and so on: what is added to the number where the
# comparison is written as one with `<`, or its opposite.
_SHIFTS: dict[Any, int] = {tirx.LT: 0, tirx.LE: 1, tirx.GE: 0, tirx.GT: 1}
_SWAPPED: dict[Any, Any] = {tirx.LT: tirx.GT, tirx.LE: tirx.GE, tirx.GE: tirx.LE, tirx.GT: tirx.LT}


def uniform_conditions(module: IRModule) -> IRModule:
    """A scheduled module whose vectors ask conditions once where they are the same in all lanes.

    These are comparisons of an index with a number, around a part of what a block stores.
    """
    return with_bodies(module, lambda body: replaced(body, _changed))


def _changed(node: Any) -> Any:
    if isinstance(node, tirx.For) and node.kind == tirx.ForKind.VECTORIZED:
        realize = node.body
        if isinstance(realize, SBlockRealize) and isinstance(realize.block.body, tirx.BufferStore):
            return asked_once(node, realize)
    return None


def asked_once(loop: Any, realize: Any) -> Any:
    """The loop over lanes around a block that stores, which asks conditions of a vector once."""
    block, store = realize.block, realize.block.body
    own = [item.var for item in block.iter_vars]
    values = list(realize.iter_values)

    def asked(call: Any) -> Any:
        if not call.op.same_as(_CONDITIONAL):
            return call
        condition, yes, no = call.args
        once = once_for_all(condition, own, values, loop)
        return call if once is None else tirx.if_then_else(once, yes, no)

    value = structural_map(store.value, (Call, asked))
    if value.same_as(store.value):
        return loop
    made = rebuilt(block, [tirx.BufferStore(store.buffer, value, store.indices)])
    return rebuilt(loop, [rebuilt(realize, [made])])


def once_for_all(condition: Any, own: list[Any], values: list[Any], loop: Any) -> Any:
    """The condition of a vector's first element, where it is that of all; else None.

    Args:
        condition: Over the block's variables.
        own: These variables.
        values: What each is, over the loops.
        loop: Over the lanes.
    """
    if isinstance(condition, (tirx.And, tirx.Or)):
        parts = [once_for_all(part, own, values, loop) for part in (condition.a, condition.b)]
        return None if None in parts else type(condition)(*parts)
    kind, index, number = type(condition), *_sides(condition)
    if number is None:
        return None
    if isinstance(condition.a, tirx.IntImm):
        kind = _SWAPPED[kind]
    lanes, lane = int(loop.extent), loop.loop_var
    over_loops = at(index, own, values)
    first = at(over_loops, [lane], [0])
    analyzer = Analyzer()
    step = analyzer.simplify(over_loops - first)
    if isinstance(step, tirx.IntImm) and int(step.value) == 0:
        return kind(first, number)
    if not step.same_as(lane):
        return None
    place = analyzer.modular_set(first)
    bound = int(number.value) + _SHIFTS[kind]
    if place.coeff % lanes or (bound - place.base) % lanes:
        return None
    return kind(first, number)


def _sides(condition: Any) -> tuple[Any, Any]:
    """The index and the number of a comparison; no number where it is something else."""
    if type(condition) in _SHIFTS:
        if isinstance(condition.b, tirx.IntImm):
            return condition.a, condition.b
        if isinstance(condition.a, tirx.IntImm):
            return condition.b, condition.a
    return None, None


def flat_reads(module: IRModule) -> IRModule:
    """The module with such reads changed; runs after the schedule, regions stay as they are."""
    return with_bodies(module, lambda body: replaced(body, _read_flat))


def _read_flat(node: Any) -> Any:
    if not isinstance(node, SBlock) or not isinstance(node.body, tirx.BufferStore):
        return None
    if not str(node.body.buffer.scope()).startswith("shared"):
        return None
    analyzer = Analyzer()
    for variable in node.iter_vars:
        analyzer.bind(variable.var, variable.dom)
    body = structural_map(node.body, (TensorLoad, lambda it: _flat(it, analyzer)))
    return None if body.same_as(node.body) else with_fields(node, body=body)


def _flat(load: Any, analyzer: Any) -> Any:
    extents = [int(extent) for extent in load.source.shape]
    last = load.indices[-1]
    if len(load.source.strides) or not isinstance(last, tirx.FloorMod):
        return load
    number = last.a
    for first in range(len(extents) - 1):
        inner = [math.prod(extents[dim + 1 :]) for dim in range(first, len(extents))]
        digits = [
            tirx.floormod(tirx.floordiv(number, weight), extent)
            for weight, extent in zip(inner, extents[first:], strict=True)
        ]
        found = zip(load.indices[first:], digits, strict=True)
        if all(analyzer.can_prove_equal(place, digit) for place, digit in found):
            zeros = [tirx.IntImm(str(number.ty.dtype), 0)] * (len(extents) - 1 - first)
            # Higher digits of the number may be indices of outer dimensions.
            lower = analyzer.simplify(tirx.floormod(number, math.prod(extents[first:])))
            return tirx.BufferLoad(load.source, [*load.indices[:first], *zeros, lower])
    return load
