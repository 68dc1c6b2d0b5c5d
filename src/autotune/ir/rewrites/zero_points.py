"""int8 products with zero points, as products of the numbers as they are stored.

The sum of ``(a - y) * (b - z)`` over ``n`` terms is that of ``a * b``, less ``z`` times the sum of
``a`` and ``y`` times the sum of ``b``, plus ``n * y * z``. In the arithmetic of integers, which
wraps around, both are the same; the first one is what processors have instructions for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from attrs import evolve, frozen

from autotune.ir.expressions import Binary, Cast, Constant, IntExpr, Load, ScalarExpr, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

__all__ = ["split_zero_points"]

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
