"""Indices of elements, followed through other shapes of the same elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.ir.expressions import IntExpr, const
from autotune.ir.expressions.bounds import simplify_index
from autotune.ir.expressions.integer import rebuilt

__all__ = ["flat_index", "reshaped_indices"]


def flat_index(indices: Sequence[IntExpr], shape: Sequence[int]) -> IntExpr:
    """The number, in row-major order, of the element at ``indices`` of a tensor of ``shape``.

    Digits of one number, next to each other, become that number again: ``h // 6 * 6 + h % 6`` is
    ``h``.
    """
    found = const(0)
    for index, extent in zip(indices, shape, strict=True):
        if extent > 1:
            found = _joined(found, index, extent)
    return found


def _joined(high: IntExpr, low: IntExpr, extent: int) -> IntExpr:
    if low.op == "mod" and low.args[1].value == extent:
        whole: IntExpr = low.args[0]
        if _quotient(whole, extent) == high:
            return whole
    return high * extent + low


def _quotient(top: IntExpr, divisor: int) -> IntExpr:
    """The quotient by a number, of a quotient by that of both, of a digit as a higher one."""
    inner: int | None = top.args[1].value if top.op in ("floordiv", "mod") else None
    if inner is None:
        return top // divisor
    whole: IntExpr = top.args[0]
    if top.op == "floordiv":
        return whole // (inner * divisor)
    return top // divisor if inner % divisor else _quotient(whole, divisor) % (inner // divisor)


def _remainder(top: IntExpr, divisor: int) -> IntExpr:
    """The remainder by a number, of a digit as a lower one."""
    inner: int | None = top.args[1].value if top.op == "mod" else None
    is_lower = inner is not None and inner % divisor == 0
    whole: IntExpr = top.args[0] if is_lower else top
    return whole % divisor


def _digit(index: IntExpr, extents: Mapping[str, int]) -> IntExpr:
    """A quotient or remainder by a number, as simple as it can be."""
    found = simplify_index(index, extents)
    if found.op == "add":
        return rebuilt("add", [_digit(it, extents) for it in found.args])
    if found.op not in ("floordiv", "mod") or found.args[1].value is None:
        return found
    make = _quotient if found.op == "floordiv" else _remainder
    return simplify_index(make(found.args[0], found.args[1].value), extents)


def reshaped_indices(
    indices: Sequence[IntExpr],
    shape: Sequence[int],
    before: Sequence[int],
    extents: Mapping[str, int],
) -> tuple[IntExpr, ...]:
    """The indices in a tensor of shape ``before`` of an element of the same in ``shape``.

    Args:
        indices: In the reshaped tensor, over variables.
        shape: Of the reshaped tensor.
        before: Of the tensor as it was.
        extents: How many values each variable has.
    """
    rest = simplify_index(flat_index(indices, shape), extents)
    found: list[IntExpr] = []
    longer = [at for at, extent in enumerate(before) if extent > 1]
    for at in reversed(range(len(before))):
        if before[at] == 1:
            found.append(const(0))
        elif at == longer[0]:
            found.append(rest)
        else:
            found.append(_digit(rest % before[at], extents))
            rest = _digit(_quotient(rest, before[at]), extents)
    return tuple(reversed(found))
