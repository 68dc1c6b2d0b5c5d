"""Rule: several stages under one shared row loop (softmax and its kin).

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
    FuseProducer,
    Inline,
    Order,
    Parallel,
    Param,
    SoftwarePipeline,
    SplitReduction,
    Step,
    Stream,
    Tile,
    Unroll,
    Vectorize,
    lane_axis,
    partial_name,
)
from autotune.spaces.rules.access import (
    is_pointwise,
)
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.row_pipelines import (
    pipeline_host,
    prefetch_choice,
    rows_of_a_pipeline,
)
from autotune.spaces.rules.rows import rows_behind
from autotune.spaces.rules.rule import SketchRule
from autotune.spaces.rules.streams import stream_choice
from autotune.spaces.rules.vector_levels import Levels, split_levels, vector_levels

# Partial results of a long reduction, in quarters of a vector. A function that the compiler calls
# element by element (an exponential) runs faster between narrow vectors, which it need not spill;
# several whole vectors keep a core busy where one chain of dependent additions does not.
_PARTIALS = {"narrow": 1, "": 4, "wide": 16}
_WIDTHS = (1, 2, 4, 8)
_UNROLLED = (1, 4)
_ROWS_OF_A_BLOCK = (2, 4, 8, 16, 32)
# Narrower vectors than this gain nothing over a chain of numbers.
_NARROWEST = 4


@frozen
class _Fusion:
    """One choice of structure.

    Attributes:
        blocks: Whether producers are computed for a block of rows, else for one row.
        recompute: Whether pointwise producers are computed again for every use.
        partials: How many partial results a long reduction has: a key of ``_PARTIALS``.
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
    reads the result (attention), only one structure is tried.
    """

    name = "row-fusion"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        found = rows_behind(draft, stage)
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
        row_axes, rest = stage.axes[:rows], stage.axes[rows:]
        last, inner = row_axes[-1], rest[-1]
        blocks, own = _row_levels(stage, choice, rows), _vector_levels(draft, stage)
        row_loops = (*(f"{axis.name}.0" for axis in row_axes), f"{last.name}.1")
        inner_loops = (*(f"{axis.name}.0" for axis in rest), f"{inner.name}.1")
        made, levels = self._producer_steps(draft, stage, behind, rows, choice)
        choices, last_steps = _memory_steps(draft, stage, behind, rows, choice)
        steps: list[Step] = [
            Tile(stage.name, last.name, blocks.factors),
            own.tile(stage.name, inner.name),
            Order(stage.name, (*row_loops, *inner_loops)),
            Parallel(stage.name, row_loops[:-1]),
            *made,
            Vectorize(stage.name, f"{inner.name}.1"),
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
        lanes = _lanes(draft, behind, choice)
        recomputed = [p for p in behind if is_pointwise(p) and choice.recompute]
        # What is inlined goes into the partial results, so these have to be there before.
        steps: list[Step] = [
            *(
                SplitReduction(producer.name, producer.reduce_axes[-1].name, lanes[producer.name])
                for producer in reversed(behind)
                if lanes[producer.name] > 1
            ),
            *(Inline(producer.name) for producer in reversed(recomputed)),
        ]
        levels: list[Levels] = []
        for producer in reversed(behind):
            if producer in recomputed:
                continue
            if lanes[producer.name] > 1:
                found, made = _split(stage, producer, loop, lanes[producer.name])
            elif is_pointwise(producer) and len(producer.spatial_axes) > rows:
                found, made = _pointwise(draft, stage, producer, loop)
            else:
                found, made = Levels(), [FuseProducer(producer.name, stage.name, loop, 1)]
            levels.append(found)
            steps.extend(made)
        return steps, levels


def _choices(
    draft: SketchDraft, stage: Stage, behind: Sequence[Stage], rows: int
) -> list[_Fusion]:
    """Every structure that differs from the others for these stages."""
    reductions = [producer for producer in behind if not is_pointwise(producer)]
    several_rows = bool(_rows_of_a_block(stage.axes[rows - 1].extent))
    found: dict[tuple[int, ...], str] = {}
    for partials in sorted(_PARTIALS, key=bool):  # The plain one names what is the same.
        lanes = tuple(_partial_lanes(draft, reduction, partials) for reduction in reductions)
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
    """How results that no cache holds are written, and whether what is read is asked for early."""
    params, steps = stream_choice(draft, stage)
    if not steps or choice.blocks or choice.recompute:
        return params, steps
    loop = f"{stage.axes[rows - 1].name}.1"
    passes = behind if choice.host else [*behind, stage]
    more, prefetches = prefetch_choice(draft, stage, passes, _lanes(draft, behind, choice), loop)
    if not choice.host:
        return [*params, *more], [*steps, *prefetches]
    always = Stream(stage.name, const(1))
    return more, [always, *prefetches, SoftwarePipeline(stage.name, loop, choice.host)]


def _lanes(draft: SketchDraft, behind: Sequence[Stage], choice: _Fusion) -> dict[str, int]:
    """Partial results of each stage."""
    return {producer.name: _partial_lanes(draft, producer, choice.partials) for producer in behind}


def _rows_of_a_block(extent: int) -> tuple[int, ...]:
    return tuple(rows for rows in _ROWS_OF_A_BLOCK if extent % rows == 0)


def _row_levels(stage: Stage, choice: _Fusion, rows: int) -> Levels:
    """The last row axis: a parallel loop, and the rows that one iteration of it computes."""
    axis = stage.axes[rows - 1]
    domain = _rows_of_a_block(axis.extent) if choice.blocks else None
    if choice.host:
        domain = rows_of_a_pipeline(axis.extent)
    return split_levels(f"{stage.name}.{axis.name}", axis.extent, domain)


def _vector_levels(draft: SketchDraft, stage: Stage) -> Levels:
    """The innermost axis of a pointwise stage: a loop over vectors of a searched width."""
    lanes = draft.target.lanes(stage.output.dtype)
    widths = (quarters * lanes // 4 for quarters in _WIDTHS)
    enough = tuple(width for width in widths if width >= min(lanes, _NARROWEST))
    return vector_levels(draft, stage, enough)


def _partial_lanes(draft: SketchDraft, producer: Stage, partials: str) -> int:
    """Partial results of a reduction: as many as asked for, or the next fewer that divide it.

    As many as asked for also where that makes fewer rounds, and the backend can do with a last
    round that is not whole. 1 where the axis is too short to be split.
    """
    if is_pointwise(producer) or not draft.can("split_reduction"):
        return 1
    lanes = draft.target.lanes(producer.output.dtype)
    extent, least = producer.reduce_axes[-1].extent, min(lanes, _NARROWEST)
    wanted = max(_PARTIALS[partials] * lanes // 4, least)
    uneven = draft.can("split_reduction.uneven")
    widths = (1 << power for power in reversed(range(wanted.bit_length())))
    known = [width for width in widths if width >= max(least, 2) and extent >= 2 * width]
    even = [width for width in known if extent % width == 0]
    if uneven and known and (not even or -(-extent // known[0]) < extent // even[0]):
        return known[0]
    return even[0] if even else 1


def _split(stage: Stage, producer: Stage, loop: str, lanes: int) -> tuple[Levels, list[Step]]:
    """A long reduction in vectors of partial results, some iterations of which are unrolled."""
    axis = producer.reduce_axes[-1]
    partial, lane = partial_name(producer.name), f"{lane_axis(axis.name)}.0"
    rounds = -(-axis.extent // lanes)
    domain = tuple(count for count in _UNROLLED if rounds % count == 0)
    levels = split_levels(f"{producer.name}.{axis.name}", rounds, domain)
    outer = [f"{other.name}.0" for other in producer.axes]
    inner = f"{axis.name}.1"
    return levels, [
        FuseProducer(producer.name, stage.name, loop, 1),
        FuseProducer(partial, stage.name, loop, 1),
        Tile(partial, axis.name, levels.factors),
        Order(partial, (*outer, inner, lane)),
        Unroll(partial, (inner,)),
        Vectorize(partial, lane),
    ]


def _pointwise(
    draft: SketchDraft, stage: Stage, producer: Stage, loop: str
) -> tuple[Levels, list[Step]]:
    """A pointwise stage that is kept in a buffer, in vectors along its innermost axis."""
    levels = _vector_levels(draft, producer)
    inner = producer.axes[-1].name
    return levels, [
        FuseProducer(producer.name, stage.name, loop, 1),
        levels.tile(producer.name, inner),
        Vectorize(producer.name, f"{inner}.1"),
    ]
