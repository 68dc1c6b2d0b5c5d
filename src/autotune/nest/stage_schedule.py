"""The schedule of one stage, from the steps of a sketch."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, evolve, field

from autotune.ir.expressions import IntExpr, const
from autotune.ir.expressions.scalar import ScalarExpr
from autotune.ir.workloads import Stage
from autotune.nest.loop_nest import EarlyRead, Loop
from autotune.sketches import (
    Accumulate,
    BulkCopy,
    CooperativeFetch,
    CoreMatrices,
    Interleave,
    Pack,
    SharedLayout,
)


@define(eq=False)
class StageSchedule:
    """The schedule of one stage.

    Attributes:
        stage: The stage.
        body: Its body, with inlined producers substituted.
        extents: Extent of each axis, padding included.
        loops: Loops by name; fused loops share one object.
        order: Names of the loops, outermost first.
        inlined: Whether consumers compute it.
        attached: Stage and loop inside which it is computed.
        fused_after: Whether it is attached as a consumer (else as a producer).
        write_factors: Split of the innermost axis of its write-back.
        packs: Operands packed for it.
        interleaved: How packed copies are laid out in groups, by operand.
        prepacked: Operands whose packed copies are made before the program runs.
        accumulate: Where its result is accumulated, unless a consumer is fused.
        lanes: Vector width of a fused producer.
        padded: Axes with padded extents.
        fetches: Operands that the threads of a block fetch together.
        layouts: How fetched copies are laid out where that is not as they are indexed, by operand.
        fetch_stages: How many iterations of a loop have what they fetch in memory at once.
        covered: Axes whose loops may pass their extent.
        unroll_limit: Statements that the compiler may make by unrolling.
        intrinsic: The instruction that its innermost loops are calls of.
        in_fragments: Whether the threads of a warp share it, each with a part of the result.
        pipelined: The loop of which it is one iteration late, and the stage in whose loops it is.
        streams: 1 where its result is written past the caches.
        early: What it asks for early.
    """

    stage: Stage
    body: ScalarExpr
    extents: dict[str, IntExpr]
    loops: dict[str, Loop]
    order: list[str]
    inlined: bool = False
    attached: tuple[str, str] | None = None
    fused_after: bool = False
    write_factors: tuple[IntExpr, ...] = ()
    packs: list[Pack] = field(factory=list)
    interleaved: dict[str, Interleave] = field(factory=dict)
    prepacked: set[str] = field(factory=set)
    accumulate: Accumulate | None = None
    lanes: int = 1
    padded: set[str] = field(factory=set)
    fetches: list[CooperativeFetch] = field(factory=list)
    layouts: dict[str, SharedLayout | CoreMatrices | BulkCopy] = field(factory=dict)
    fetch_stages: dict[str, IntExpr] = field(factory=dict)
    covered: set[str] = field(factory=set)
    unroll_limit: IntExpr = const(0)
    intrinsic: str = ""
    in_fragments: bool = False
    pipelined: tuple[str, str] | None = None
    streams: IntExpr = const(0)
    early: tuple[EarlyRead, ...] = ()

    @property
    def copied(self) -> set[str]:
        """Tensors of which the stage reads a copy."""
        return {pack.operand for pack in self.packs} | {step.operand for step in self.fetches}

    @property
    def ordered_loops(self) -> list[Loop]:
        """The stage's own loops, outermost first; fused loops once."""
        loops: list[Loop] = []
        for name in self.order:
            loop = self.loops[name]
            if not any(loop is known for known in loops):
                loops.append(loop)
        return loops

    @property
    def guards(self) -> dict[str, IntExpr]:
        """Covered axes with their extents: iterations beyond these are skipped."""
        return {axis: self.extents[axis] for axis in sorted(self.covered)}

    @property
    def padding(self) -> dict[str, IntExpr]:
        """Padded axes with their own extents: results beyond these are dropped.

        A producer inside another's loop is not padded: its extents are those of what is needed.
        """
        if self.attached is not None and not self.fused_after:
            return {}
        return {
            axis.name: const(axis.extent)
            for axis in self.stage.spatial_axes
            if self.extents[axis.name].value != axis.extent
        }

    def split(self, axis: str, factors: Sequence[IntExpr]) -> None:
        """Split the one loop of an axis into ``AXIS.0``, ``AXIS.1``, ..., outermost first."""
        del self.loops[f"{axis}.0"]
        position = self.order.index(f"{axis}.0")
        names = [f"{axis}.{level}" for level in range(len(factors))]
        for name, factor in zip(names, factors, strict=True):
            self.loops[name] = Loop(f"{self.stage.name}.{name}", factor, ((axis, factor),))
        self.order[position : position + 1] = names

    def arrange(self, order: Sequence[str]) -> None:
        """Put the loops into an order; an axis may have an inner level outside an outer one."""
        self.order = list(order)
        for axis in self.stage.axes:
            names, unit = self._levels(axis.name), const(1)
            for name in sorted(names, key=_level, reverse=True):
                loop = self.loops[name]
                inside = names[names.index(name) + 1 :]
                deeper = [other for other in names if _level(other) > _level(name)]
                if set(inside) != set(deeper):
                    self.loops[name] = evolve(loop, units=(unit,))
                unit = unit * loop.extent

    def levels_inside(self, axis: str, path: tuple[Loop, ...]) -> list[tuple[str, Loop]]:
        """Names and loops of the levels of an axis that are inside the loops of ``path``."""
        outside = {loop.name for loop in path}
        return [
            (name, self.loops[name])
            for name in sorted(self._levels(axis), key=_level)
            if self.loops[name].name not in outside
        ]

    def _levels(self, axis: str) -> list[str]:
        return [name for name in self.order if name.rpartition(".")[0] == axis]

    def reach_inside(self, path: tuple[Loop, ...]) -> dict[str, IntExpr]:
        """Distance that each axis of the stage moves inside the loops of ``path``."""
        reach = {axis.name: const(1) for axis in self.stage.axes}
        outside: set[str] = set()
        for loop in self.ordered_loops:
            if any(loop is outer for outer in path):
                outside.update(name for name, _ in loop.parts)
                continue
            for name, extent in loop.parts:
                reach[name] = reach[name] * extent
        # The factors of an axis multiply to its extent: say so where all of them are inside.
        return {
            name: value if name in outside else self.extents[name] for name, value in reach.items()
        }


def _level(name: str) -> int:
    return int(name.rpartition(".")[2])
