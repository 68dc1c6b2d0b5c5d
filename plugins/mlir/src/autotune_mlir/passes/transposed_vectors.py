"""Transposes of vectors in registers.

MLIR takes a vector that is transposed apart element by element. Rows of squares exchange elements
with each other instead: with those 1, 2, 4, ... rows below, as many neighbours at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autotune_mlir.passes.vector_maker import VectorMaker

__all__ = ["TRANSPOSE", "transpose_in_registers"]

TRANSPOSE = "vector.transpose"
"""The operation that :func:`transpose_in_registers` takes."""

_MOST, _FEWEST = 16, 4


def transpose_in_registers(ir: Any, operations: Sequence[Any]) -> None:
    """Transpose matrices in squares of rows.

    Args:
        ir: The ``ir`` module of the bindings; the context is the current one.
        operations: Operations :data:`TRANSPOSE`. Those of other vectors than matrices, beside
            dimensions of one lane, and of matrices that squares of 4 rows do not divide, are left
            alone.
    """
    for operation in operations:
        source, result = operation.operands[0].type, operation.results[0].type
        order = [int(it) for it in operation.attributes["permutation"]]
        kept = [place for place in order if source.shape[place] > 1]
        size = math.gcd(_MOST, *(source.shape[place] for place in kept))
        if len(kept) == 2 and kept[0] > kept[1] and size >= _FEWEST:
            with ir.InsertionPoint(operation), operation.location:
                rows, columns = (source.shape[place] for place in sorted(kept))
                made = _transposed(ir, operation.operands[0], rows, columns, size)
                made = _shaped(ir, made, result)
            operation.results[0].replace_all_uses_with(made)
            operation.erase()


def _transposed(ir: Any, value: Any, rows: int, columns: int, size: int) -> Any:
    """A matrix of ``columns`` rows."""
    make, element = VectorMaker(ir), value.type.element_type
    value = _shaped(ir, value, ir.VectorType.get([rows, columns], element))
    before = [make.extracted(value, [row]) for row in range(rows)]
    after: list[list[Any]] = [[] for _ in range(columns)]
    for row in range(0, rows, size):
        for column in range(0, columns, size):
            square = [make.part(before[row + at], column, size) for at in range(size)]
            for at, part in enumerate(_square(ir, square)):
                after[column + at].append(part)
    kind = ir.VectorType.get([rows], element)
    result = make.poison(ir.VectorType.get([columns, rows], element))
    for column, parts in enumerate(after):
        whole = parts[0] if rows == size else make.poison(kind)
        for at, part in enumerate(parts if rows > size else ()):
            whole = make.with_part(whole, part, at * size)
        result = make.inserted(result, whole, [column])
    return result


def _square(ir: Any, rows: list[Any]) -> list[Any]:
    """The columns of as many rows as each has lanes."""
    size, distance = len(rows), 1
    while distance < size:
        rows = [_exchanged(ir, rows, at, distance) for at in range(size)]
        distance *= 2
    return rows


def _exchanged(ir: Any, rows: Sequence[Any], at: int, distance: int) -> Any:
    """A row with every other group of ``distance`` lanes from the row so far below or above."""
    size, other = len(rows), at ^ distance
    first, second = rows[min(at, other)], rows[max(at, other)]
    # Of the upper row of a pair the lower groups of both, of the lower one the upper groups.
    lanes = [
        (lane & ~distance) + (at & distance) + (size if lane & distance else 0)
        for lane in range(size)
    ]
    mask = {"mask": ir.DenseI64ArrayAttr.get(lanes)}
    return ir.Operation.create("vector.shuffle", [rows[at].type], [first, second], mask).results[0]


def _shaped(ir: Any, value: Any, kind: Any) -> Any:
    if value.type == kind:
        return value
    return ir.Operation.create("vector.shape_cast", [kind], [value]).results[0]
