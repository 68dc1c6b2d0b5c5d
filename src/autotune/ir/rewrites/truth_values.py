"""Reductions of truth values (``any``, ``all``) as those of numbers, with a comparison after.

As bytes they are the largest or the smallest of the numbers 0 and 1: what reduces numbers in parts
and in vectors reduces them, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from attrs import frozen

from autotune.ir.expressions import Binary, Cast, Constant, Load, ScalarExpr, var
from autotune.ir.workloads.tensor import Tensor
from autotune.ir.workloads.workload import Axis, Stage

__all__ = ["LOGICAL", "Logical", "reduced_as_numbers"]

_BYTE = "int8"


@frozen
class Logical:
    """An operation on truth values.

    Attributes:
        neutral: The truth value that changes nothing.
        combiner: What combines numbers in its place.
    """

    neutral: bool
    combiner: str


LOGICAL: Mapping[str, Logical] = MappingProxyType(
    {"or": Logical(False, "max"), "and": Logical(True, "min")}
)
"""Operations that reduce truth values."""


def reduced_as_numbers(
    output: Tensor, axes: Sequence[Axis], operation: str, element: ScalarExpr, name: str
) -> tuple[Stage, Stage]:
    """The stage that reduces bytes, and the one that compares them.

    Args:
        output: The truth values.
        axes: Of the reduction.
        operation: One of :data:`LOGICAL`.
        element: What it combines.
        name: Of the bytes.
    """
    numbers = Tensor(name, output.shape, _BYTE)
    reduced = Stage(numbers, tuple(axes), Cast(_BYTE, element), LOGICAL[operation].combiner)
    spatial = tuple(axis for axis in axes if axis.kind != "reduce")
    found = Load(name, tuple(var(axis.name) for axis in spatial))
    return reduced, Stage(output, spatial, Binary("gt", found, Constant(0, _BYTE)))
