"""Conditions that hold for a whole vector or for none of it, asked once.

TVM makes no vector of a loop in which a value depends on a condition of its own for each element,
such as which of two tensors an element of their concatenation is from. Where a vector never lies
across the bound, the condition of its first element is that of all.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call, IRModule, Op
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer
from tvm_ffi import structural_map

from autotune_tvm.passes.statements import at, rebuilt, replaced, with_bodies

__all__ = ["asked_once", "once_for_all", "uniform_conditions"]

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
