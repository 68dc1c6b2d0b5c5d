"""An attention that was found, and the one workload of it.

Its stages are those of the workload ``attention``, which the search space knows. Causal masks are
comparisons of indices there, of which it knows what they hide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from autotune.ir.expressions import (
    Binary,
    Cast,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    var,
)
from autotune.ir.expressions.bounds import simplify_index
from autotune.ir.expressions.scalar import transform
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.networks.graph import Value, input_value, reshape, transpose
from autotune.networks.graph.making import program, rounded
from autotune.networks.passes.attention_weights import SCORES, Row

__all__ = ["Attention", "Factor"]


@frozen(eq=False)
class Factor:
    """Factor: queries, keys or values, where its matrices are.

    Attributes:
        value: The tensor.
        order: Of its axes: those of heads, then those of the matrix.
        copies: For how many heads each of its matrices is.
        scale: What it is multiplied by.
        turned: Whether its matrices are transposed: ``[width, keys]``.
    """

    value: Value
    order: tuple[int, ...]
    copies: int
    scale: float
    turned: bool = False

    @property
    def moves(self) -> bool:
        """True if elements have to be moved to have this order."""
        return list(self.order) != sorted(self.order)

    def matrices(self, value: Value, shape: Sequence[int]) -> Value:
        """The tensor as matrices of one shape."""
        rest = [at for at in range(value.rank) if at not in self.order]
        moved = transpose(value, [*rest, *self.order]) if self.moves else value
        return reshape(moved, shape)


@frozen(eq=False)
class Attention:
    """Sums of values, by weights that are computed of products of queries and keys.

    Attributes:
        factors: Queries, keys and values.
        others: By name what else is read.
        sizes: Heads, queries, keys, the width of a head, and that of the results.
        product: The type of products of queries and keys.
        rows: By name what is reduced over keys, in the order of need.
        weights: The weights.
        dtypes: Of the weights, of sums of values, and of the results.
        batch: Extents of the axes of heads of the result.
        order: Of the axes of the result: for each the place among heads, queries, columns.
        shape: Of the result.
    """

    factors: tuple[Factor, Factor, Factor]
    others: Mapping[str, Value]
    sizes: tuple[int, int, int, int, int]
    product: str
    rows: Mapping[str, Row]
    weights: ScalarExpr
    dtypes: tuple[str, str, str]
    batch: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def copies(self) -> int:
        """Number of heads of queries that each of keys and values is for."""
        return self.factors[1].copies

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of queries, keys and values with one axis of heads; of several that share keys two."""
        heads, rows, keys, width, columns = self.sizes
        groups = heads // self.copies
        outer = (heads,) if self.copies == 1 else (groups, self.copies)
        pair = (width, keys) if self.factors[1].turned else (keys, width)
        return (*outer, rows, width), (groups, *pair), (groups, keys, columns)

    def emitted(self, mapped: Callable[[Value], Value]) -> Value:
        """The result, in the shape that it has to have.

        Args:
            mapped: What takes the place of each value.
        """
        matrices = [
            factor.matrices(mapped(factor.value), shape)
            for factor, shape in zip(self.factors, self.shapes, strict=True)
        ]
        others = [mapped(value) for value in self.others.values()]
        found = self._result([*matrices, *others])
        apart = reshape(found, (*self.batch, self.sizes[1], self.sizes[4]))
        return reshape(transpose(apart, self.order), self.shape)

    def _result(self, operands: Sequence[Value]) -> Value:
        return program("attention", operands, self.stages)

    @property
    def workload(self) -> Workload:
        """The workload, of operands that are not known."""
        values = (*(it.value for it in self.factors), *self.others.values())
        shapes = (*self.shapes, *(it.shape for it in self.others.values()))
        node = self._result(
            [
                input_value(f"x{number}", shape, value.dtype)
                for number, (shape, value) in enumerate(zip(shapes, values, strict=True))
            ]
        ).node
        assert node is not None and isinstance(node.operation, Workload)
        return node.operation

    def stages(self, given: Sequence[Tensor]) -> list[Stage]:
        """The stages of the workload.

        Args:
            given: Queries, keys, values and others.
        """
        names = dict(zip(self.others, (it.name for it in given[3:]), strict=True))
        return _Stages(self, names).made(given)


@frozen(eq=False)
class _Stages:
    """Makes the stages.

    Attributes:
        attention: Of what.
        names: Of tensors by the names that expressions have for them.
    """

    attention: Attention
    names: Mapping[str, str]

    @property
    def heads(self) -> list[Axis]:
        """The axes before those of matrices."""
        heads, copies = self.attention.sizes[0], self.attention.copies
        if copies == 1:
            return [Axis("h", heads)]
        return [Axis("g", heads // copies), Axis("h", copies)]

    @property
    def row(self) -> list[Axis]:
        """The axes of what each query has one of."""
        return [*self.heads, Axis("i", self.attention.sizes[1])]

    def made(self, given: Sequence[Tensor]) -> list[Stage]:
        """All of them."""
        stages = [self._products(given[0], given[1])]
        bodies: dict[ScalarExpr, str] = {}
        keys = self.attention.sizes[2]
        columns = [*self.row, Axis("j", keys)]

        def computed(name: str, body: ScalarExpr, dtype: str) -> str:
            """The stage that has a body at every place."""
            placed = self._placed(_replaced(body, bodies))
            if isinstance(placed, Load) and placed.tensor in {it.name for it in stages}:
                return placed.tensor
            unique = name if name not in bodies.values() else f"{name}{len(bodies)}"
            stages.append(_stage(unique, columns, placed, dtype))
            bodies[body] = unique
            return unique

        for name, row in self.attention.rows.items():
            before = {"max": "masked", "add": "powers"}.get(row.combiner, "terms")
            inner = computed(before, row.body, row.dtype)
            element = Load(inner, tuple(var(axis.name) for axis in columns))
            axes = [*self.row, Axis("j", keys, "reduce")]
            stages.append(_stage(name, axes, element, row.dtype, row.combiner))
        weights, total, result = self.attention.dtypes
        name = computed("weights", self.attention.weights, weights)
        stages.append(self._sums(name, weights, given[2], total))
        return rounded(stages, result)

    def _products(self, queries: Tensor, keys: Tensor) -> Stage:
        _, _, count, width, _ = self.attention.sizes
        axes = [*self.row, Axis("j", count), Axis("k", width, "reduce")]
        first = Load(queries.name, (*(var(axis.name) for axis in self.row), var("k")))
        pair = ("k", "j") if self.attention.factors[1].turned else ("j", "k")
        second = Load(keys.name, (var(self.heads[0].name), *map(var, pair)))
        body = _product((first, queries.dtype), (second, keys.dtype), self.attention.product)
        return _stage(SCORES, axes, body, self.attention.product, "add")

    def _sums(self, weights: str, dtype: str, values: Tensor, total: str) -> Stage:
        _, _, count, _, columns = self.attention.sizes
        axes = [*self.row, Axis("c", columns), Axis("j", count, "reduce")]
        first = Load(weights, (*(var(axis.name) for axis in self.row), var("j")))
        second = Load(values.name, (var(self.heads[0].name), var("j"), var("c")))
        body = _product((first, dtype), (second, values.dtype), total)
        return _stage("mixed", axes, body, total, "add")

    def _placed(self, body: ScalarExpr) -> ScalarExpr:
        """A body over the axes of stages."""
        extents = {axis.name: axis.extent for axis in self.row}
        extents["j"] = self.attention.sizes[2]

        def index(found: IntExpr) -> IntExpr:
            if len(self.heads) > 1:
                found = found.substitute({"h": var("g") * self.attention.copies + var("h")})
            return simplify_index(found, extents)

        def read(node: ScalarExpr) -> ScalarExpr | None:
            if isinstance(node, IndexValue):
                return IndexValue(index(node.index))
            if not isinstance(node, Load):
                return None
            if node.tensor in self.names:
                return Load(self.names[node.tensor], tuple(map(index, node.indices)))
            depth = len(node.indices) + len(self.heads) - 1
            names = [*(axis.name for axis in self.row), "j"][:depth]
            return Load(node.tensor, tuple(map(var, names)))

        return transform(body, read)


def _replaced(body: ScalarExpr, bodies: Mapping[ScalarExpr, str]) -> ScalarExpr:
    """A body that reads what stages have computed already."""

    def read(node: ScalarExpr) -> ScalarExpr | None:
        return Load(bodies[node], tuple(map(var, "hij"))) if node in bodies else None

    return transform(body, read)


def _stage(
    name: str,
    axes: Sequence[Axis],
    body: ScalarExpr,
    dtype: str,
    combiner: str | None = None,
) -> Stage:
    shape = tuple(axis.extent for axis in axes if axis.kind == "spatial")
    return Stage(Tensor(name, shape, dtype), tuple(axes), body, combiner)


def _product(
    left: tuple[ScalarExpr, str], right: tuple[ScalarExpr, str], total: str
) -> ScalarExpr:
    parts = [it if dtype == total else Cast(total, it) for it, dtype in (left, right)]
    return Binary("mul", parts[0], parts[1])
