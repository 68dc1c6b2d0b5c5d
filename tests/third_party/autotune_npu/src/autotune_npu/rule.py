"""Rule that uses the steps of this distribution."""

from __future__ import annotations

from autotune.ir.expressions import const, var
from autotune.ir.workloads import Stage
from autotune.sketches import Factor, ProductEquals
from autotune.spaces.rules import SketchDraft, SketchRule
from autotune_npu.steps import Innermost, Strip


class NpuRule(SketchRule):
    """Runs a part of the second axis innermost, and cuts the first one into strips."""

    name = "npu"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        """Make a single sketch."""
        first, second = stage.axes[:2]
        pairs = [(axis, (f"{axis.name}.outer", f"{axis.name}.inner")) for axis in (first, second)]
        values = {axis.name: (var(outer), var(inner)) for axis, (outer, inner) in pairs}
        return [
            draft.extended(
                settled=[stage.name],
                label=self.name,
                params=[Factor(name) for _, names in pairs for name in names],
                constraints=[ProductEquals(names, const(axis.extent)) for axis, names in pairs],
                steps=[
                    Innermost(stage.name, second.name, values[second.name]),
                    Strip(stage.name, first.name, values[first.name]),
                ],
            )
        ]
