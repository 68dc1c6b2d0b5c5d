"""Rule: a reduction without reuse in partial results, for vector lanes and for cores.

Such a reduction is bound by memory: tiling gains nothing, but it has to read with all cores and in
whole vectors. Where operands are contiguous along a reduce axis, lanes are partial results along
that axis; where they are contiguous along the innermost spatial axis, lanes are results. Where
there are fewer results than cores need, consecutive parts of a reduce axis are reduced in parallel
first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from attrs import frozen

from autotune.ir.workloads import Axis, Stage, Workload
from autotune.ir.workloads.composing import computed_where_read
from autotune.sketches import (
    Accumulate,
    ChunkReduction,
    FuseProducer,
    Inline,
    Order,
    Parallel,
    SplitReduction,
    Step,
    Unroll,
    Vectorize,
    added_axis,
    partial_name,
    split_reduction,
)
from autotune.spaces.rules.access import (
    dimension_of,
    is_affine,
    is_pointwise,
    is_without_reuse,
    largest_divisor,
    own_producer,
)
from autotune.spaces.rules.draft import SketchDraft, loops, split
from autotune.spaces.rules.elementwise import root_copy_steps
from autotune.spaces.rules.multi_level_tiling import MultiLevelTilingRule
from autotune.spaces.rules.rule import SketchRule
from autotune.spaces.rules.tile_params import split_in_two

_NEEDED = ("split_reduction", "fuse_producer")
# Partial results in vectors: several keep a core busy where one chain of additions does not.
_VECTORS = {"": 1, "wide": 4}
_UNROLLED = (1, 2, 4, 8)
# Parallel iterations for each core: one, or several where cores are not equally fast.
_SHARES = {"chunks": 1, "small-chunks": 4}
# Vectors of results for each core above which results alone are enough to share.
_ENOUGH_VECTORS = 16
# Elements above which it pays to start all cores.
_WORTH_PARALLEL = 1 << 16


@frozen
class _Source:
    """A reduction with the point-wise stages that it alone reads in their places.

    Attributes:
        stage: The reduction.
        inlined: Names of these stages.
    """

    stage: Stage
    inlined: tuple[str, ...]

    @property
    def inlining(self) -> list[Step]:
        """The steps that put them there."""
        return [Inline(name) for name in self.inlined]


class SplitReductionRule(SketchRule):
    """Partial results across cores, across vector lanes, or both, for reductions without reuse.

    Chunks divide the axis. So do lanes where that makes no more rounds.
    """

    name = "split-reduction"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        if draft.on_gpu or is_pointwise(stage) or not draft.can(*_NEEDED):
            return None
        source = _source(draft, stage)
        if not _reads_plainly(source.stage) or not is_without_reuse(source.stage):
            return None if stage.spatial_axes else [_serial(draft, source)]
        for axis in reversed(stage.reduce_axes):
            if _is_contiguous(source.stage, axis):
                found = list(_across_lanes(draft, source, axis))
                if found and not _is_only_reduction(draft, stage):
                    return [_default(found)]
                return found or (None if stage.spatial_axes else [_serial(draft, source)])
        if stage.spatial_axes and _is_contiguous(source.stage, stage.spatial_axes[-1]):
            return self._of_columns(draft, source, stage)
        return None if stage.spatial_axes else [_serial(draft, source)]

    def _of_columns(
        self, draft: SketchDraft, source: _Source, stage: Stage
    ) -> list[SketchDraft] | None:
        """Ordinary tilings, and some that share the reduce axes where results are few."""
        lanes = draft.target.lanes(stage.output.dtype)
        if _results(stage) // lanes >= _ENOUGH_VECTORS * draft.target.cores:
            return None
        if not (_is_only_reduction(draft, stage) and draft.can("accumulate")):
            return None
        found = list(_across_results(draft, source))
        if not found:
            return None
        return [*(MultiLevelTilingRule().apply(draft, stage) or []), *found]


def _is_only_reduction(draft: SketchDraft, stage: Stage) -> bool:
    """Return whether no other stage has sketches for several structures, which would multiply."""
    return all(other.name == stage.name or is_pointwise(other) for other in draft.workload.stages)


def _default(found: list[SketchDraft]) -> SketchDraft:
    """The one to take where only one can be tried: shared by cores once, in many lanes."""
    ranked = ["split-reduction-chunks-wide", "split-reduction-chunks", "split-reduction-wide"]
    by_label = {draft.labels[-1]: draft for draft in found}
    return next((by_label[label] for label in ranked if label in by_label), found[0])


def _results(stage: Stage) -> int:
    return math.prod(axis.extent for axis in stage.spatial_axes)


def _source(draft: SketchDraft, stage: Stage) -> _Source:
    """The reduction as it reads when what it alone reads point-wise is computed inside it."""
    workload, inlined = draft.workload, []
    for name in stage.reads if draft.can("inline") else ():
        producer = own_producer(workload, name)
        if producer is None or any(gather.tensor == name for gather in stage.gathers):
            continue
        if not stage.spatial_axes and not _reads_plainly(producer):
            # No other rule takes a single number, and this one divides what has plain indices:
            # the others are computed before.
            continue
        inlined.append(name)
    return _Source(computed_where_read(workload, inlined).stage(stage.name), tuple(inlined))


def _reads_plainly(stage: Stage) -> bool:
    """Return whether no index is computed from data, and none has a quotient or a remainder."""
    return not stage.gathers and all(is_affine(stage.forms(load)) for load in stage.loads)


def _is_contiguous(stage: Stage, axis: Axis) -> bool:
    """Return whether all that depends on the axis has its neighbours side by side in memory."""
    forms = [stage.forms(load) for load in stage.loads]
    moving = [form for form in forms if any(axis.name in index.axes for index in form)]
    return bool(moving) and all(dimension_of(form, axis.name) == len(form) - 1 for form in moving)


def _across_lanes(draft: SketchDraft, source: _Source, axis: Axis) -> Iterator[SketchDraft]:
    """Make a sketch for each number of chunks and lanes; ``axis`` is the one that has lanes."""
    stage = source.stage
    for label, chunk in _chunkings(draft, stage, axis):
        length, seen = axis.extent, set[int]()
        if chunk is not None and chunk.axis == axis.name:
            length //= chunk.chunks
        for width, vectors in _VECTORS.items():
            vector = draft.target.lanes(stage.output.dtype)
            lanes = _lanes(length, vector, vectors)
            if chunk is None:
                lanes = _with_last_round(length, lanes, vector, vectors)
            if lanes in seen or (lanes == 1 and chunk is None):
                continue
            seen.add(lanes)
            name = "-".join(part for part in ("split-reduction", label, width) if part)
            yield _with_lanes(draft, source, chunk, axis, lanes, name)


def _serial(draft: SketchDraft, source: _Source) -> SketchDraft:
    """A reduction to a single number that nothing divides stays as it is, on one core."""
    settled = {source.stage.name, *source.inlined}
    consumer = draft.epilogues.get(source.stage.name)
    steps = [] if consumer is None else root_copy_steps(draft.workload.stage(consumer), 1)
    return draft.extended(settled=settled, label="serial", steps=[*source.inlining, *steps])


def _lanes(extent: int, vector: int, vectors: int) -> int:
    """Lanes that divide an axis into at least two rounds; 1 where there are none.

    At most so many vectors, and whole ones if possible, else whole halves, quarters and so on.
    """
    unit = vector
    while unit > 1:
        for lanes in range(vectors * vector // unit * unit, 0, -unit):
            if extent % lanes == 0 and extent >= 2 * lanes:
                return lanes
        unit //= 2
    return 1


def _with_last_round(extent: int, even: int, vector: int, vectors: int) -> int:
    """Whole vectors of lanes that need not divide an axis, where that makes fewer rounds."""
    lanes = min(vectors, extent // (2 * vector)) * vector
    return lanes if lanes > 0 and -(-extent // lanes) < extent // even else even


def _chunkings(
    draft: SketchDraft, stage: Stage, lane_axis: Axis | None
) -> Iterator[tuple[str, ChunkReduction | None]]:
    """Chunks to try, with the part of a sketch's name that says so; none at all is the first."""
    yield "", None
    cores = draft.target.cores
    points = _results(stage)
    if lane_axis is None:
        # Lanes are results: what cores can share are vectors of them.
        points = max(1, points // draft.target.lanes(stage.output.dtype))
    if cores == 1 or points >= _ENOUGH_VECTORS * cores or not draft.can("chunk_reduction"):
        return
    found: set[ChunkReduction] = set()
    for label, share in _SHARES.items():
        chunk = _chunks(stage, math.ceil(share * cores / points), draft, lane_axis)
        if chunk is not None and chunk not in found:
            found.add(chunk)
            yield label, chunk


def _chunks(
    stage: Stage, wanted: int, draft: SketchDraft, lane_axis: Axis | None
) -> ChunkReduction | None:
    """The split into the number of chunks nearest to ``wanted``, of the outermost such axis."""
    lanes = draft.target.lanes(stage.output.dtype)
    found: list[tuple[int, int, int, ChunkReduction]] = []
    for position, axis in enumerate(stage.reduce_axes):
        for count in range(2, min(4 * wanted, axis.extent // 2) + 1):
            if axis.extent % count:
                continue
            own = lane_axis is not None and axis.name == lane_axis.name
            broken = own and _lanes(axis.extent // count, lanes, 1) < _lanes(axis.extent, lanes, 1)
            distance = count - wanted if count >= wanted else 4 * (wanted - count)
            step = ChunkReduction(stage.name, axis.name, count)
            found.append((broken, distance, position, step))
    return min(found, key=lambda item: item[:3])[3] if found else None


def _with_lanes(
    draft: SketchDraft,
    source: _Source,
    chunk: ChunkReduction | None,
    axis: Axis,
    lanes: int,
    label: str,
) -> SketchDraft:
    """The sketch with these chunks and lanes."""
    stage, workload = source.stage, draft.workload
    steps: list[Step] = []
    reduction = stage.name
    if chunk is not None:
        workload = split_reduction(workload, chunk)
        reduction = partial_name(reduction)
        steps.append(chunk)
    lane = SplitReduction(reduction, axis.name, lanes)
    if lanes > 1:
        workload = split_reduction(workload, lane)
        steps.append(lane)
    steps.extend(source.inlining)
    root, settled = workload.stage(reduction), {stage.name, *source.inlined}
    consumer = draft.epilogues.get(stage.name)
    if chunk is None and consumer is not None:
        root = workload.stage(consumer)
    steps.extend(_root_steps(root, draft.target.cores))
    fused = [reduction] if root.name == consumer else []
    if lanes > 1:
        fused.append(partial_name(reduction))
    if root.spatial_axes:
        at = f"{root.spatial_axes[-1].name}.0"
        steps.extend(FuseProducer(producer, root.name, at, 1) for producer in fused)
    made = draft.extended(settled=settled, label=label, steps=steps)
    if lanes > 1:
        partial = workload.stage(partial_name(reduction))
        own, name = partial.axis(axis.name), f"{stage.name}.{axis.name}"
        domain = tuple(count for count in _UNROLLED if own.extent % count == 0)
        made = made.extended(
            splits=[split(partial.name, own, None, domain, name=name)],
            steps=_lane_steps(partial, own, added_axis(lane)),
        )
    if chunk is not None:
        made = made.extended(steps=_combining(workload, stage.name, consumer, draft))
    return made


def _root_steps(root: Stage, cores: int) -> list[Step]:
    """Results in parallel, what is reduced inside."""
    spatial = loops(root.spatial_axes)
    order = (*spatial, *loops(root.reduce_axes))
    steps: list[Step] = [Order(root.name, order)] if len(order) > 1 else []
    if _results(root) > 1 and cores > 1:
        steps.append(Parallel(root.name, spatial))
    return steps


def _lane_steps(partial: Stage, axis: Axis, lane: str) -> list[Step]:
    """Partial results: rounds over the axis, some unrolled, and the lanes innermost."""
    others = [other for other in partial.axes if other.name not in (lane, axis.name)]
    inner = f"{axis.name}.1"
    return [
        Order(partial.name, (*loops(others), f"{axis.name}.0", inner, f"{lane}.0")),
        Unroll(partial.name, (inner,)),
        Vectorize(partial.name, f"{lane}.0"),
    ]


def _combining(
    workload: Workload, name: str, consumer: str | None, draft: SketchDraft
) -> list[Step]:
    """The combination of what chunks result in, and the point-wise stage that follows."""
    final = workload.stage(name)
    lanes = draft.target.lanes(final.output.dtype)
    steps: list[Step] = []
    if final.spatial_axes:
        *outer, inner = final.spatial_axes
        width = largest_divisor(inner.extent, lanes)
        chunk = final.reduce_axes[0].name
        rows = loops([*outer, inner])
        steps += [
            split_in_two(name, inner, (width,)).step,
            Order(name, (*rows, f"{chunk}.0", f"{inner.name}.1")),
        ]
        if final.points > _WORTH_PARALLEL:
            steps.append(Parallel(name, rows))
        if width > 1:
            steps.append(Vectorize(name, f"{inner.name}.1"))
    if consumer is not None:
        steps += root_copy_steps(workload.stage(consumer), lanes)
    return steps


def _across_results(draft: SketchDraft, source: _Source) -> Iterator[SketchDraft]:
    """Make a sketch for each number of chunks, with the innermost results as lanes."""
    stage = source.stage
    inner = stage.spatial_axes[-1]
    width = largest_divisor(inner.extent, draft.target.lanes(stage.output.dtype))
    for label, chunk in _chunkings(draft, stage, None):
        if chunk is None:
            continue
        workload = split_reduction(draft.workload, chunk)
        partial = workload.stage(partial_name(stage.name))
        vectors = split(
            partial.name, inner, None, None, (width,), name=f"{stage.name}.{inner.name}"
        )
        spatial, inside = loops(partial.spatial_axes), vectors.factors[1]
        at, round_, vector = (f"{inner.name}.{level}" for level in range(3))
        yield draft.extended(steps=[chunk, *source.inlining]).extended(
            settled={stage.name, *source.inlined},
            label=f"split-columns-{label}",
            splits=[vectors],
            constraints=draft.bounded(inside, inside * width * stage.output.element.bytes),
            steps=[
                Order(partial.name, (*spatial, *loops(partial.reduce_axes), round_, vector)),
                Parallel(partial.name, spatial),
                Accumulate(partial.name, at, vectors.factors[1:]),
                Vectorize(partial.name, vector),
                Unroll(partial.name, (round_,)),
                *_combining(workload, stage.name, draft.epilogues.get(stage.name), draft),
            ],
        )
