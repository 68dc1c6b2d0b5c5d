"""Changes of a tensor's dimensions, as reads at sums or quotients of iterators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autotune_mlir.bindings import Bindings
from autotune_mlir.emit import STAGE
from autotune_mlir.importing.scalar_import import defining

__all__ = ["RESHAPES", "fold_units", "replace_reshapes"]

RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")
"""Operations of static shape that keep all elements in their order."""

# Marks what changes nothing but dimensions of extent 1, until `fold_units`.
_UNITS = "autotune.units"


def replace_reshapes(mlir: Bindings, block: Any) -> None:
    """Replace operations of a block that change dimensions by elementwise ones.

    Args:
        mlir: The bindings.
        block: The body of a function; shapes are static.
    """
    for view in list(block.operations):
        operation = view.operation
        if operation.name in RESHAPES:
            with mlir.ir.InsertionPoint(operation), operation.location:
                made = _unwritten(mlir.ir, operation) or _elementwise(mlir.ir, operation)
            operation.results[0].replace_all_uses_with(made)
            operation.erase()


def fold_units(mlir: Bindings, block: Any) -> None:
    """Read what only gained or lost dimensions of extent 1 where it was before.

    MLIR makes no vectors of a copy that reads at more places than it has iterators.

    Args:
        mlir: The bindings.
        block: The body of a function; named operations are generalised.
    """
    for view in list(block.operations):
        operation = view.operation
        if _UNITS not in operation.attributes:
            continue
        del operation.attributes[_UNITS]
        for use in list(operation.results[0].uses):
            _read_source(mlir.ir, use.owner.operation, use.operand_number, operation)
        if not any(True for _ in operation.results[0].uses):
            operation.erase()


def _read_source(ir: Any, user: Any, number: int, reshape: Any) -> None:
    """Have an input of a generic be the source of a reshape, where it is read as simply."""
    if user.name != "linalg.generic":
        return
    if number >= user.attributes["operandSegmentSizes"][0]:
        if not any(True for _ in user.regions[0].blocks[0].arguments[number].uses):
            with ir.InsertionPoint(user), user.location:
                user.operands[number] = _empty(ir, user.operands[number].type)
        return
    maps = [item.value for item in user.attributes["indexing_maps"]]
    own, place = maps[number], reshape.attributes["indexing_maps"][0].value
    results = [result.compose(own) for result in place.results]
    if len(results) > own.n_dims:
        return
    before = {it.position for item in maps for it in _iterators(ir, item.results)}
    maps[number] = ir.AffineMap.get(own.n_dims, 0, results)
    if before != {it.position for item in maps for it in _iterators(ir, item.results)}:
        # The extent of a window of 1 would not be known any more.
        return
    user.operands[number] = reshape.operands[0]
    attributes = [ir.AffineMapAttr.get(item) for item in maps]
    user.attributes["indexing_maps"] = ir.ArrayAttr.get(attributes)


def _iterators(ir: Any, results: Sequence[Any]) -> list[Any]:
    """The results of a map that are iterators."""
    return [it for it in results if isinstance(it, ir.AffineDimExpr)]


def _unwritten(ir: Any, operation: Any) -> Any | None:
    """A tensor without values in its new shape; None of one that has values."""
    producer = defining(operation.operands[0])
    if producer is None or producer.name != "tensor.empty":
        return None
    return _empty(ir, operation.results[0].type)


def _empty(ir: Any, kind: Any) -> Any:
    return ir.Operation.create("tensor.empty", results=[kind]).results[0]


def _elementwise(ir: Any, operation: Any) -> Any:
    source, result = operation.operands[0], operation.results[0]
    wide, narrow = list(source.type.shape), list(result.type.shape)
    groups = [[int(item.value) for item in group] for group in _groups(operation)]
    dimensions = [ir.AffineDimExpr.get(number) for number in range(len(narrow))]
    indices: list[Any] = [None] * len(wide)
    for number, group in enumerate(groups):
        if operation.name == "tensor.expand_shape":
            extents = [narrow[dimension] for dimension in group]
            indices[number] = _joined(ir, [dimensions[it] for it in group], extents)
        else:
            extents = [wide[dimension] for dimension in group]
            for place, index in zip(group, _parts(ir, dimensions[number], extents), strict=True):
                indices[place] = index
    if not groups:  # of a single element
        indices = [ir.AffineConstantExpr.get(0) for _ in wide]
    rank = len(narrow)
    maps = [ir.AffineMap.get(rank, 0, indices), ir.AffineMap.get_identity(rank)]
    empty = _empty(ir, result.type)
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    new = ir.Operation.create(
        "linalg.generic",
        results=[result.type],
        operands=[source, empty],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(item) for item in maps]),
            "iterator_types": ir.ArrayAttr.get([parallel] * rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
            STAGE: operation.attributes[STAGE]
            if STAGE in operation.attributes
            else ir.StringAttr.get("reshape"),
        },
        regions=1,
    )
    if [it for it in wide if it != 1] == [it for it in narrow if it != 1]:
        new.attributes[_UNITS] = ir.UnitAttr.get()
    element = result.type.element_type
    body = new.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(body):
        ir.Operation.create("linalg.yield", operands=[body.arguments[0]])
    return new.results[0]


def _groups(operation: Any) -> Sequence[Any]:
    groups: Sequence[Any] = operation.attributes["reassociation"]
    return groups


def _joined(ir: Any, dimensions: Sequence[Any], extents: Sequence[int]) -> Any:
    """The index of a dimension that several are made of, the last of which is the innermost.

    Those of extent 1 have no part in it: MLIR makes vectors of reads at single iterators.
    """
    total = ir.AffineConstantExpr.get(0)
    for number, dimension in enumerate(dimensions):
        if extents[number] != 1:
            total = total + dimension * math.prod(extents[number + 1 :])
    return total


def _parts(ir: Any, dimension: Any, extents: Sequence[int]) -> list[Any]:
    """The indices of the dimensions that were made one."""
    found = []
    outermost = True
    for number, extent in enumerate(extents):
        inner = math.prod(extents[number + 1 :])
        if extent == 1:
            found.append(ir.AffineConstantExpr.get(0))
            continue
        index = ir.AffineExpr.get_floor_div(dimension, inner) if inner > 1 else dimension
        found.append(index if outermost else ir.AffineExpr.get_mod(index, extent))
        outermost = False
    return found
