"""A measurer that builds and runs nothing."""

from __future__ import annotations

from toy_parts import InProcessMeasurer

from autotune.measure import MeasurerContext


class ScriptedMeasurer(InProcessMeasurer):
    """Gives every candidate the latency that the reference backend computes for it."""

    def __init__(self, context: MeasurerContext) -> None:
        super().__init__(context.workload)
