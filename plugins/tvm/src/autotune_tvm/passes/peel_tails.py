"""Rounds of vectors without a condition, but for the last one.

Where vectors do not divide an axis, each element of every round has a condition (``T.where``), and
TVM makes no vectors of such loops. Here the rounds that are whole lose it, and the last one
becomes a shorter vector.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen
from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import SBlockRealize

from autotune_tvm.passes.statements import (
    at,
    replaced,
    with_bodies,
    with_store,
)

__all__ = ["peel_tails"]

# Rounds that are not whole are copied: of more than these the loop is left as it is.
_MOST_TAILS = 2


def peel_tails(module: IRModule) -> IRModule:
    """A scheduled module whose vectors have no conditions in rounds that are whole.

    Loops stay as they are where a condition depends on anything but the serial loops right
    around the vector, or is none that an affine index is below a constant.
    """
    return with_bodies(module, lambda body: replaced(body, _peeled))


def _peeled(node: Any) -> Any:
    tail = _tail(node)
    if tail is None:
        return None
    made = _rounds(tail, 0, [], tail.bound)
    return node if made is None else made


@frozen
class _Tail:
    """A statement under a condition, in loops of which the last is a vector.

    Attributes:
        loops: Around it, outermost first.
        factors: Of each loop in the index that is to be below ``bound``.
        bound: What is left of the bound without the index's constant.
        realize: The block, without the condition.
    """

    loops: list[Any]
    factors: list[int]
    bound: int
    realize: Any


def _tail(node: Any) -> _Tail | None:
    """Find what can be peeled in a loop; None where there is nothing, or it is not understood."""
    loops: list[Any] = []
    inner = node
    while isinstance(inner, tirx.For):
        serial = inner.kind in (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED)
        if not (serial or inner.kind == tirx.ForKind.VECTORIZED):
            return None
        loops.append(inner)
        inner = inner.body
    if not loops or loops[-1].kind != tirx.ForKind.VECTORIZED:
        return None
    if not isinstance(inner, SBlockRealize) or not isinstance(inner.block.body, tirx.BufferStore):
        return None
    found = _below(inner.predicate)
    if found is None:
        return None
    index, limit = found
    realize = SBlockRealize(inner.iter_values, True, inner.block)
    linear = _linear(index, [loop.loop_var for loop in loops])
    if linear is None or linear[0][-1] != 1 or any(factor < 0 for factor in linear[0]):
        return None
    return _Tail(loops, linear[0], limit - linear[1], realize)


def _below(condition: Any) -> tuple[Any, int] | None:
    """An index and the constant that it is to be below, where that is the condition."""
    if isinstance(condition, tirx.LT) and isinstance(condition.b, tirx.IntImm):
        return condition.a, int(condition.b.value)
    return None


def _linear(index: Any, variables: list[Any]) -> tuple[list[int], int] | None:
    """Factors of the variables in an index, and its constant; None where it is not affine."""
    if isinstance(index, tirx.IntImm):
        return [0] * len(variables), int(index.value)
    if isinstance(index, tirx.Var):
        factors = [int(variable.same_as(index)) for variable in variables]
        return (factors, 0) if any(factors) else None
    if not isinstance(index, (tirx.Add, tirx.Mul)):
        return None
    left, right = _linear(index.a, variables), _linear(index.b, variables)
    if left is None or right is None:
        return None
    if isinstance(index, tirx.Add):
        return [a + b for a, b in zip(left[0], right[0], strict=True)], left[1] + right[1]
    if any(left[0]):
        left, right = right, left
    if any(left[0]):
        return None
    return [left[1] * factor for factor in right[0]], left[1] * right[1]


def _rounds(tail: _Tail, depth: int, values: list[Any], bound: int) -> Any:
    """The loops from ``depth`` on, with those outside at ``values``; None where it is too long.

    Args:
        tail: The statement.
        depth: Number of loops outside.
        values: A variable or number for each of these.
        bound: What the index over the remaining loops is to be below.
    """
    loop, factor = tail.loops[depth], tail.factors[depth]
    extent = int(loop.extent)
    rest = sum(
        other * (int(inner.extent) - 1)
        for other, inner in zip(tail.factors[depth + 1 :], tail.loops[depth + 1 :], strict=True)
    )
    if rest + factor * (extent - 1) < bound:
        return _whole(tail, depth, values)
    if depth == len(tail.loops) - 1:
        return _loop(tail, depth, values, min(extent, bound))
    if factor == 0:
        return _loop(tail, depth, values, extent, bound)
    full = min(max(0, (bound - 1 - rest) // factor + 1), extent)
    begun = min(-(-bound // factor), extent)
    if begun - full > _MOST_TAILS:
        return None
    made = [_loop(tail, depth, values, full)] if full else []
    for value in range(full, begun):
        # Of the loop's own type: an index of int64 may be a result, as that of an argmax.
        number = tirx.const(value, loop.loop_var.ty.dtype)
        made.append(_rounds(tail, depth + 1, [*values, number], bound - factor * value))
    if any(part is None for part in made):
        return None
    return tirx.SeqStmt(made) if len(made) > 1 else made[0]


def _loop(
    tail: _Tail, depth: int, values: list[Any], extent: int, bound: int | None = None
) -> Any:
    """Make a loop over so many rounds; all are whole unless there is a ``bound``."""
    loop = tail.loops[depth]
    variable = tirx.Var(str(loop.loop_var.name), loop.loop_var.ty)
    given = [*values, variable]
    if bound is None:
        body = _whole(tail, depth + 1, given)
    else:
        body = _rounds(tail, depth + 1, given, bound)
    if body is None:
        return None
    return tirx.For(
        variable,
        loop.min,
        tirx.const(extent, variable.ty.dtype),
        loop.kind,
        body,
        loop.thread_binding,
        loop.annotations,
    )


def _whole(tail: _Tail, depth: int, values: list[Any]) -> Any:
    """The loops from ``depth`` on as they are, without the condition."""
    if depth < len(tail.loops):
        return _loop(tail, depth, values, int(tail.loops[depth].extent))
    realize = tail.realize
    variables = [loop.loop_var for loop in tail.loops]
    own = [item.var for item in realize.block.iter_vars]
    block = with_store(realize.block, own, realize.block.body)
    placed = [at(value, variables, values) for value in realize.iter_values]
    return SBlockRealize(placed, True, block)
