"""Bytes that a program takes for unsigned numbers, as tensors of such.

Some languages have integers without a sign, which only what widens them gives a meaning: such a
program is read as one of ``int8`` that are cast to ``uint8`` before they are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import evolve

from autotune.ir.expressions import Cast, Constant, Gather, Load, ScalarExpr, Select, transform
from autotune.ir.expressions.scalar import children
from autotune.ir.workloads import Stage, Workload

__all__ = ["infer_unsigned"]

_SIGNED, _UNSIGNED = "int8", "uint8"


def infer_unsigned(workload: Workload) -> Workload:
    """Make tensors of ``int8`` that are only ever used as unsigned numbers ones of ``uint8``.

    ``cast(uint8, a[i])`` becomes ``a[i]``. What only moves bytes, as a padding or a copy, moves
    their meaning, too: in both directions.
    """
    unsigned: set[str] = set()
    signed: set[str] = set()
    moves: set[tuple[str, str]] = set()
    bytes_ = {name for name, it in workload.tensors.items() if it.dtype == _SIGNED}
    for stage in workload.stages:
        moved = list(_moved(stage.body)) if stage.combiner is None else []
        if stage.name in bytes_:
            moves |= {(stage.name, it.tensor) for it in moved if it.tensor in bytes_}
        else:
            signed |= {it.tensor for it in moved}
        _note_uses(stage, unsigned, signed)
    made = bytes_ & (_spread(unsigned, moves) - _spread(signed, moves))
    if not made:
        return workload
    return evolve(
        workload,
        inputs=tuple(
            evolve(it, dtype=_UNSIGNED) if it.name in made else it for it in workload.inputs
        ),
        stages=tuple(_with_unsigned(stage, made) for stage in workload.stages),
    )


def _moved(body: ScalarExpr) -> Iterator[Load | Gather]:
    """The reads of which a body is one, whatever it is chosen by."""
    if isinstance(body, (Load, Gather)):
        yield body
    elif isinstance(body, Select):
        yield from _moved(body.on_true)
        yield from _moved(body.on_false)


def _note_uses(stage: Stage, unsigned: set[str], signed: set[str]) -> None:
    """Add the tensors of which a stage uses elements as numbers."""

    def visit(node: ScalarExpr, moves: bool) -> None:
        if isinstance(node, (Load, Gather)) and not moves:
            signed.add(node.tensor)
        read = node.operand if isinstance(node, Cast) and node.dtype == _UNSIGNED else None
        if isinstance(read, (Load, Gather)):
            unsigned.add(read.tensor)
            for index in children(read):
                visit(index, False)
            return
        if isinstance(node, Select):
            visit(node.condition, False)
            visit(node.on_true, moves)
            visit(node.on_false, moves)
            return
        for child in children(node):
            visit(child, False)

    visit(stage.body, stage.combiner is None)


def _spread(known: Iterable[str], moves: Iterable[tuple[str, str]]) -> set[str]:
    """Tensors that have the same bytes as one that is known, with these."""
    found, count = set(known), -1
    while count != len(found):
        count = len(found)
        for pair in moves:
            if found & set(pair):
                found |= set(pair)
    return found


def _with_unsigned(stage: Stage, made: set[str]) -> Stage:
    """A stage that reads and writes these tensors as unsigned bytes."""

    def read(node: ScalarExpr) -> ScalarExpr | None:
        inner = node.operand if isinstance(node, Cast) and node.dtype == _UNSIGNED else None
        is_made = isinstance(inner, (Load, Gather)) and inner.tensor in made
        return transform(inner, read) if inner is not None and is_made else None

    body = transform(stage.body, read)
    if stage.name not in made:
        return evolve(stage, body=body)
    return evolve(stage, output=evolve(stage.output, dtype=_UNSIGNED), body=_stored(body))


def _stored(body: ScalarExpr) -> ScalarExpr:
    """Reinterpret a signed byte as the unsigned one of the same bits."""
    if isinstance(body, Select):
        return Select(body.condition, _stored(body.on_true), _stored(body.on_false))
    if isinstance(body, Constant) and body.dtype == _SIGNED:
        return Constant(int(body.value) % 256, _UNSIGNED)
    if isinstance(body, Cast) and body.dtype == _SIGNED:
        return Cast(_UNSIGNED, body.operand)
    return body if isinstance(body, (Load, Gather)) else Cast(_UNSIGNED, body)
