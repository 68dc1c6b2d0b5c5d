"""The weights of an attention, as expressions of its scores.

Whatever nodes are between the products of queries and keys and the sums of values, each weight is
an expression of one product, of what is reduced over the keys of its query, and of other tensors.
That is read off their bodies: views and moves of elements become indices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    var,
)
from autotune.ir.expressions.bounds import simplify_index
from autotune.ir.expressions.scalar import transform, walk
from autotune.ir.workloads import Stage, Workload
from autotune.networks.graph import Node, Value
from autotune.networks.passes.workload_forms import (
    Contraction,
    before_move,
    uniform_number,
)

__all__ = [
    "Band",
    "NoAttention",
    "Place",
    "Row",
    "SCORES",
    "WeightReader",
    "band_of",
    "masked_body",
]

SCORES = "scores"
"""Name of the products."""

Indices = tuple[IntExpr, ...]


class NoAttention(Exception):
    """Refusal of a computation that has another form."""


@frozen
class Place:
    """The axes that weights have.

    Attributes:
        heads: All that products are made for one by one; numbered in order, ``h``.
        rows: Queries, ``i``.
        columns: Keys, ``j``.
    """

    heads: int
    rows: int
    columns: int

    @property
    def extents(self) -> dict[str, int]:
        """By name."""
        return {"h": self.heads, "i": self.rows, "j": self.columns}

    @property
    def indices(self) -> Indices:
        """Of the three, 0 where an axis has one element."""
        return tuple(var(it) if extent > 1 else const(0) for it, extent in self.extents.items())


@frozen
class Row:
    """A number for each query of each head: what a body is reduced to over keys.

    Attributes:
        combiner: How.
        body: The body.
        dtype: Type of the result.
    """

    combiner: str
    body: ScalarExpr
    dtype: str


@define(eq=False)
class WeightReader:
    """Reads expressions of the weights off nodes.

    Attributes:
        product: What computes the products.
        contraction: The form of it.
        inside: Keys of all values that are computed from the products, and of these.
        place: The axes of the weights.
        rows: By name of a tensor what is reduced over keys, in the order of need.
        others: By name of a tensor what else may be read.
        factors: How the operands of the products are loaded, once these are found.
    """

    product: Node
    contraction: Contraction
    inside: frozenset[object]
    place: Place
    rows: dict[str, Row] = field(factory=dict)
    others: dict[str, Value] = field(factory=dict)
    factors: tuple[Load, Load] | None = None
    _known: dict[tuple[object, Indices], ScalarExpr] = field(factory=dict)

    def element(self, value: Value, indices: Sequence[IntExpr]) -> ScalarExpr:
        """Element of a tensor at a place.

        Args:
            value: The tensor.
            indices: Over the axes of the weights.

        Raises:
            NoAttention: it is no expression of one product, and of what is reduced over keys.
        """
        key = value.key, tuple(indices)
        if key not in self._known:
            if value.key in self.inside:
                self._known[key] = self._computed(value, key[1])
            else:
                self._known[key] = self._other(value, key[1])
        return self._known[key]

    def _computed(self, value: Value, indices: Indices) -> ScalarExpr:
        node = value.node
        assert node is not None
        if node.is_reshape:
            found = before_move(value, indices, self.place.extents)
            assert found is not None
            return self.element(found.value, found.indices)
        workload = node.operation
        assert isinstance(workload, Workload)
        return self._stage(node, workload, workload.outputs[value.position], indices)

    def _stage(self, node: Node, workload: Workload, tensor: str, indices: Indices) -> ScalarExpr:
        names = [it.name for it in workload.inputs]
        if tensor in names:
            return self.element(node.operands[names.index(tensor)], indices)
        stage = workload.stage(tensor)
        bound = {
            axis.name: index if axis.extent > 1 else const(0)
            for axis, index in zip(stage.spatial_axes, indices, strict=True)
        }
        if stage is self.contraction.stage and node is self.product:
            return self._products(bound)
        if stage.combiner is None:
            return self._body(node, workload, stage, bound)
        long = [axis for axis in stage.reduce_axes if axis.extent > 1]
        by_column = any("j" in index.variables for index in bound.values())
        if stage.scan_axis or by_column or [it.extent for it in long] != [self.place.columns]:
            raise NoAttention
        bound |= {axis.name: const(0) for axis in stage.reduce_axes} | {long[0].name: var("j")}
        body = self._body(node, workload, stage, bound)
        return self._row(Row(stage.combiner, self._simple(body), stage.output.dtype))

    def _simple(self, body: ScalarExpr) -> ScalarExpr:
        return masked_body(body, SCORES, self.contraction.total in ("float32", "float64"))

    def weights(self, value: Value, indices: Sequence[IntExpr]) -> ScalarExpr:
        """Return the weight as :meth:`element`, with selections for masks."""
        return self._simple(self.element(value, indices))

    def _body(
        self, node: Node, workload: Workload, stage: Stage, bound: Mapping[str, IntExpr]
    ) -> ScalarExpr:
        def read(body: ScalarExpr) -> ScalarExpr | None:
            if isinstance(body, Load):
                return self._stage(node, workload, body.tensor, self._bound(body.indices, bound))
            if isinstance(body, IndexValue):
                return IndexValue(*self._bound([body.index], bound))
            if isinstance(body, Gather):
                raise NoAttention
            return None

        return transform(stage.body, read)

    def _bound(self, indices: Sequence[IntExpr], bound: Mapping[str, IntExpr]) -> Indices:
        extents = self.place.extents
        return tuple(simplify_index(it.substitute(bound), extents) for it in indices)

    def _products(self, bound: Mapping[str, IntExpr]) -> ScalarExpr:
        """The product at a place, which is the same for all that is computed from it."""
        inner = {**bound, self.contraction.axis.name: var("k")}
        extents = {**self.place.extents, "k": self.contraction.axis.extent}
        pair = [
            Load(
                it.tensor, tuple(simplify_index(n.substitute(inner), extents) for n in it.indices)
            )
            for it in (self.contraction.left, self.contraction.right)
        ]
        by_column = [any("j" in it.variables for it in load.indices) for load in pair]
        if by_column == [True, False]:
            pair.reverse()
        by_row = any("i" in it.variables for it in pair[1].indices)
        if by_column[0] == by_column[1] or by_row or (self.factors or tuple(pair)) != tuple(pair):
            raise NoAttention
        self.factors = pair[0], pair[1]
        return Load(SCORES, self.place.indices)

    def _row(self, row: Row) -> ScalarExpr:
        """The number of each query; what is asked of all scores is asked of the largest."""
        body, casts = row.body, []
        while isinstance(body, Cast):
            casts.append(body.dtype)
            body = body.operand
        hidden = _hidden_where(body, row.combiner)
        if hidden is not None:
            score, op, dtype = hidden
            largest = self._row(Row("max", score, dtype))
            found: ScalarExpr = Binary(op, largest, Constant(-inf, dtype))
            for dtype in reversed(casts):
                found = Cast(dtype, found)
            return found
        for name, known in self.rows.items():
            if known == row:
                return Load(name, self.place.indices[:2])
        kind = {"max": "largest", "add": "total"}.get(row.combiner, row.combiner)
        name = kind if kind not in self.rows else f"{kind}{len(self.rows)}"
        self.rows[name] = row
        return Load(name, self.place.indices[:2])

    def _other(self, value: Value, indices: Indices) -> ScalarExpr:
        """Value beside scores: a number, a bound of keys, or an element of a tensor."""
        number = uniform_number(value)
        if number is not None:
            return Constant(number, value.dtype)
        value, indices = self._unspread(value, indices)
        axes = [[at for at, it in enumerate(indices) if it == var(name)] for name in "ij"]
        if all(len(it) == 1 for it in axes) and value.constant is not None:
            band = band_of(value, axes[0][0], axes[1][0])
            whole = tuple(value.shape[it[0]] for it in axes)
            if band is not None and whole == (self.place.rows, self.place.columns):
                return band.body(var("i"), var("j"), value.dtype)
        selected = self._selected(value, indices)
        return self._operand(value, indices) if selected is None else selected

    def _unspread(self, value: Value, indices: Indices) -> tuple[Value, Indices]:
        """A tensor before it was repeated, cut, or got another shape, its axes in their order."""
        while (found := before_move(value, indices, self.place.extents)) is not None:
            if found.factor != 1.0 or not found.in_order:
                break
            value, indices = found.value, found.indices
        return value, indices

    def _selected(self, value: Value, indices: Indices) -> ScalarExpr | None:
        """A mask that is computed of others, where that says what it hides."""
        node = value.node
        stage = None if node is None or node.requirements else node.pointwise
        if node is None or stage is None or not _is_logic(stage.body):
            return None
        assert isinstance(node.operation, Workload)
        bound = dict(zip((axis.name for axis in stage.axes), indices, strict=True))
        found = simplified(self._body(node, node.operation, stage, bound))
        return found if may_be_selected(found) else None

    def _operand(self, value: Value, indices: Indices) -> ScalarExpr:
        for name, known in self.others.items():
            if known.key == value.key:
                return Load(name, indices)
        name = f"other{len(self.others)}"
        self.others[name] = value
        return Load(name, indices)


def _is_logic(body: ScalarExpr) -> bool:
    """Return whether a body selects numbers, or computes a condition of others."""
    if isinstance(body, Select):
        parts = (body.condition, body.on_true, body.on_false)
        return all(_is_logic(it) for it in parts)
    if isinstance(body, Unary):
        return body.op == "not" and _is_logic(body.operand)
    if isinstance(body, Binary):
        return body.op in ("and", "or") and _is_logic(body.left) and _is_logic(body.right)
    if isinstance(body, Cast):
        return element_type(body.dtype).is_float and _is_logic(body.operand)
    return isinstance(body, (Load, Constant))


def _hidden_where(body: ScalarExpr, combiner: str) -> tuple[ScalarExpr, str, str] | None:
    """Read from a bound on a query's largest score where all its scores are minus infinity."""
    negated = False
    while isinstance(body, Unary) and body.op == "not":
        body, negated = body.operand, not negated
    if not isinstance(body, Binary) or body.op not in ("eq", "ne"):
        return None
    asked = {"eq": "ne", "ne": "eq"}[body.op] if negated else body.op
    if (asked, combiner) not in (("eq", "min"), ("ne", "max")):
        return None
    lowest = body.right
    if not isinstance(lowest, Constant) or lowest.value != -inf:
        return None
    return body.left, asked, lowest.dtype


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
