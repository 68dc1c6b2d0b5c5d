"""The form of one ``linalg.generic``: the order of its iterators, and what its body computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autotune_mlir.bindings import Bindings
from autotune_mlir.importing.scalar_import import Unsupported, defining

__all__ = ["dimensions_of", "iterate_units", "maps_of", "part_multiply_add", "put_in_order"]


def maps_of(operation: Any) -> list[Any]:
    """The affine maps of a generic's operands."""
    return [item.value for item in operation.attributes["indexing_maps"]]


def part_multiply_add(ir: Any, operation: Any) -> None:
    """Write a fused multiply-add onto what was there before as product and sum.

    That is the form that the vectoriser knows as a reduction.
    """
    body = operation.regions[0].blocks[0]
    yielded = list(list(body.operations)[-1].operation.operands)
    fused = defining(yielded[0])
    if len(yielded) != 1 or fused is None or fused.name != "math.fma":
        return
    left, right, before = fused.operands
    if before != list(body.arguments)[-1]:
        return
    create, kinds = ir.Operation.create, [fused.results[0].type]
    with ir.InsertionPoint(fused), fused.location:
        product = create("arith.mulf", results=kinds, operands=[left, right]).results[0]
        total = create("arith.addf", results=kinds, operands=[before, product])
    fused.results[0].replace_all_uses_with(total.results[0])
    fused.erase()


def iterate_units(mlir: Bindings, operation: Any) -> None:
    """Have an iterator for each dimension of extent 1 that a generic writes at a constant place.

    That is how results keep the dimensions that were reduced.

    Args:
        mlir: The bindings.
        operation: A ``linalg.generic``.

    Raises:
        Unsupported: one of its results has more such dimensions than another one.
    """
    ir = mlir.ir
    maps = maps_of(operation)
    inputs, outputs = list(operation.attributes["operandSegmentSizes"])
    count = first = maps[0].n_dims
    written = []
    for item in maps[inputs:]:
        results = list(item.results)
        units = [it for it, own in enumerate(results) if isinstance(own, ir.AffineConstantExpr)]
        for number, place in enumerate(units):
            results[place] = ir.AffineDimExpr.get(first + number)
        count = max(count, first + len(units))
        written.append(results)
    if count == first:
        return
    if any(_units(ir, found, first) != count - first for found in written):
        raise Unsupported(f"its {outputs} results have dimensions of extent 1 of different number")
    results = [list(item.results) for item in maps[:inputs]] + written
    attributes = operation.attributes
    attributes["indexing_maps"] = ir.ArrayAttr.get(
        [ir.AffineMapAttr.get(ir.AffineMap.get(count, 0, item)) for item in results]
    )
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    kinds = [*attributes["iterator_types"], *[parallel] * (count - first)]
    attributes["iterator_types"] = ir.ArrayAttr.get(kinds)


def _units(ir: Any, results: Sequence[Any], first: int) -> int:
    """How many results are iterators from ``first`` on."""
    return sum(isinstance(it, ir.AffineDimExpr) and it.position >= first for it in results)


def put_in_order(ir: Any, operation: Any) -> None:
    """Put the iterators of a generic in the order of a stage's axes: the output's, then reduced.

    Raises:
        Unsupported: it does not write each element of its output once.
    """
    maps = maps_of(operation)
    kinds = [str(kind) for kind in operation.attributes["iterator_types"]]
    order = []
    for position, expression in enumerate(maps[-1].results):
        is_axis = isinstance(expression, ir.AffineDimExpr)
        if (
            not is_axis
            or expression.position in order
            or "parallel" not in kinds[expression.position]
        ):
            raise Unsupported(
                f"index {position} of its write is {expression}, "
                "not a parallel iterator of its own"
            )
        order.append(expression.position)
    rest = [position for position in range(len(kinds)) if position not in order]
    for position in rest:
        if "reduction" not in kinds[position]:
            raise Unsupported(
                f"iterator d{position} is parallel but does not index what it writes"
            )
    order += rest
    if order == list(range(len(kinds))):
        return
    place = ir.AffineMap.get_permutation([order.index(old) for old in range(len(kinds))])
    moved = [
        ir.AffineMap.get(len(kinds), 0, [item.compose(place) for item in old.results])
        for old in maps
    ]
    iterators = list(operation.attributes["iterator_types"])
    attributes = operation.attributes
    attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(item) for item in moved])
    attributes["iterator_types"] = ir.ArrayAttr.get([iterators[old] for old in order])
    for view in operation.regions[0].blocks[0].operations:
        inner = view.operation
        if inner.name == "linalg.index":
            dim = inner.attributes["dim"]
            inner.attributes["dim"] = ir.IntegerAttr.get(dim.type, order.index(dim.value))


def dimensions_of(ir: Any, expression: Any) -> Iterator[int]:
    """The dimensions that an expression of a map is of."""
    if isinstance(expression, ir.AffineDimExpr):
        yield ir.AffineDimExpr(expression).position
    elif isinstance(expression, ir.AffineBinaryExpr):
        parts = ir.AffineBinaryExpr(expression)
        yield from dimensions_of(ir, parts.lhs)
        yield from dimensions_of(ir, parts.rhs)
