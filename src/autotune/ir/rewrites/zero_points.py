"""int8 products with zero points, as products of the numbers as they are stored.

The sum of ``(a - y) * (b - z)`` over ``n`` terms is that of ``a * b``, less ``z`` times the sum of
``a`` and ``y`` times the sum of ``b``, plus ``n * y * z``. In the arithmetic of integers, which
wraps around, both are the same; the first one is what processors have instructions for.

Bytes that a program takes for unsigned numbers, as tensors of such.

Some languages have integers without a sign, which only what widens them gives a meaning: such a
program is read as one of ``int8`` that are cast to ``uint8`` before they are used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from attrs import evolve, frozen

from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    transform,
    var,
)
from autotune.ir.expressions.scalar import children
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

__all__ = ["infer_unsigned", "split_zero_points"]

_BYTES = ("int8", "uint8")
_SUM = "int32"


@frozen
class _Factor:
    """A byte from which a zero point may be subtracted.

    Attributes:
        byte: The byte.
        zero: The zero point: an element of a tensor of rank 0, or a constant; None where there is
            none.
        axes: The axes that it is read along.
    """

    byte: Load
    zero: ScalarExpr | None
    axes: frozenset[str]

    @property
    def wide(self) -> ScalarExpr:
        """The byte as a number that products are summed in."""
        return Cast(_SUM, self.byte)


def split_zero_points(workload: Workload) -> Workload:
    """Write sums of such products as those of the bytes, sums of bytes, and what combines them.

    ``sum((a - y) * (b - z))`` becomes ``sum(a * b) - sum(a) * z - sum(b) * y + n * y * z``, each
    sum a stage of its own; other stages are left as they are.
    """
    tensors = workload.tensors
    taken = set(tensors)
    stages: list[Stage] = []
    for stage in workload.stages:
        factors = _factors(stage, tensors)
        if factors is None or not any(it.zero for it in factors):
            stages.append(stage)
        else:
            stages += _split(stage, factors, taken)
    return evolve(workload, stages=tuple(stages))


def _factors(stage: Stage, tensors: Mapping[str, Tensor]) -> tuple[_Factor, _Factor] | None:
    """The two factors of what is summed; None where it is no such sum."""
    body = stage.body
    if stage.combiner != "add" or not stage.reduce_axes or stage.output.dtype != _SUM:
        return None
    if not isinstance(body, Binary) or body.op != "mul":
        return None
    left, right = _factor(body.left, tensors), _factor(body.right, tensors)
    if left is None or right is None or left.byte == right.byte:
        return None
    reduced = {axis.name for axis in stage.reduce_axes}
    spatial = {axis.name for axis in stage.spatial_axes}
    everywhere = reduced <= left.axes & right.axes and spatial <= left.axes | right.axes
    return (left, right) if everywhere else None


def _factor(body: ScalarExpr, tensors: Mapping[str, Tensor]) -> _Factor | None:
    zero: ScalarExpr | None = None
    if isinstance(body, Binary) and body.op == "sub":
        zero, body = body.right, body.left
        is_element = isinstance(zero, Load) and not zero.indices
        if not (is_element or isinstance(zero, Constant)):
            return None
    if not isinstance(body, Cast) or body.dtype != _SUM or not isinstance(body.operand, Load):
        return None
    if tensors[body.operand.tensor].dtype not in _BYTES:
        return None
    indices = body.operand.indices
    axes = frozenset[str]().union(*(index.variables for index in indices))
    return _Factor(body.operand, zero, axes)


def _split(stage: Stage, factors: tuple[_Factor, _Factor], taken: set[str]) -> Iterable[Stage]:
    """The stages in the place of one."""
    left, right = factors
    output = evolve(stage.output, name=_unique(f"{stage.name}_product", taken))
    made = [evolve(stage, output=output, body=Binary("mul", left.wide, right.wide))]
    total: ScalarExpr = Load(output.name, _places(stage.spatial_axes))
    for own, other, side in ((left, right, "left"), (right, left, "right")):
        if other.zero is not None:
            sums = _sums(stage, own, _unique(f"{stage.name}_{side}_sums", taken))
            made.append(sums)
            shifted = Binary("mul", Load(sums.name, _places(sums.spatial_axes)), other.zero)
            total = Binary("sub", total, shifted)
    if left.zero is not None and right.zero is not None:
        terms = Constant(math.prod(axis.extent for axis in stage.reduce_axes), _SUM)
        total = Binary("add", total, Binary("mul", Binary("mul", left.zero, right.zero), terms))
    return [*made, Stage(stage.output, stage.spatial_axes, total)]


def _sums(stage: Stage, factor: _Factor, name: str) -> Stage:
    """The sums of a factor, with those axes of the result that it is read along."""
    kept = [axis for axis in stage.spatial_axes if axis.name in factor.axes]
    output = Tensor(name, tuple(axis.extent for axis in kept), _SUM)
    return Stage(output, (*kept, *stage.reduce_axes), factor.wide, "add")


def _places(axes: Iterable[Axis]) -> tuple[IntExpr, ...]:
    return tuple(var(axis.name) for axis in axes)


def _unique(stem: str, taken: set[str]) -> str:
    name, count = stem, 1
    while name in taken:
        name, count = f"{stem}_{count}", count + 1
    taken.add(name)
    return name


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
