"""A measurer that builds and runs nothing."""

from __future__ import annotations

from autotune.plugins import Context
from autotune.testing.toy_parts import InProcessMeasurer


class ScriptedMeasurer(InProcessMeasurer):
    """Gives every candidate the latency that the reference backend computes for it."""

    def __init__(self, context: Context) -> None:
        super().__init__(context.workload)
