"""Rule: several stages under one shared row loop (softmax and its kin)."""

from __future__ import annotations

import math

from autotune.expressions import const, var
from autotune.sketches import (
    AtLeast,
    Factor,
    FuseProducer,
    Order,
    Parallel,
    Param,
    ProductEquals,
    SplitReduction,
    Step,
    Tile,
    Vectorize,
    lane_axis,
    partial_name,
)
from autotune.spaces.rules.access import (
    depends_on,
    is_pointwise,
    largest_divisor,
    producer_stage,
)
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.rule import SketchRule
from autotune.workloads import Stage


class RowFusionRule(SketchRule):
    """A pointwise output over reductions along its rows: everything inside one loop over rows.

    Applies when every computed tensor behind the output is indexed by the same leading axes;
    what is computed for a row then stays in the nearest cache until the row is done.
    """

    name = "row-fusion"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        if not is_pointwise(stage) or draft.workload.consumers(stage.name):
            return None
        behind = self._producers(draft, stage)
        reductions = [producer for producer in behind if not is_pointwise(producer)]
        if not reductions or not all(_without_reuse(reduction) for reduction in reductions):
            return None
        rows = self._shared_rows(draft, [stage, *behind])
        if rows == 0 or len(stage.spatial_axes) <= rows:
            return None
        return [self._fused(draft, stage, behind, rows)]

    def _producers(self, draft: SketchDraft, stage: Stage) -> list[Stage]:
        """Unsettled stages that ``stage`` depends on, in topological order."""
        wanted = {stage.name}
        found: list[Stage] = []
        for candidate in reversed(draft.workload.stages):
            users = draft.workload.consumers(candidate.name)
            if candidate.name in draft.settled or candidate.name == stage.name:
                continue
            if any(user.name in wanted for user in users):
                wanted.add(candidate.name)
                found.insert(0, candidate)
        return found

    def _shared_rows(self, draft: SketchDraft, stages: list[Stage]) -> int:
        """Number of leading spatial axes by which all stages read each other in step."""
        shared = min(len(stage.spatial_axes) for stage in stages)
        names = {stage.name for stage in stages}
        for stage in stages:
            own = [axis.name for axis in stage.spatial_axes]
            for load in stage.loads:
                if load.tensor not in names:
                    continue
                producer = producer_stage(draft.workload, load.tensor)
                if producer is None or load.tensor in draft.workload.outputs:
                    return 0
                for position, form in enumerate(stage.access_map(load)[:shared]):
                    in_step = form.coefficients == {own[position]: 1} and form.constant == 0
                    same = producer.spatial_axes[position].extent == stage.extents[own[position]]
                    if not in_step or not same:
                        shared = position
                        break
        return shared

    def _fused(
        self, draft: SketchDraft, stage: Stage, behind: list[Stage], rows: int
    ) -> SketchDraft:
        row_axes, rest = stage.axes[:rows], stage.axes[rows:]
        last, inner = row_axes[-1], rest[-1]
        lanes = draft.target.lanes(stage.output.dtype)
        outer_param, row_param = f"{stage.name}.{last.name}.0", f"{stage.name}.{last.name}.1"
        width = largest_divisor(inner.extent, lanes)
        row_loops = (*(f"{axis.name}.0" for axis in row_axes), f"{last.name}.1")
        inner_loops = (*(f"{axis.name}.0" for axis in rest), f"{inner.name}.1")
        params: list[Param] = [Factor(outer_param), Factor(row_param)]
        steps: list[Step] = [
            Tile(stage.name, last.name, (var(outer_param), var(row_param))),
            Tile(stage.name, inner.name, (const(inner.extent // width), const(width))),
            Order(stage.name, (*row_loops, *inner_loops)),
            Parallel(stage.name, row_loops[:-1]),
        ]
        for producer in reversed(behind):
            steps.extend(self._producer_steps(draft, stage, producer, row_loops[-1], rows))
        if width > 1:
            steps.append(Vectorize(stage.name, f"{inner.name}.1"))
        parallel = var(outer_param)
        for axis in row_axes[:-1]:
            parallel = parallel * axis.extent
        soft = []
        if math.prod(axis.extent for axis in row_axes) >= draft.target.cores:
            soft.append(AtLeast(parallel, draft.target.cores, "every core gets work", hard=False))
        return draft.extended(
            settled=[stage.name, *(producer.name for producer in behind)],
            label="row-fusion",
            params=params,
            constraints=[ProductEquals((outer_param, row_param), const(last.extent)), *soft],
            steps=steps,
        )

    def _producer_steps(
        self, draft: SketchDraft, stage: Stage, producer: Stage, loop: str, rows: int
    ) -> list[Step]:
        """Fusion of one producer; a long reduction goes through vector lanes first."""
        fused = FuseProducer(producer.name, stage.name, loop, self._lanes(draft, producer, rows))
        if is_pointwise(producer):
            return [fused]
        axis = producer.reduce_axes[-1]
        lanes = draft.target.lanes(producer.output.dtype)
        if axis.extent % lanes or axis.extent < 2 * lanes:
            return [fused]
        partial, lane = partial_name(producer.name), f"{lane_axis(axis.name)}.0"
        loops = tuple(f"{other.name}.0" for other in producer.axes)
        return [
            SplitReduction(producer.name, axis.name, lanes),
            fused,
            FuseProducer(partial, stage.name, loop, 1),
            Order(partial, (*loops, lane)),
            Vectorize(partial, lane),
        ]

    def _lanes(self, draft: SketchDraft, producer: Stage, rows: int) -> int:
        """Vector width for a fused producer: whole vectors of a pointwise innermost axis."""
        if not is_pointwise(producer) or len(producer.spatial_axes) <= rows:
            return 1
        lanes = draft.target.lanes(producer.output.dtype)
        return largest_divisor(producer.spatial_axes[-1].extent, lanes)


def _without_reuse(stage: Stage) -> bool:
    """Whether every operand moves along every spatial axis: tiling would gain nothing."""
    return all(
        depends_on(stage.access_map(load), axis.name)
        for load in stage.loads
        for axis in stage.spatial_axes
        if axis.extent > 1
    )
