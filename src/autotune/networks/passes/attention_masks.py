"""Masks of an attention: constants that are bounds of keys, and bodies made simple by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
)
from autotune.ir.expressions.scalar import transform, walk
from autotune.networks.graph import Value

__all__ = ["Band", "band_of", "masked_body", "may_be_selected", "simplified"]

_LIMIT = 1 << 28
"""Bytes of a mask that is looked at: positions of 5,800 queries and keys as int64."""
_ABSORBING = -1e30
"""This, and what is lower, stays as it is when a score is added to it."""


@frozen
class Band:
    """Mask of one number for keys near each query, and another one for all others.

    Attributes:
        first: By how much the first near key is beyond the query; None where it is the first key.
        last: By how much the last near key is beyond it.
        near, far: The numbers; truth values of a condition.
    """

    first: int | None
    last: int
    near: float | int | bool
    far: float | int | bool

    def body(self, row: IntExpr, column: IntExpr, dtype: str) -> ScalarExpr:
        """The number at a place, as comparisons of indices."""
        near: ScalarExpr = Binary("le", IndexValue(column), IndexValue(row + self.last))
        if self.first is not None:
            lower = Binary("ge", IndexValue(column), IndexValue(row + self.first))
            near = Binary("and", near, lower)
        if dtype == "bool":
            return near if self.near else Unary("not", near)
        return Select(near, Constant(self.near, dtype), Constant(self.far, dtype))


def band_of(value: Value, row: int, column: int) -> Band | None:
    """Read a constant as a division of each query's keys; None where it does something else.

    Args:
        value: The constant.
        row: Its axis of queries.
        column: Its axis of keys; along all others it is the same everywhere, or it has no band.
    """
    array = value.constant
    if array is None or array.nbytes > _LIMIT:
        return None
    moved = np.moveaxis(array, (row, column), (-2, -1))
    square = moved[(0,) * (moved.ndim - 2)]
    if not np.all(moved == square):
        return None
    return _band(element_type(value.dtype).numbers(square))


def _band(square: NDArray[Any]) -> Band | None:
    is_near = square == square[0, 0]
    if is_near.all() or not is_near[0, 0]:
        return None
    far = square[~is_near]
    if not np.all(far == far[0]):
        return None
    rows, columns = square.shape
    distance = np.arange(columns) - np.arange(rows)[:, None]
    near = distance[is_near]
    first, last = int(near.min()), int(near.max())
    in_band = (distance >= first) & (distance <= last)
    if last >= columns - 1 or not np.array_equal(is_near, in_band):
        return None
    return Band(first if first > 1 - rows else None, last, square[0, 0].item(), far[0].item())


def may_be_selected(body: ScalarExpr) -> bool:
    """Tell if a simple body selects by indices, hides whatever is added to it, or only reads."""
    if any(isinstance(node, IndexValue) for node in walk(body)):
        return True
    return isinstance(body, Load) or _absorbs(body)


def masked_body(body: ScalarExpr, product: str, scales: bool) -> ScalarExpr:
    """A body of scores with selections for masks that are added, and one factor of the product.

    Args:
        body: Of what is computed from scores.
        product: Name of the tensor with the products.
        scales: Whether factors may be joined: in types of more than 16 bits.
    """
    found = simplified(body)
    return _each(found, lambda node: _joined_factor(node, product)) if scales else found


def simplified(body: ScalarExpr) -> ScalarExpr:
    """The same number, with selections by one comparison of indices each, the last key first."""
    return _each(body, _simpler)


def _each(body: ScalarExpr, change: Callable[[ScalarExpr], ScalarExpr]) -> ScalarExpr:
    """A body of which every node is changed, operands before what is computed from them."""

    def inner(node: ScalarExpr) -> ScalarExpr | None:
        return None if node is body else _each(node, change)

    return change(transform(body, inner))


def _simpler(body: ScalarExpr) -> ScalarExpr:
    if isinstance(body, Cast):
        return _converted(body)
    if isinstance(body, Select):
        return _divided(body)
    if isinstance(body, Binary) and body.op == "and":
        true = Constant(True, "bool")
        return body.right if body.left == true else body.left if body.right == true else body
    if isinstance(body, Binary) and body.op == "add":
        for tree, other in ((body.right, body.left), (body.left, body.right)):
            if _absorbs(tree):
                return _hidden(tree, other)
    return body


def _converted(body: Cast) -> ScalarExpr:
    """Numbers in a selection as numbers of the type, where that has all of them."""
    if not _is_tree(body.operand) or not element_type(body.dtype).is_float:
        return body
    if all(_has(body.dtype, leaf) for leaf in _leaves(body.operand)):
        return _each(body.operand, lambda node: _of_type(node, body.dtype))
    return body


def _has(dtype: str, number: Constant) -> bool:
    """Return whether a type has a number of another one."""
    if not element_type(number.dtype).is_float:
        return False
    element = element_type(dtype)
    with np.errstate(over="ignore"):
        return bool(element.numbers(element.stored(np.array(number.value))) == number.value)


def _of_type(body: ScalarExpr, dtype: str) -> ScalarExpr:
    is_number = isinstance(body, Constant) and element_type(body.dtype).is_float
    return Constant(body.value, dtype) if is_number else body  # type: ignore[union-attr]


def _divided(body: Select) -> ScalarExpr:
    condition = body.condition
    if isinstance(condition, Unary) and condition.op == "not":
        return _divided(Select(condition.operand, body.on_false, body.on_true))
    if isinstance(condition, Binary) and condition.op == "and":
        parts = sorted((condition.left, condition.right), key=_order)
        if any(isinstance(node, IndexValue) for node in walk(condition)):
            inner = _divided(Select(parts[1], body.on_true, body.on_false))
            return _divided(Select(parts[0], inner, body.on_false))
    return body


def _order(condition: ScalarExpr) -> int:
    """Bounds before what depends on data."""
    return 0 if any(isinstance(node, IndexValue) for node in walk(condition)) else 1


def _is_tree(body: ScalarExpr) -> bool:
    """Return whether a body is a number, or selects one."""
    if isinstance(body, Select):
        return _is_tree(body.on_true) and _is_tree(body.on_false)
    return isinstance(body, Constant)


def _leaves(body: ScalarExpr) -> Sequence[Constant]:
    if isinstance(body, Select):
        return [*_leaves(body.on_true), *_leaves(body.on_false)]
    return [body] if isinstance(body, Constant) else []


def _absorbs(body: ScalarExpr) -> bool:
    """Return whether a body selects zero, or a number that a score makes no difference to."""
    if not isinstance(body, Select) or not _is_tree(body):
        return False
    numbers = [leaf.value for leaf in _leaves(body)]
    return all(it == 0 or it <= _ABSORBING for it in numbers) and any(numbers)


def _hidden(tree: ScalarExpr, score: ScalarExpr) -> ScalarExpr:
    """A score where the tree has zero, and what the tree has elsewhere."""
    if isinstance(tree, Select):
        sides = (_hidden(it, score) for it in (tree.on_true, tree.on_false))
        return Select(tree.condition, *sides)
    assert isinstance(tree, Constant)
    return score if tree.value == 0 else tree


def _joined_factor(body: ScalarExpr, product: str) -> ScalarExpr:
    """A product that is multiplied by numbers, multiplied by theirs."""
    found = _factor(body, product)
    if found is None or isinstance(body, Load):
        return body
    load, number, dtype = found
    return load if number == 1 else Binary("mul", load, Constant(number, dtype))


def _factor(body: ScalarExpr, product: str) -> tuple[Load, float, str] | None:
    """A product, by what it is multiplied, and the type of that."""
    if isinstance(body, Load):
        return (body, 1.0, "") if body.tensor == product else None
    if not isinstance(body, Binary) or body.op not in ("mul", "div"):
        return None
    sides = [(body.left, body.right)]
    if body.op == "mul":
        sides.append((body.right, body.left))
    for inner, number in sides:
        if not isinstance(number, Constant) or number.value == 0:
            continue
        found = _factor(inner, product)
        if found is not None:
            value = float(number.value)
            factor = value if body.op == "mul" else 1 / value
            return found[0], found[1] * factor, number.dtype
    return None
