"""A step that stands for others, and one that does something new."""

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
class Innermost(OpenStep):
    """Splits ``axis`` in two, and runs the second part inside all other loops."""

    name = "innermost"
    stage: str
    axis: str
    factors: tuple[IntExpr, IntExpr]

    def derive(self, schedules: Mapping[str, Any]) -> None:
        """The nest's loops: the inner one is the last."""
        schedule = schedules[self.stage]
        schedule.split(self.axis, self.factors)
        schedule.order.sort(key=f"{self.axis}.1".__eq__)
