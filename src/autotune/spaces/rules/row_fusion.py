"""Rule: several stages under one shared row loop (softmax and similar).

Sketches differ in three choices: whether what a row needs is computed for one row at a time or
for a block of rows, whether what is expensive is kept in a buffer or computed again for every
use, and in how many partial results a long reduction is split. Vector widths of the other
stages and how far the reductions are unrolled are parameters. Results that no cache holds may
be written while the next row is computed, which may be asked for early.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import evolve, frozen

from autotune.ir.expressions import const
from autotune.ir.workloads import Stage
from autotune.sketches import (
    AtLeast,
    Constraint,
    Order,
    Parallel,
    Param,
    SoftwarePipeline,
    Step,
    Stream,
    Tile,
    Vectorize,
)
from autotune.spaces.rules.access import is_pointwise
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.row_pipelines import (
    pipeline_host,
    prefetch_choice,
    rows_of_a_pipeline,
)
from autotune.spaces.rules.row_producers import (
    PARTIALS,
    partial_lanes,
    producer_steps,
    row_vector_levels,
)
from autotune.spaces.rules.rows import numbers_behind, rows_behind
from autotune.spaces.rules.rule import SketchRule
from autotune.spaces.rules.streams import stream_choice
from autotune.spaces.rules.vector_levels import Levels, split_levels

_ROWS_OF_A_BLOCK = (2, 4, 8, 16, 32)


@frozen
class _Fusion:
    """Choice of structure.

    Attributes:
        blocks: Whether producers are computed for a block of rows, else for one row.
        recompute: Whether pointwise producers are computed again for every use.
        partials: How many partial results a long reduction has: a key of ``PARTIALS``.
        host: Where a row is written while the next one is computed: the stage in whose loops.
    """

    blocks: bool
    recompute: bool
    partials: str
    host: str = ""

    @property
    def label(self) -> str:
        """Name of the sketch."""
        place = "block-fusion" if self.blocks else "row-fusion"
        recompute = "recompute" if self.recompute else ""
        pipelined = "pipelined" if self.host else ""
        return "-".join(part for part in (place, recompute, self.partials, pipelined) if part)


class RowFusionRule(SketchRule):
    """A pointwise stage over reductions along its rows: everything inside one loop over rows.

    Applies when every tensor computed for it is indexed by the same leading axes; what is
    computed for a row then stays in the nearest cache until the row is done. Where another stage
    reads the result (attention), only one structure is tried. So are stages with one result for
    each row, where several reductions read the row.
    """

    name = "row-fusion"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        found = rows_behind(draft, stage) or numbers_behind(draft, stage)
        if found is None or not draft.can("fuse_producer.reduction"):
            return None
        behind, rows = found
        choices = _choices(draft, stage, behind, rows)
        pipelined = _pipelined(draft, stage, behind, rows, choices)
        if pipelined:
            # No more than a dozen structures; reductions of few lanes gain least in memory.
            choices = [it for it in choices if not (it.blocks and it.partials == "narrow")]
        choices += pipelined
        if draft.workload.consumers(stage.name):
            choices = choices[:1]
        return [self._fused(draft, stage, behind, rows, choice) for choice in choices]

    def _fused(
        self, draft: SketchDraft, stage: Stage, behind: list[Stage], rows: int, choice: _Fusion
    ) -> SketchDraft:
        row_axes = stage.axes[:rows]
        last, blocks = row_axes[-1], _row_levels(stage, choice, rows)
        row_loops = (*(f"{axis.name}.0" for axis in row_axes), f"{last.name}.1")
        own, tiles, inner_loops = _inner_levels(draft, stage, rows)
        made, levels = self._producer_steps(draft, stage, behind, rows, choice)
        choices, last_steps = _memory_steps(draft, stage, behind, rows, choice)
        steps: list[Step] = [
            Tile(stage.name, last.name, blocks.factors),
            *tiles,
            Order(stage.name, (*row_loops, *inner_loops)),
            Parallel(stage.name, row_loops[:-1]),
            *made,
            *(Vectorize(stage.name, loop) for loop in inner_loops[-1:]),
            *last_steps,
        ]
        parallel = blocks.factors[0]
        for axis in row_axes[:-1]:
            parallel = parallel * axis.extent
        soft: list[Constraint] = []
        most = math.prod(axis.extent for axis in row_axes)
        if most >= draft.target.cores * (_rows_of_a_block(last.extent)[0] if choice.blocks else 1):
            soft.append(AtLeast(parallel, draft.target.cores, "every core gets work", hard=False))
        levels = [blocks, own, *levels]
        return draft.extended(
            settled=[stage.name, *(producer.name for producer in behind)],
            label=choice.label,
            params=[*(param for level in levels for param in level.params), *choices],
            constraints=[c for level in levels for c in level.constraints] + soft,
            steps=steps,
        )

    def _producer_steps(
        self, draft: SketchDraft, stage: Stage, behind: list[Stage], rows: int, choice: _Fusion
    ) -> tuple[list[Step], list[Levels]]:
        """Steps and factors of everything that is computed inside the loop over rows."""
        loop = f"{stage.axes[rows - 1].name}.{0 if choice.blocks else 1}"
        inlined = [p for p in behind if is_pointwise(p) and choice.recompute]
        return producer_steps(draft, stage, loop, behind, inlined, rows, choice.partials)


def _inner_levels(
    draft: SketchDraft, stage: Stage, rows: int
) -> tuple[Levels, list[Step], tuple[str, ...]]:
    """Levels of the innermost axis, the step that splits it, and the loops inside a row.

    None of each where a row has a single result.
    """
    if rows == len(stage.axes):
        return Levels(), [], ()
    levels, inner = row_vector_levels(draft, stage), stage.axes[-1].name
    loops = (*(f"{axis.name}.0" for axis in stage.axes[rows:]), f"{inner}.1")
    return levels, [levels.tile(stage.name, inner)], loops


def _choices(
    draft: SketchDraft, stage: Stage, behind: Sequence[Stage], rows: int
) -> list[_Fusion]:
    """Every structure that differs from the others for these stages."""
    reductions = [producer for producer in behind if not is_pointwise(producer)]
    several_rows = bool(_rows_of_a_block(stage.axes[rows - 1].extent))
    found: dict[tuple[int, ...], str] = {}
    for partials in sorted(PARTIALS, key=bool):  # The plain one names what is the same.
        lanes = tuple(partial_lanes(draft, reduction, partials) for reduction in reductions)
        found.setdefault(lanes, partials)
    return [
        _Fusion(blocks, recompute, partials)
        for blocks in ((False, True) if several_rows else (False,))
        for recompute in ((False, True) if len(reductions) < len(behind) else (False,))
        for partials in found.values()
    ]


def _pipelined(
    draft: SketchDraft, stage: Stage, behind: list[Stage], rows: int, choices: Sequence[_Fusion]
) -> list[_Fusion]:
    """Structures in which a row is written while the next one is computed.

    For results that may be written past the caches, with reductions in whole vectors.
    """
    _, streams = stream_choice(draft, stage)
    long_enough = rows_of_a_pipeline(stage.axes[rows - 1].extent)
    if not (streams and long_enough and draft.can("software_pipeline")):
        return []
    found = []
    for choice in choices:
        if choice.blocks or choice.recompute or choice.partials == "narrow":
            continue
        host = pipeline_host(stage, behind, rows, _lanes(draft, behind, choice))
        if host is not None:
            found.append(evolve(choice, host=host))
    return found


def _memory_steps(
    draft: SketchDraft, stage: Stage, behind: list[Stage], rows: int, choice: _Fusion
) -> tuple[list[Param], list[Step]]:
    """Steps that write results which no cache holds, and that ask early for what is read."""
    params, steps = stream_choice(draft, stage)
    is_one = rows == len(stage.axes)
    from_afar = steps or (is_one and _exceeds_a_core(draft))
    if not from_afar or choice.blocks or choice.recompute:
        return params, steps
    loop = f"{stage.axes[rows - 1].name}.1"
    passes = behind if choice.host else [*behind, stage]
    lanes, axes = _lanes(draft, behind, choice), len(stage.axes) + is_one
    more, prefetches = prefetch_choice(draft, stage, passes, lanes, loop, axes)
    if not choice.host:
        return [*params, *more], [*steps, *prefetches]
    always = Stream(stage.name, const(1))
    return more, [always, *prefetches, SoftwarePipeline(stage.name, loop, choice.host)]


def _exceeds_a_core(draft: SketchDraft) -> bool:
    """Return whether an input is larger than the caches that a core has for itself."""
    own = [cache.size_bytes for cache in draft.target.caches if not cache.shared]
    sizes = (tensor.elements * tensor.element.bytes for tensor in draft.workload.inputs)
    return bool(own) and max(sizes) > max(own)


def _lanes(draft: SketchDraft, behind: Sequence[Stage], choice: _Fusion) -> dict[str, int]:
    """Partial results of each stage."""
    return {producer.name: partial_lanes(draft, producer, choice.partials) for producer in behind}


def _rows_of_a_block(extent: int) -> tuple[int, ...]:
    return tuple(rows for rows in _ROWS_OF_A_BLOCK if extent % rows == 0)


def _row_levels(stage: Stage, choice: _Fusion, rows: int) -> Levels:
    """The last row axis: a parallel loop, and the rows that one iteration of it computes."""
    axis = stage.axes[rows - 1]
    domain = _rows_of_a_block(axis.extent) if choice.blocks else None
    if choice.host:
        domain = rows_of_a_pipeline(axis.extent)
    return split_levels(f"{stage.name}.{axis.name}", axis.extent, domain)
