"""What the steps of a sketch decided about one stage."""

from __future__ import annotations

from attrs import define, field

from autotune.expressions import IntExpr
from autotune.expressions.scalar import ScalarExpr
from autotune.nest.loop_nest import Loop
from autotune.sketches import Accumulate, Pack
from autotune.workloads import Stage


@define(eq=False)
class StageSchedule:
    """What the steps decided about one stage.

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
        accumulate: Where its result is accumulated, unless a consumer is fused.
        lanes: Vector width of a fused producer.
        padded: Axes with padded extents.
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
    accumulate: Accumulate | None = None
    lanes: int = 1
    padded: set[str] = field(factory=set)
