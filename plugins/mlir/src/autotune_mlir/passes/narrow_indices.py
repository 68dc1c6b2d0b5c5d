"""Vectors of indices that are cast to narrower integers, computed as those from the start.

Indices have 64 bits: a vector of them is two registers where the numbers that it becomes are one,
as in an argmax. Sums, differences and products lose nothing: the low bits of each are those of the
low bits of its operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune_mlir.importing.scalar_import import defining
from autotune_mlir.passes.vector_maker import constant_of

__all__ = ["CASTS", "narrow_indices"]

CASTS = frozenset({"arith.index_cast", "arith.index_castui"})
"""The operations that :func:`narrow_indices` takes."""

_SUMS = frozenset({"arith.addi", "arith.subi", "arith.muli"})
_MOVES = frozenset({"vector.broadcast", "vector.shape_cast"})
_WIDEST = 32


def narrow_indices(ir: Any, casts: Sequence[Any]) -> None:
    """Compute vectors of indices as the integers that they are cast to.

    Args:
        ir: The ``ir`` module of the bindings; the context is the current one.
        casts: Operations :data:`CASTS`. Those of numbers, to more than 32 bits, and of vectors
            that are more than sums of numbers are left alone.
    """
    for cast in casts:
        source, result = cast.operands[0], cast.results[0]
        kind = result.type
        if not isinstance(kind, ir.VectorType) or source.type.element_type != ir.IndexType.get():
            continue
        if kind.element_type.width > _WIDEST or not _is_sum(ir, source):
            continue
        with ir.InsertionPoint(cast), cast.location:
            made = _narrowed(ir, source, kind.element_type)
        result.replace_all_uses_with(made)
        cast.erase()


def _is_sum(ir: Any, value: Any) -> bool:
    """Whether a vector consists of numbers, the numbers of its lanes, and sums of such."""
    if not isinstance(value.type, ir.VectorType):
        return True
    made = defining(value)
    if made is None:
        return False
    if made.name == "arith.constant":
        return bool(made.attributes["value"].is_splat)
    if made.name in _SUMS or made.name in _MOVES:
        return all(_is_sum(ir, operand) for operand in made.operands)
    return bool(made.name == "vector.step")


def _narrowed(ir: Any, value: Any, element: Any) -> Any:
    """The low bits of an index, or of each of a vector of them."""
    create = ir.Operation.create
    if not isinstance(value.type, ir.VectorType):
        return create("arith.index_cast", [element], [value]).results[0]
    kind, made = ir.VectorType.get(list(value.type.shape), element), defining(value)
    assert made is not None
    if made.name == "arith.constant":
        number = made.attributes["value"].get_splat_value().value
        return constant_of(ir, kind, ir.IntegerAttr.get(element, _wrapped(number, element.width)))
    if made.name == "vector.step":
        return create("arith.constant", [kind], attributes={"value": _lanes(ir, kind)}).results[0]
    operands = [_narrowed(ir, operand, element) for operand in made.operands]
    return create(made.name, [kind], operands).results[0]


def _wrapped(number: int, bits: int) -> int:
    """The number between -2^(bits-1) and 2^(bits-1) that has these low bits."""
    half = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def _lanes(ir: Any, kind: Any) -> Any:
    """The numbers of the lanes of a vector, as far as they go."""
    element = kind.element_type
    numbers = (_wrapped(lane, element.width) for lane in range(kind.shape[0]))
    return ir.DenseElementsAttr.get([ir.IntegerAttr.get(element, it) for it in numbers], kind)
