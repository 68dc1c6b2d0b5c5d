"""Distance between workloads: by structure first, by shape then."""

from __future__ import annotations

import math
import re
from operator import ne
from typing import Any

from attrs import frozen

from autotune.ir.expressions import operation_counts
from autotune.ir.workloads.workload import Stage, Workload

__all__ = ["WorkloadForm", "structure_of", "without_numbers"]

# A number, but for the digits of a name.
_NUMBER = re.compile(r"(?<![\w.])-?\d+(\.\d+)?(e[+-]?\d+)?(?!\w)")


def without_numbers(text: str) -> str:
    """A text with ``#`` for every number in it; digits of names, as in ``float32``, stay."""
    return _NUMBER.sub("#", text)


def structure_of(workload: Workload) -> str:
    """A text that is equal for workloads which differ in names and numbers only.

    The numbers are extents, strides that are not 1, offsets and the constants of bodies. "" where
    nothing is described of a workload.
    """
    if not workload.stages:
        return ""
    canonical = workload.canonical
    return without_numbers(repr((canonical.inputs, canonical.stages, canonical.outputs)))


@frozen
class WorkloadForm:
    """Form of a workload that distances are computed from.

    Attributes:
        digest: The workload's digest.
        outline: Of every stage the kinds of its axes, combiner, element type, what it reads and
            its operations: what has to be the same where a schedule of one is to fit another.
        bodies: The body of every stage without numbers.
        extents: The extents of every stage.
    """

    digest: str
    outline: tuple[Any, ...]
    bodies: tuple[str, ...]
    extents: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(workload: Workload) -> WorkloadForm:
        """The form of a workload."""
        stages = workload.canonical.stages
        return WorkloadForm(
            workload.digest,
            tuple(map(_outline, stages)),
            tuple(without_numbers(repr(stage.body)) for stage in stages),
            tuple(tuple(axis.extent for axis in stage.axes) for stage in stages),
        )

    def distance(self, other: WorkloadForm) -> float | None:
        """Distance between two workloads; 0.0 for equal ones.

        The mean over stages of the sum over axes of ``|ln(extent / extent)|``, and 1 for each
        stage whose body differs in more than numbers: as much as an axis that is e times as long.

        Returns:
            The distance; None where the outlines differ, or nothing is described of both.
        """
        if self.digest == other.digest:
            return 0.0
        if self.outline != other.outline or not self.outline:
            return None
        total = float(sum(map(ne, self.bodies, other.bodies)))
        for own, others in zip(self.extents, other.extents, strict=True):
            total += sum(abs(math.log(a) - math.log(b)) for a, b in zip(own, others, strict=True))
        return total / len(self.bodies)


def _outline(stage: Stage) -> tuple[Any, ...]:
    kinds = tuple(axis.kind for axis in stage.axes)
    operations = tuple(sorted(operation_counts(stage.body).items()))
    return kinds, stage.combiner, stage.output.dtype, stage.reads, operations
