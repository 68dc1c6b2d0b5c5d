"""Which tensors of bytes hold unsigned numbers: MLIR's types of integers do not say.

How a program widens bytes says it. What only moves them, as a padding or a copy, moves that, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autotune_mlir.importing.scalar_import import defining

__all__ = ["unsigned_tensors"]

_BYTE = "i8"
_UNSIGNED = ("arith.extui", "arith.uitofp")
_SIGNED = ("arith.extsi", "arith.sitofp")
_MOVES = ("tensor.pad", "tensor.extract_slice")


def unsigned_tensors(block: Any) -> list[Any]:
    """The tensors whose bytes are always widened as unsigned numbers, and what they are made of.

    Args:
        block: The body of a function, of generic operations; what computes stands in order.
    """
    unsigned: list[Any] = []
    signed: list[Any] = []
    moves: list[tuple[Any, Any]] = []
    for view in block.operations:
        operation = view.operation
        if operation.name in _MOVES:
            moves.append((operation.results[0], operation.operands[0]))
        elif operation.name == "linalg.generic":
            _read_body(operation, unsigned, signed, moves)
    for known in (unsigned, signed):
        _spread(known, moves)
    return [value for value in unsigned if value not in signed]


def _read_body(
    operation: Any, unsigned: list[Any], signed: list[Any], moves: list[tuple[Any, Any]]
) -> None:
    """Add what a body widens, and what it only moves."""
    body = operation.regions[0].blocks[0]
    operands = list(zip(body.arguments, operation.operands, strict=True))
    for view in body.operations:
        inner = view.operation
        if inner.name in (*_UNSIGNED, *_SIGNED) and str(inner.operands[0].type) == _BYTE:
            known = unsigned if inner.name in _UNSIGNED else signed
            known.extend(_sources(inner.operands[0], operands))
    end = list(body.operations)[-1].operation
    if str(end.operands[0].type) == _BYTE:
        result = operation.results[0]
        moves.extend((result, source) for source in _sources(end.operands[0], operands))


def _sources(value: Any, operands: list[tuple[Any, Any]]) -> Iterator[Any]:
    """The tensors of which a value of a body is an element, whatever it is chosen by."""
    producer = defining(value)
    if producer is None:
        yield from (tensor for argument, tensor in operands if argument == value)
    elif producer.name == "tensor.extract":
        yield producer.operands[0]
    elif producer.name == "arith.select":
        for chosen in list(producer.operands)[1:]:
            yield from _sources(chosen, operands)


def _spread(known: list[Any], moves: list[tuple[Any, Any]]) -> None:
    """Add what has the same bytes as one that is known."""
    count = -1
    while count != len(known):
        count = len(known)
        for left, right in moves:
            if (left in known) != (right in known):
                known.append(right if left in known else left)
