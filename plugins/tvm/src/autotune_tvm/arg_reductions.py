"""Reductions to an extreme value and its index (``argmax``, ``argmin``), as two reductions.

The first is of the values, the second of the indices at which a value equals the result of the
first. What is recognised is what a block does when it compares the value so far with another one,
not how that is written: its conditions are evaluated for each order of the two values and of the
two indices.

Where no value is ahead of the one that the block starts with, because all are NaN or that limit
of their type, the block itself may leave an index that it started with, which is out of range. The
index that is found by two reductions is in range always.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var
from tvm_ffi import structural_equal

from autotune.ir.expressions import affine_form
from autotune.ir.workloads import Axis
from autotune_tvm.blocks import reads, walk
from autotune_tvm.scalar_import import BodyReader, Unsupported

__all__ = ["arg_reduction"]

# Signs of left - right for which a comparison holds.
_COMPARISONS: tuple[tuple[Any, tuple[int, ...]], ...] = (
    (tirx.LT, (-1,)),
    (tirx.LE, (-1, 0)),
    (tirx.GT, (1,)),
    (tirx.GE, (0, 1)),
    (tirx.EQ, (0,)),
    (tirx.NE, (-1, 1)),
)
_SIGNS = (-1, 0, 1)
# What gives the same number wherever it is computed. Arithmetic of floats does not: a product may
# be fused with a sum in one place and not in another.
_EXACT = (
    *(Var, TensorLoad, tirx.IntImm, tirx.FloatImm, tirx.Cast, tirx.Select, tirx.Max, tirx.Min),
    *(tirx.And, tirx.Or, tirx.Not, *(kind for kind, _ in _COMPARISONS)),
)


def arg_reduction(axes: Mapping[Any, Axis], stores: Sequence[Any]) -> tuple[Any, Any, Any]:
    """The two reductions that a block is which reduces to a value and its index.

    Args:
        axes: The axis that each variable of the block is, outermost loop first.
        stores: The two stores of the block, of what is computed from the tensors as they were.

    Returns:
        The store that updates the value, that which updates the index and reads the value as it
        is in the end, and that which starts the index. The value starts as it did.

    Raises:
        Unsupported: the block is something else.
    """
    index, value = _index_and_value(stores)
    before = tirx.BufferLoad(value.buffer, value.indices)
    ahead, other = _extreme(value.value, before)
    _check_exact(other)
    old = tirx.BufferLoad(index.buffer, index.indices)
    new, keeps = _choice(index.value, old)
    kept = {
        signs: _holds(keeps, ((before, other, signs[0]), (old, new, signs[1])))
        for signs in product(_SIGNS, _SIGNS)
    }
    if any(not kept[ahead, sign] or kept[-ahead, sign] for sign in _SIGNS):
        raise Unsupported("the index that it keeps is not that of the value that it keeps")
    low, high, rises = _range(new, axes)
    takes_first = kept[0, -1]
    if kept[0, -1] == kept[0, 1] and not rises:
        raise Unsupported("of equal values it takes the first or last, and indices do not rise")
    kind = str(index.buffer.dtype)
    combine, start, beyond = (
        (tirx.Min, tirx.max_value(kind), high)
        if takes_first
        else (tirx.Max, tirx.min_value(kind), low)
    )
    found = tirx.Select(tirx.EQ(other, before), new, tirx.const(beyond, kind))
    extreme = (tirx.Max if ahead > 0 else tirx.Min)(before, other)
    return (
        tirx.BufferStore(value.buffer, extreme, value.indices),
        tirx.BufferStore(index.buffer, combine(old, found), index.indices),
        tirx.BufferStore(index.buffer, start, index.indices),
    )


def _index_and_value(stores: Sequence[Any]) -> tuple[Any, Any]:
    """The store that reads what the other one writes, and that one.

    Raises:
        Unsupported: there are not two such stores.
    """
    if len(stores) != 2:
        raise Unsupported(f"it reduces to {len(stores)} tensors")
    first, second = stores
    depends = reads(first.value, second.buffer), reads(second.value, first.buffer)
    if depends == (True, True):
        raise Unsupported("each depends on the other")
    return (first, second) if depends[0] else (second, first)


def _extreme(update: Any, before: Any) -> tuple[int, Any]:
    """The sign of the larger or smaller of ``before`` and another value, and that value.

    Raises:
        Unsupported: ``update`` is something else.
    """
    for kind, ahead in ((tirx.Max, 1), (tirx.Min, -1)):
        if isinstance(update, kind):
            for known, other in ((update.a, update.b), (update.b, update.a)):
                if structural_equal(known, before):
                    return ahead, _free_of(other, before)
    other, keeps = _choice(update, before)
    kept = [_holds(keeps, ((before, other, sign),)) for sign in _SIGNS]
    if kept[0] == kept[-1]:
        raise Unsupported("it keeps neither the larger nor the smaller value")
    return (1 if kept[-1] else -1), other


def _choice(update: Any, before: Any) -> tuple[Any, Any]:
    """What a selection takes instead of ``before``, and the condition by which it keeps that.

    Raises:
        Unsupported: ``update`` is no such selection.
    """
    if isinstance(update, tirx.Select):
        if structural_equal(update.true_value, before):
            return _free_of(update.false_value, before), update.condition
        if structural_equal(update.false_value, before):
            return _free_of(update.true_value, before), tirx.Not(update.condition)
    raise Unsupported("it does not select between what was there and another value")


def _free_of(other: Any, before: Any) -> Any:
    if reads(other, before.source):
        raise Unsupported("the other value depends on what was there")
    return other


def _holds(condition: Any, orders: Sequence[tuple[Any, Any, int]]) -> bool:
    """Whether a condition holds, given the signs of the differences of some pairs.

    Raises:
        Unsupported: it compares something else.
    """
    if isinstance(condition, tirx.Not):
        return not _holds(condition.a, orders)
    if isinstance(condition, (tirx.And, tirx.Or)):
        parts = [_holds(part, orders) for part in (condition.a, condition.b)]
        return all(parts) if isinstance(condition, tirx.And) else any(parts)
    for kind, signs in _COMPARISONS:
        if not isinstance(condition, kind):
            continue
        for left, right, sign in orders:
            if structural_equal(condition.a, left) and structural_equal(condition.b, right):
                return sign in signs
            if structural_equal(condition.a, right) and structural_equal(condition.b, left):
                return -sign in signs
    raise Unsupported("its condition compares more than the two values and the two indices")


def _check_exact(value: Any) -> None:
    """Check that a value which is computed twice is the same both times.

    Raises:
        Unsupported: it may not be.
    """
    for node in walk(value):
        whole = str(node.ty.dtype).startswith(("int", "uint"))
        called = str(getattr(node.op, "name", "")) if isinstance(node, Call) else ""
        if not (whole or isinstance(node, _EXACT) or called == "prim.if_then_else"):
            raise Unsupported("its value is computed by arithmetic of floats, not read")


def _range(index: Any, axes: Mapping[Any, Axis]) -> tuple[int, int, bool]:
    """The bounds of an index, and whether it rises from one point of the loops to the next.

    Raises:
        Unsupported: it is not affine in what is reduced.
    """
    found = BodyReader(axes, {}).index(index)
    form = None if found is None else affine_form(found)
    if form is None:
        raise Unsupported("its index is not affine in what it reduces")
    rises, inner = True, 0
    for axis in reversed([*axes.values()]):
        coefficient = form.coefficients.get(axis.name, 0)
        rises = rises and (coefficient > inner or axis.extent == 1)
        inner += abs(coefficient) * (axis.extent - 1)
    return *form.bounds({axis.name: axis.extent for axis in axes.values()}), rises
