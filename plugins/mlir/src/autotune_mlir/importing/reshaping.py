"""Changes of a tensor's dimensions, as reads at sums or quotients of iterators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autotune_mlir.bindings import Bindings
from autotune_mlir.emit import STAGE

__all__ = ["RESHAPES", "replace_reshapes"]

RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")
"""Operations of static shape that keep all elements in their order."""


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
                made = _elementwise(mlir.ir, operation)
            operation.results[0].replace_all_uses_with(made)
            operation.erase()


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
    empty = ir.Operation.create("tensor.empty", results=[result.type]).results[0]
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
    element = result.type.element_type
    body = new.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(body):
        ir.Operation.create("linalg.yield", operands=[body.arguments[0]])
    return new.results[0]


def _groups(operation: Any) -> Sequence[Any]:
    groups: Sequence[Any] = operation.attributes["reassociation"]
    return groups


def _joined(ir: Any, dimensions: Sequence[Any], extents: Sequence[int]) -> Any:
    """The index of a dimension that several are made of, the last of which is the innermost."""
    total = ir.AffineConstantExpr.get(0)
    for number, dimension in enumerate(dimensions):
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
