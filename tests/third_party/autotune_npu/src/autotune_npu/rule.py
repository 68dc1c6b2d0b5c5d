"""What the steps of this distribution are used for."""

from __future__ import annotations

from autotune.ir.expressions import const, var
from autotune.ir.workloads import Stage
from autotune.sketches import Factor, ProductEquals
from autotune.spaces.rules import SketchDraft, SketchRule
from autotune_npu.steps import Reverse, Strip


class NpuRule(SketchRule):
    """Reverses the loops of every output, and then cuts its first axis into strips."""

    name = "npu"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        """One sketch."""
        axis = stage.axes[0]
        strips, rows = f"{axis.name}.strips", f"{axis.name}.rows"
        return [
            draft.extended(
                settled=[stage.name],
                label=self.name,
                params=[Factor(name) for name in (strips, rows)],
                constraints=[ProductEquals((strips, rows), const(axis.extent))],
                steps=[
                    Reverse(stage.name),
                    Strip(stage.name, axis.name, (var(strips), var(rows))),
                ],
            )
        ]
