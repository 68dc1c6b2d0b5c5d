"""The weights of an attention, as expressions of its scores.

Whatever nodes are between the products of queries and keys and the sums of values, each weight is
an expression of one product, of what is reduced over the keys of its query, and of other tensors.
That is read off their bodies: views and moves of elements become indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from attrs import define, field, frozen

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
from autotune.ir.expressions.scalar import transform
from autotune.ir.workloads import Stage, Workload
from autotune.networks.graph import Node, Value
from autotune.networks.passes.attention_masks import (
    band_of,
    masked_body,
    may_be_selected,
    simplified,
)
from autotune.networks.passes.index_maps import reshaped_indices
from autotune.networks.passes.workload_forms import (
    Contraction,
    is_elementwise,
    is_reshape,
    scaled_read,
    uniform_number,
)

__all__ = ["SCORES", "NoAttention", "Place", "Row", "WeightReader"]

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
        if is_reshape(node):
            before = node.operands[0]
            return self.element(before, self._before(value, before, indices))
        workload = node.operation
        assert isinstance(workload, Workload)
        return self._stage(node, workload, workload.outputs[value.position], indices)

    def _before(self, value: Value, before: Value, indices: Indices) -> Indices:
        return reshaped_indices(indices, value.shape, before.shape, self.place.extents)

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
        """As :meth:`element`, with selections for masks."""
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
        while value.node is not None:
            found = scaled_read(value.node)
            if is_reshape(value.node):
                before = value.node.operands[0]
                indices = self._before(value, before, indices)
            elif found is not None and found.factor == 1.0:
                used = [name for it in found.load.indices for name in sorted(it.variables)]
                axes = [axis.name for axis in found.stage.axes]
                if used != [name for name in axes if name in used]:
                    break
                before = found.value
                indices = self._bound(found.load.indices, dict(zip(axes, indices, strict=True)))
            else:
                break
            value = before
        return value, indices

    def _selected(self, value: Value, indices: Indices) -> ScalarExpr | None:
        """A mask that is computed of others, where that says what it hides."""
        node = value.node
        if node is None or not isinstance(node.operation, Workload) or node.requirements:
            return None
        if not is_elementwise(node.operation) or not _is_logic(node.operation.stages[0].body):
            return None
        stage = node.operation.stages[0]
        axes = (axis.name for axis in stage.axes)
        bound = dict(zip(axes, indices, strict=True))
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
