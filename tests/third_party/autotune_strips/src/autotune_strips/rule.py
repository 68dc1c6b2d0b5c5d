from autotune.ir.expressions import const, var
from autotune.sketches import Factor, Parallel, ProductEquals, Tile
from autotune.spaces.rules import SketchRule


class StripsRule(SketchRule):
    """Splits the outermost axis of every output into strips, which run in parallel."""

    name = "strips"

    def apply(self, draft, stage):
        if stage.name not in draft.workload.outputs:
            return None
        axis = stage.axes[0]
        strips, rows = (f"{stage.name}.{axis.name}.{part}" for part in ("strips", "rows"))
        return [
            draft.extended(
                settled=[stage.name],
                label=self.name,
                params=[Factor(name) for name in (strips, rows)],
                constraints=[ProductEquals((strips, rows), const(axis.extent))],
                steps=[
                    Tile(stage.name, axis.name, (var(strips), var(rows))),
                    Parallel(stage.name, (f"{axis.name}.0",)),
                ],
            )
        ]
