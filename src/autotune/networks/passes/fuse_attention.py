"""Attention becomes one program, whose scores need not be written to memory.

Its stages are those of the workload ``attention``, which the search space knows. Causal masks are
comparisons of indices there, of which it knows what they hide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import isclose, prod

from attrs import frozen

from autotune.backends.native import NativeBackend
from autotune.errors import AutotuneError
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    const,
    var,
)
from autotune.ir.expressions.bounds import simplify_index
from autotune.ir.expressions.scalar import transform, walk
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.networks.graph import (
    Graph,
    Loop,
    Node,
    Value,
    input_value,
    readers,
    reshape,
    rewritten,
    transpose,
)
from autotune.networks.graph.graph import results_of
from autotune.networks.graph.making import program, rounded
from autotune.networks.passes.attention_weights import (
    SCORES,
    NoAttention,
    Place,
    Row,
    WeightReader,
    masked_body,
)
from autotune.networks.passes.workload_forms import (
    Contraction,
    before_move,
    contraction,
    flat_index,
    has_exponentials,
)
from autotune.sketches import BoundLoop, Sketch
from autotune.spaces.rules import replayable_sketches
from autotune.spaces.rules.attention_tiles import ATTENTION_LABEL
from autotune.spaces.sketch_space import BUILT_IN_RULES, loosen
from autotune.targets import Target

__all__ = ["LEAST_KEYS", "fuse_attention", "fused"]

LEAST_KEYS = 256
"""With fewer keys the scores of a head are in the caches anyway. On one core, heads of width 64,
one program took 0.99, 1.02, 0.89, 0.92 and 0.84 of the time of all apart for 64, 128, 256, 512 and
1024 queries and keys; under causal masks, 0.79, 0.71, 0.58, 0.54 and 0.41."""

_MOST_NODES = 48
"""Nodes between both products; exporters write some twenty."""
_EPS = 2.0**-21
"""Scales that are so near to one another are one: they are computed in float32."""


def fuse_attention(graph: Graph, machine: Target) -> tuple[Graph, str]:
    """Make one program of each attention that is expected to be faster so.

    Those are attentions that the search space has tiles of queries for: under a causal mask, or
    with many keys that have to be transposed.

    Args:
        graph: A network.
        machine: What it is for.
    """
    changed, count = fused(graph, lambda attention: _is_faster(attention, machine))
    return changed, f"{count} attentions" if count else ""


def fused(graph: Graph, chosen: Callable[[Attention], bool]) -> tuple[Graph, int]:
    """Make one program of each attention that is chosen; return their number, too."""
    found = {id(last): it for last, it in _attentions(graph) if chosen(it)}
    if not found:
        return graph, 0
    new: dict[object, Value] = {}

    def change(node: Node, operands: tuple[Value, ...]) -> list[Value] | None:
        new.update((old.key, it) for old, it in zip(node.operands, operands, strict=True))
        attention = found.get(id(node))
        if attention is None:
            return None
        return [attention.emitted(lambda it: it if it.node is None else new[it.key])]

    return rewritten(graph, change), len(found)


def _attentions(graph: Graph) -> Iterator[tuple[Node, Attention]]:
    """Every attention of a graph, and of bodies of its loops, with the node of its result."""
    users = readers(graph)
    for node in graph.nodes:
        if isinstance(node.operation, Loop):
            yield from _attentions(node.operation.body)
            continue
        first = contraction(node)
        between = None if first is None else _between(node, users)
        if first is None or between is None:
            continue
        last, inside = between
        try:
            yield last, _attention(node, first, last, inside)
        except NoAttention:
            continue


def _between(
    product: Node, users: Mapping[object, list[tuple[Node | None, int]]]
) -> tuple[Node, frozenset[object]] | None:
    """The one product that all that is computed from another one ends in.

    Returns:
        That product, and the keys of all values before it. None where results are used elsewhere,
        or no exponentials are among them.
    """
    last: Node | None = None
    inside: set[object] = set()
    nodes, exponentials = [product], False
    for node in nodes:
        for value in results_of(node):
            inside.add(value.key)
            for user, _ in users.get(value.key, ()):
                if user is None or len(nodes) > _MOST_NODES:
                    return None
                if contraction(user) is not None:
                    if last not in (None, user):
                        return None
                    last = user
                elif not _is_followed(user):
                    return None
                elif user not in nodes:
                    nodes.append(user)
                    exponentials = exponentials or has_exponentials(user)
    return None if last is None or not exponentials else (last, frozenset(inside))


def _is_followed(node: Node) -> bool:
    """Return whether it computes each element on its own, or from rows."""
    if node.requirements or len(node.results) > 1:
        return False
    workload = node.operation
    if not isinstance(workload, Workload):
        return node.is_reshape
    return not any(stage.gathers or stage.scan_axis for stage in workload.stages)


def _attention(
    product: Node, first: Contraction, last: Node, inside: frozenset[object]
) -> Attention:
    """Attention that the sums of a last product are.

    Raises:
        NoAttention: they are not sums of values by weights that are an attention's.
    """
    sums, names = contraction(last), last.named_operands
    assert sums is not None
    loads = sorted((sums.left, sums.right), key=lambda it: names[it.tensor].key not in inside)
    weights, values = (names[it.tensor] for it in loads)
    if weights.key not in inside or values.key in inside:
        raise NoAttention
    row, column, heads = _axes(sums, loads[0], loads[1])
    place = Place(prod(it.extent for it in heads), row.extent, sums.axis.extent)
    bound = {axis.name: index for axis, index in zip(heads, _digits(heads), strict=True)}
    bound |= {row.name: place.indices[1], sums.axis.name: place.indices[2]}
    bound |= {column.name: var("c") if column.extent > 1 else const(0)}
    reads = [
        (names[it.tensor], tuple(index.substitute(bound) for index in it.indices)) for it in loads
    ]
    reader = WeightReader(product, first, inside, place)
    found = reader.weights(*reads[0])
    if reader.factors is None or not reader.rows:
        raise NoAttention
    queries, keys = reader.factors
    own = product.named_operands
    factors = factors_of(
        (own[queries.tensor], queries.indices),
        (own[keys.tensor], keys.indices),
        reads[1],
        {**place.extents, "k": first.axis.extent, "c": column.extent},
    )
    if factors is None:
        raise NoAttention
    scale = prod(it.scale for it in factors[:2])

    def scaled(body: ScalarExpr) -> ScalarExpr:
        return _with_scale(body, scale, first.axis.extent, first.total)

    rows = {name: Row(it.combiner, scaled(it.body), it.dtype) for name, it in reader.rows.items()}
    found = scaled(found)
    bodies = [found, *(it.body for it in rows.values())]
    read = {it.tensor for body in bodies for it in walk(body) if isinstance(it, Load)}
    order = {row.name: len(heads), column.name: len(heads) + 1}
    order |= {axis.name: number for number, axis in enumerate(heads)}
    return Attention(
        factors,
        {name: value for name, value in reader.others.items() if name in read},
        (place.heads, row.extent, sums.axis.extent, first.axis.extent, column.extent),
        first.total,
        rows,
        found,
        (weights.dtype, sums.total, last.results[0][1]),
        tuple(axis.extent for axis in heads),
        tuple(order[axis.name] for axis in sums.stage.spatial_axes),
        last.results[0][0],
    )


def _axes(sums: Contraction, weights: Load, values: Load) -> tuple[Axis, Axis, list[Axis]]:
    """The axes of rows, of columns of values, and of heads.

    Raises:
        NoAttention: there is not one of rows and of columns.
    """
    used = [{name for it in load.indices for name in it.variables} for load in (weights, values)]
    spatial = sums.stage.spatial_axes
    rows = [axis for axis in spatial if axis.name in used[0] - used[1]]
    columns = [axis for axis in spatial if axis.name in used[1] - used[0]]
    if not rows or len(columns) != 1:
        raise NoAttention
    heads = [axis for axis in spatial if axis not in (rows[-1], columns[0])]
    return rows[-1], columns[0], heads


def _digits(heads: list[Axis]) -> Iterator[IntExpr]:
    """The index along each axis of heads of the head with a number."""
    behind = prod(axis.extent for axis in heads)
    for number, axis in enumerate(heads):
        behind //= axis.extent
        found = var("h") // behind
        is_first = prod(it.extent for it in heads[:number]) == 1
        yield const(0) if axis.extent == 1 else found if is_first else found % axis.extent


def _with_scale(body: ScalarExpr, scale: float, width: int, dtype: str) -> ScalarExpr:
    """A body with products that are multiplied by a number first, the usual one if about that."""
    usual = float(width) ** -0.5

    def scaled(node: ScalarExpr) -> ScalarExpr | None:
        is_product = isinstance(node, Load) and node.tensor == SCORES
        return Binary("mul", node, Constant(scale, dtype)) if is_product else None

    def rooted(node: ScalarExpr) -> ScalarExpr | None:
        if not isinstance(node, Binary) or not isinstance(node.right, Constant):
            return None
        is_factor = node.op == "mul" and isinstance(node.left, Load) and node.left.tensor == SCORES
        if not is_factor or not isclose(node.right.value, usual, rel_tol=_EPS):
            return None
        return Binary("mul", node.left, Constant(usual, node.right.dtype))

    if dtype not in ("float32", "float64"):
        return body
    found = body if scale == 1 else masked_body(transform(body, scaled), SCORES, scales=True)
    return transform(found, rooted)


def _is_faster(attention: Attention, machine: Target) -> bool:
    # Products of halves have instructions of their own, which tiles of queries do not use.
    dtypes = {it.value.dtype for it in attention.factors}
    if machine.kind != "cpu" or not dtypes <= {"float32", "float64"}:
        return False
    tiles = _tiles(attention.workload, machine)
    if tiles is None:
        return False
    if any(isinstance(step, BoundLoop) for step in tiles.steps):
        return True
    # What it saves otherwise is about what transposing the keys takes apart: where they are given
    # transposed, it took 1.06 of the time for 128 queries and 512 keys, and 1.5 for 8 and 1024.
    return attention.sizes[2] >= LEAST_KEYS and not attention.factors[1].turned


@lru_cache(maxsize=64)
def _tiles(workload: Workload, machine: Target) -> Sketch | None:
    """The tiles of queries in the search space of an attention; None where there are none."""
    limits = NativeBackend().limits(machine)
    try:
        made = replayable_sketches(workload, machine, limits, BUILT_IN_RULES)
        named = (loosen(it) for it in made if ATTENTION_LABEL in it.name)
        return next((sketch for sketch, feasible, _ in named if feasible.count), None)
    except AutotuneError:
        return None


Indices = tuple[IntExpr, ...]
Read = tuple[Value, Indices]


def factors_of(
    queries: Read, keys: Read, values: Read, extents: Mapping[str, int]
) -> tuple[Factor, Factor, Factor] | None:
    """Places of the matrices of each; None if there are none for each head, or for each group.

    Args:
        queries: What is read of them over ``h``, ``i`` and ``k``.
        keys: What is read of them over ``h``, ``j`` and ``k``.
        values: What is read of them over ``h``, ``j`` and ``c``.
        extents: Of these axes.
    """
    first = [it for it in _found(queries, "ik", extents) if it.copies == 1]
    pairs = [list(_found(read, order, extents)) for read, order in ((keys, "jk"), (values, "jc"))]
    shared = {it.copies for it in pairs[0]} & {it.copies for it in pairs[1]}
    if not first or not shared:
        return None
    # Before all that moved it nothing was scaled, and one move does what several did.
    second, third = ([it for it in found if it.copies == max(shared)] for found in pairs)
    return first[-1], second[-1], third[-1]


def _found(read: Read, axes: str, extents: Mapping[str, int]) -> Iterator[Factor]:
    """The places where a factor is, the latest first."""
    for value, indices, scale in _before(read, extents):
        found = _matrices(value, indices, axes, extents)
        if found is not None:
            order, copies, turned = found
            yield Factor(value, order, copies, scale, turned)


def _before(read: Read, extents: Mapping[str, int]) -> Iterator[tuple[Value, Indices, float]]:
    """A tensor, and what it was before it was moved, copied and scaled by numbers."""
    value, indices = read
    scale = 1.0
    yield value, indices, scale
    while (found := before_move(value, indices, extents)) is not None:
        # In types of less precision a product of what is not scaled may overflow.
        if found.factor != 1 and value.dtype not in ("float32", "float64"):
            return
        value, indices, scale = found.value, found.indices, scale * found.factor
        yield value, indices, scale


def _matrices(
    value: Value, indices: Indices, axes: str, extents: Mapping[str, int]
) -> tuple[tuple[int, ...], int, bool] | None:
    """The order of axes that makes a matrix for each head, or for several, of a tensor.

    Args:
        value: The tensor.
        indices: What is read of it.
        axes: The two of matrices.
        extents: Of all axes.

    Returns:
        The order of all axes of more than one element, how many heads share a matrix, and whether
        matrices have their axes the other way round.
    """
    places: dict[str, int] = {}
    batch: list[int] = []
    for at, (index, extent) in enumerate(zip(indices, value.shape, strict=True)):
        own = next((name for name in axes if index == var(name)), None)
        if extent == 1:
            continue
        if own is not None and own not in places and extents[own] == extent:
            places[own] = at
        elif index.variables == {"h"}:
            batch.append(at)
        else:
            return None
    if any(name not in places and extents[name] > 1 for name in axes):
        return None
    number = flat_index([indices[at] for at in batch], [value.shape[at] for at in batch])
    copies = _copies(number, prod(value.shape[at] for at in batch), extents["h"])
    if copies is None:
        return None
    pair = [places[name] for name in axes if name in places]
    turned = len(pair) == 2 and pair[0] > pair[1] and axes == "jk"
    return (*batch, *(sorted(pair) if turned else pair)), copies, turned


def _copies(number: IntExpr, matrices: int, heads: int) -> int | None:
    """Number of heads that share a matrix, which is that of the head at ``number``."""
    if heads % matrices:
        return None
    copies = heads // matrices
    wanted = const(0) if matrices == 1 else var("h") // copies
    return copies if number == wanted else None


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
