"""One step that stands for others, and one that does something new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from autotune.ir.expressions import IntExpr
from autotune.sketches import OpenStep, Parallel, Tile
from autotune.sketches.steps import Step


@frozen
class Strip(OpenStep):
    """Splits ``axis`` into strips that run in parallel."""

    name = "strip"
    stage: str
    axis: str
    factors: tuple[IntExpr, ...]

    def expanded(self) -> tuple[Step, ...]:
        """A tile and a parallel loop."""
        return (
            Tile(self.stage, self.axis, self.factors),
            Parallel(self.stage, (f"{self.axis}.0",)),
        )


@frozen
class Reverse(OpenStep):
    """Runs the loops of ``stage`` in reverse order."""

    name = "reverse"
    backends = frozenset({"tvm"})
    stage: str

    def derive(self, schedules: Mapping[str, Any]) -> None:
        """The order of the nest's loops."""
        schedules[self.stage].order.reverse()

    def replay(self, backend: str, state: Any) -> None:
        """TVM's own reordering."""
        loops = state.sch.get_loops(state.blocks[self.stage])
        state.sch.reorder(*reversed(loops))
