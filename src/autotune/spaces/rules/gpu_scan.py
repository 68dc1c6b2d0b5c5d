"""Rule: a scan as a kernel of its own, whose threads continue a sequence each."""

from __future__ import annotations

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import var
from autotune.ir.workloads import Stage
from autotune.sketches import Bind, Order, Ordinal, Step, TileCeil
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.gpu_levels import block_threads, check_gpu, cover_factors
from autotune.spaces.rules.rule import SketchRule

__all__ = ["GpuScanRule"]


class GpuScanRule(SketchRule):
    """Threads over the innermost axis that has a warp's worth of sequences, blocks over the rest.

    Neighbouring threads read and write neighbours where the scan runs along another axis than the
    last; where it runs along the last, they do not.
    """

    name = "gpu-scan"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        axis = stage.scan_axis
        if axis is None:
            return None
        check_gpu(draft.target)
        others = [other for other in stage.axes if other is not axis]
        if all(other.extent == 1 for other in others):
            raise UnsupportedWorkload(
                f"stage {stage.name!r} scans one sequence, along {axis.name!r}: there is nothing "
                "for the threads of a GPU to share"
            )
        wide = [other for other in others if other.extent >= draft.target.warp_size]
        shared = wide[-1] if wide else max(others, key=lambda other: other.extent)
        threads = Ordinal(f"{stage.name}.threads", block_threads(shared.extent, draft.target))
        blocks = tuple(f"{other.name}.0" for other in others)
        steps: list[Step] = [
            TileCeil(stage.name, shared.name, cover_factors(shared.extent, var(threads.name))),
            Order(stage.name, (*blocks, f"{shared.name}.1", f"{axis.name}.0")),
            Bind(stage.name, blocks, "block"),
            Bind(stage.name, (f"{shared.name}.1",), "thread"),
        ]
        return [draft.extended(settled=[stage.name], params=[threads], steps=steps)]
