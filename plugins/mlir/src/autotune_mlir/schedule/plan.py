"""The plan of a candidate: what its steps make of each stage, with numbers for parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping

from attrs import define, field, frozen

from autotune.ir.workloads import Stage, Workload

__all__ = [
    "PackedOperand",
    "Plan",
    "StagePlan",
    "WholeOperand",
    "shared_loops",
]


@frozen
class PackedOperand:
    """An operand that is copied inside a loop.

    Attributes:
        operand: Its name.
        at: The loop.
        lanes: Elements of a vector of the copy.
    """

    operand: str
    at: str
    lanes: int


@frozen
class WholeOperand:
    """An operand that is copied as a whole, before the stage.

    Attributes:
        operand: Its name.
        block: Extent of the blocks that the operand's last dimension is split into; None keeps
            the layout.
        lanes: Elements of a vector of the copy.
    """

    operand: str
    block: int | None
    lanes: int


@define
class StagePlan:
    """The plan of one stage.

    Attributes:
        stage: The stage.
        factors: Extents of the loops of each tiled axis, outermost first.
        padded: Extents of axes that are iterated beyond their own.
        shared: Extents of axes in the loop of another stage that it is computed in.
        covered: Axes of which the last iterations of some loops are incomplete.
        order: All loops, outermost first.
        parallel: Loops that run on all cores.
        unrolled: Loops that are unrolled completely.
        vector: The loop that becomes lanes.
        packed: Operands that are copied inside a loop.
        whole: Operands that are copied as a whole.
        accumulated_at: The loop inside of which the result is kept.
        consumer: The stage that is computed inside ``accumulated_at``, if any.
        inlined: Whether it is computed inside its consumers.
        inside: Consumer and its loop that the stage is computed in.
        partial_lanes: Interleaved partial results of the reduced axis: axis and lanes.
        partial_of: The stage of the workload whose partial results it computes.
    """

    stage: Stage
    factors: dict[str, tuple[int, ...]] = field(factory=dict)
    padded: dict[str, int] = field(factory=dict)
    shared: dict[str, int] = field(factory=dict)
    covered: set[str] = field(factory=set)
    order: tuple[str, ...] = ()
    parallel: tuple[str, ...] = ()
    unrolled: tuple[str, ...] = ()
    vector: str | None = None
    packed: list[PackedOperand] = field(factory=list)
    whole: list[WholeOperand] = field(factory=list)
    accumulated_at: str | None = None
    consumer: str | None = None
    inlined: bool = False
    inside: tuple[str, str] | None = None
    partial_lanes: tuple[str, int] | None = None
    partial_of: str | None = None

    def __attrs_post_init__(self) -> None:
        self.order = tuple(f"{axis.name}.0" for axis in self.stage.axes)

    def split(self, axis: str, factors: tuple[int, ...]) -> None:
        """Split the one loop of an axis into ``AXIS.0``, ``AXIS.1``, ..., outermost first."""
        at = self.order.index(f"{axis}.0")
        names = (f"{axis}.{level}" for level in range(len(factors)))
        self.factors[axis] = factors
        self.order = (*self.order[:at], *names, *self.order[at + 1 :])

    def axis_of(self, loop: str) -> str:
        """The axis that a loop belongs to."""
        return loop.rpartition(".")[0]

    def tile_inside(self, loop: str) -> int:
        """Number of iterations of its axis that an iteration of a loop makes."""
        axis, _, level = loop.rpartition(".")
        factors = self.factors.get(axis, (self.whole_extent(axis),))
        return math.prod(factors[int(level) + 1 :])

    def extent_inside(self, loop: str, axis: str) -> int:
        """Iterations of an axis inside one iteration of a loop."""
        inner = self.order[self.order.index(loop) + 1 :]
        return math.prod(self.extent(other) for other in inner if self.axis_of(other) == axis)

    def extent(self, loop: str) -> int:
        """Iterations of a loop."""
        axis, _, level = loop.rpartition(".")
        return self.factors.get(axis, (self.whole_extent(axis),))[int(level)]

    def whole_extent(self, axis: str) -> int:
        """Iterations of an axis in the loop around the stage, those beyond its end included."""
        return self.padded.get(axis, self.shared.get(axis, self.stage.axis(axis).extent))

    def extent_on_core(self, axis: str) -> int:
        """Iterations of an axis inside the loops that run on all cores."""
        tiles = [self.tile_inside(loop) for loop in self.parallel if self.axis_of(loop) == axis]
        return tiles[-1] if tiles else self.whole_extent(axis)

    @property
    def padded_operands(self) -> set[str]:
        """Operands that depend on a padded axis."""
        return {
            load.tensor
            for load in self.stage.loads
            if any(set(index.variables) & set(self.padded) for index in load.indices)
        }

    @property
    def is_clipped(self) -> bool:
        """True if tiles of the result go beyond its end."""
        return any(axis.name in self.padded for axis in self.stage.spatial_axes)

    def is_reduction(self, loop: str) -> bool:
        """Return whether a loop is of a reduced axis."""
        return self.axis_of(loop) in {axis.name for axis in self.stage.reduce_axes}


@frozen
class Plan:
    """Plans of all stages, by name, in the workload's order, then of partial results."""

    workload: Workload
    stages: Mapping[str, StagePlan]


def shared_loops(plans: Mapping[str, StagePlan], plan: StagePlan) -> dict[str, str]:
    """The loops around a stage that is computed inside of another one, by its own axes.

    The leading axes of both are the same; partial results have those of the stage that was split.

    Returns:
        For each of these axes the innermost loop over it around the stage.
    """
    if plan.inside is None:
        return {}
    consumer, at = plans[plan.inside[0]], plan.inside[1]
    around = consumer.order[: consumer.order.index(at) + 1]
    innermost = {consumer.axis_of(loop): loop for loop in around}
    loops = [innermost[it.name] for it in consumer.stage.spatial_axes if it.name in innermost]
    own = plans[plan.partial_of].stage if plan.partial_of else plan.stage
    return dict(zip((it.name for it in own.spatial_axes), loops, strict=False))
