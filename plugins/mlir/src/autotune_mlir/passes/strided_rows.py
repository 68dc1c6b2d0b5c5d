"""Rows of an operand that are more than one apart, as slices of it, in programs on tensors.

Instructions on tile registers read rows that are evenly apart, as convolutions with strides do.
The vectorizer takes rows that follow each other only: :func:`slice_rows` has it see slices that
are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from autotune_mlir.emit import STAGE
from autotune_mlir.traversal import operations_in

__all__ = ["slice_rows"]

_TERM = re.compile(r"d(\d+)(?: \* (\d+))?")


def slice_rows(ir: Any, module: Any, stages: Sequence[str]) -> None:
    """Have tiles of stages read slices with strides where their rows are more than one apart.

    Args:
        ir: The ``ir`` module of the bindings; the context of ``module`` is the current one.
        module: The program, on tensors, with its loops.
        stages: Their names.
    """
    found = [
        operation
        for operation in operations_in(module.operation)
        if operation.name == "linalg.generic"
        and STAGE in operation.attributes
        and operation.attributes[STAGE].value in stages
    ]
    for operation in found:
        maps = [it.value for it in operation.attributes["indexing_maps"]]
        extents = _extents(operation, maps)
        for number, value in enumerate(list(operation.operands)[:-1]):
            rows = _rows_apart(maps[number], extents)
            if not rows:
                continue
            with ir.InsertionPoint(operation), operation.location:
                counts = {at: (extents[iterator], step) for at, (iterator, step) in rows.items()}
                operation.operands[number] = _sliced(ir, value, counts)
            results = list(maps[number].results)
            for at, (iterator, _) in rows.items():
                results[at] = ir.AffineExpr.get_dim(iterator)
            maps[number] = ir.AffineMap.get(maps[number].n_dims, 0, results)
        attributes = [ir.AffineMapAttr.get(it) for it in maps]
        operation.attributes["indexing_maps"] = ir.ArrayAttr.get(attributes)


def _extents(operation: Any, maps: Sequence[Any]) -> dict[int, int]:
    """The extents of iterators that an operand has a dimension for."""
    found: dict[int, int] = {}
    for value, indexing in zip(operation.operands, maps, strict=True):
        for at, result in enumerate(indexing.results):
            alone = re.fullmatch(r"d(\d+)", str(result))
            if alone and not value.type.is_dynamic_dim(at):
                found[int(alone[1])] = int(value.type.shape[at])
    return found


def _rows_apart(indexing: Any, extents: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Dimensions along which an operand is read in steps above 1: iterator and step of each.

    Iterators of a single iteration add nothing, for the operand is what a tile reads.
    """
    found = {}
    for at, result in enumerate(indexing.results):
        terms = [_TERM.fullmatch(term) for term in str(result).split(" + ")]
        moving = [
            (int(term[1]), int(term[2] or 1))
            for term in terms
            if term is not None and extents.get(int(term[1])) != 1
        ]
        if None not in terms and len(moving) == 1:
            ((iterator, step),) = moving
            if step > 1 and iterator in extents:
                found[at] = moving[0]
    return found


def _sliced(ir: Any, value: Any, counts: Mapping[int, tuple[int, int]]) -> Any:
    """A tensor with every so many-th element along some dimensions.

    Args:
        ir: The ``ir`` module of the bindings; there is an insertion point.
        value: The tensor.
        counts: By dimension how many elements there are, and the step.
    """
    rank = len(value.type.shape)
    sizes = [counts[at][0] if at in counts else int(value.type.shape[at]) for at in range(rank)]
    kind = ir.RankedTensorType.get(sizes, value.type.element_type)
    attributes = {
        "static_offsets": ir.DenseI64ArrayAttr.get([0] * rank),
        "static_sizes": ir.DenseI64ArrayAttr.get(sizes),
        "static_strides": ir.DenseI64ArrayAttr.get(
            [counts[at][1] if at in counts else 1 for at in range(rank)]
        ),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
    }
    return ir.Operation.create("tensor.extract_slice", [kind], [value], attributes).results[0]
