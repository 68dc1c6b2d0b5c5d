"""Reductions to an extreme value and its index (``argmax``, ``argmin``), as two reductions.

The first is of the values, the second of the indices at which a value equals the result of the
first. What is recognised is what an update does when it compares the value so far with another
one, not how that is written: its conditions are evaluated for each order of the two values and of
the two indices.

Where no value is ahead of the one that the program starts with, because all are NaN or that limit
of their type, the program itself may leave an index that it started with, which is out of range.
The index that is found by two reductions is in range always.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    affine_form,
    const,
)
from autotune.ir.expressions.scalar import COMPARISONS, LOGIC, reads, walk
from autotune.ir.workloads.tensor import Tensor
from autotune.ir.workloads.workload import Axis, Stage, is_whole

__all__ = ["arg_reduction"]

# Signs of left - right for which a comparison holds.
_HOLDS: Mapping[str, tuple[int, ...]] = {
    "lt": (-1,),
    "le": (-1, 0),
    "gt": (1,),
    "ge": (0, 1),
    "eq": (0,),
    "ne": (-1, 1),
}
_SIGNS = (-1, 0, 1)
# What gives the same number wherever it is computed. Arithmetic of floats does not: a product may
# be fused with a sum in one place and not in another.
_EXACT = ("max", "min", "not", *LOGIC, *COMPARISONS)

_Order = tuple[ScalarExpr, ScalarExpr, int]


def arg_reduction(
    outputs: Sequence[Tensor],
    axes: Sequence[Axis],
    updates: Sequence[ScalarExpr],
    before: Sequence[Load],
    tensors: Mapping[str, Tensor],
) -> tuple[Stage, Stage]:
    """The stages that find a value and its index.

    Args:
        outputs: The value and the index, in either order.
        axes: The spatial axes, and the reduced ones, the outermost loop first.
        updates: What becomes of each output.
        before: What each output was before.
        tensors: What else the updates read.

    Raises:
        UnsupportedWorkload: the updates do something else.
    """
    index, value = _index_and_value(updates, before)
    ahead, other = _extreme(updates[value], before[value])
    _check_exact(other, tensors)
    new, keeps = _choice(updates[index], before[index])
    kept = {
        signs: _holds(keeps, ((before[value], other, signs[0]), (before[index], new, signs[1])))
        for signs in product(_SIGNS, _SIGNS)
    }
    if any(not kept[ahead, sign] or kept[-ahead, sign] for sign in _SIGNS):
        raise UnsupportedWorkload("the index that it keeps is not that of the value that it keeps")
    low, high, rises = _range(new, axes)
    takes_first = kept[0, -1]
    if kept[0, -1] == kept[0, 1] and not rises:
        raise UnsupportedWorkload(
            "of equal values it takes the first or last, and indices do not rise"
        )
    kind = outputs[index].dtype
    if high > np.iinfo(element_type(kind).dtype).max:
        raise UnsupportedWorkload(f"its index, of up to {high}, does not fit in {kind}")
    beside = Constant(high if takes_first else low, kind)
    found = Select(Binary("eq", other, before[value]), new, beside)
    return (
        Stage(outputs[value], tuple(axes), other, "max" if ahead > 0 else "min"),
        Stage(outputs[index], tuple(axes), found, "min" if takes_first else "max"),
    )


def _index_and_value(updates: Sequence[ScalarExpr], before: Sequence[Load]) -> tuple[int, int]:
    """The place of the output whose update reads the other one, and of that.

    Raises:
        UnsupportedWorkload: there are not two such outputs.
    """
    if len(updates) != 2:
        raise UnsupportedWorkload(f"it reduces to {len(updates)} tensors")
    depends = [_reads(updates[place], before[1 - place].tensor) for place in range(2)]
    if all(depends):
        raise UnsupportedWorkload("each depends on the other")
    return (0, 1) if depends[0] else (1, 0)


def _reads(body: ScalarExpr, tensor: str) -> bool:
    return any(read.tensor == tensor for read in reads(body))


def _extreme(update: ScalarExpr, before: Load) -> tuple[int, ScalarExpr]:
    """The sign of the larger or smaller of ``before`` and another value, and that value.

    Raises:
        UnsupportedWorkload: ``update`` is something else.
    """
    if isinstance(update, Binary) and update.op in ("max", "min"):
        for known, other in ((update.left, update.right), (update.right, update.left)):
            if known == before:
                return (1 if update.op == "max" else -1), _free_of(other, before)
    other, keeps = _choice(update, before)
    kept = {sign: _holds(keeps, ((before, other, sign),)) for sign in _SIGNS}
    if kept[1] == kept[-1]:
        raise UnsupportedWorkload("it keeps neither the larger nor the smaller value")
    return (1 if kept[1] else -1), other


def _choice(update: ScalarExpr, before: Load) -> tuple[ScalarExpr, ScalarExpr]:
    """Value of a selection instead of ``before``, and the condition by which it keeps that.

    Raises:
        UnsupportedWorkload: ``update`` is no such selection.
    """
    if isinstance(update, Select):
        if update.on_true == before:
            return _free_of(update.on_false, before), update.condition
        if update.on_false == before:
            return _free_of(update.on_true, before), Unary("not", update.condition)
    raise UnsupportedWorkload("it does not select between what was there and another value")


def _free_of(other: ScalarExpr, before: Load) -> ScalarExpr:
    if _reads(other, before.tensor):
        raise UnsupportedWorkload("the other value depends on what was there")
    return other


def _holds(condition: ScalarExpr, orders: Sequence[_Order]) -> bool:
    """Return whether a condition holds, given the signs of the differences of some pairs.

    Raises:
        UnsupportedWorkload: it compares something else.
    """
    if isinstance(condition, Unary) and condition.op == "not":
        return not _holds(condition.operand, orders)
    if isinstance(condition, Binary) and condition.op in LOGIC:
        parts = [_holds(part, orders) for part in (condition.left, condition.right)]
        return all(parts) if condition.op == "and" else any(parts)
    if isinstance(condition, Binary) and condition.op in _HOLDS:
        for left, right, sign in orders:
            if (condition.left, condition.right) == (left, right):
                return sign in _HOLDS[condition.op]
            if (condition.left, condition.right) == (right, left):
                return -sign in _HOLDS[condition.op]
    raise UnsupportedWorkload(
        "its condition compares more than the two values and the two indices"
    )


def _check_exact(value: ScalarExpr, tensors: Mapping[str, Tensor]) -> None:
    """Check that a value which is computed twice is the same both times.

    Raises:
        UnsupportedWorkload: it may not be.
    """
    for node in walk(value):
        computes = isinstance(node, (Unary, Binary)) and node.op not in _EXACT
        if computes and not is_whole(node, tensors):
            raise UnsupportedWorkload("its value is computed by arithmetic of floats, not read")


def _range(index: ScalarExpr, axes: Sequence[Axis]) -> tuple[int, int, bool]:
    """The bounds of an index, and whether it rises from one point of the loops to the next.

    Raises:
        UnsupportedWorkload: it is not affine in what is reduced.
    """
    while isinstance(index, Cast) and not element_type(index.dtype).is_float:
        index = index.operand
    if isinstance(index, Constant):
        index = IndexValue(const(int(index.value)))
    form = affine_form(index.index) if isinstance(index, IndexValue) else None
    extents = {axis.name: axis.extent for axis in axes if axis.kind == "reduce"}
    if form is None or not set(form.coefficients) <= set(extents):
        raise UnsupportedWorkload("its index is not affine in what it reduces")
    rises, inner = True, 0
    for name, extent in reversed([*extents.items()]):
        coefficient = form.coefficients.get(name, 0)
        rises = rises and (coefficient > inner or extent == 1)
        inner += abs(coefficient) * (extent - 1)
    return *form.bounds(extents), rises
