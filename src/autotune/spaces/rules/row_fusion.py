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

from autotune.ir.expressions import IntExpr, const, var
from autotune.ir.workloads import Axis, Stage
from autotune.sketches import (
    AtMost,
    Bind,
    FuseProducer,
    Inline,
    Order,
    Ordinal,
    Parallel,
    Param,
    Prefetch,
    SoftwarePipeline,
    SplitReduction,
    Step,
    Stream,
    Unroll,
    UnrollLimit,
    Vectorize,
    lane_axis,
    partial_name,
)
from autotune.spaces.rules.access import is_expensive, is_pointwise, numbers_behind, rows_behind
from autotune.spaces.rules.draft import SketchDraft, Split, loops, split
from autotune.spaces.rules.gpu_levels import (
    UNROLL_LIMITS,
    block_threads,
    check_gpu,
    divisors,
    vector_widths,
)
from autotune.spaces.rules.rule import SketchRule
from autotune.spaces.rules.tile_params import cover, split_in_two, stream_choice, vectors_of

_ROWS_OF_A_BLOCK = (2, 4, 8, 16, 32)
# The last row of an iteration of the parallel loop is written on its own.
_FEWEST_ROWS = 16


@frozen
class _Choice:
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


# Compilers put partial results of reductions across threads into shared memory as well.
_SPARE_SHARED_BYTES = 512

_ROWS_IN_BLOCK = (1, 2, 4, 8)
# By the draft model, longer rows gain at most 2 %: a row of 64 threads fills a multiprocessor.
_SHORT_ROW = 512

GPU_ROW_LABELS = ("row-fusion-kept", "row-fusion-recomputed")


class RowFusionRule(SketchRule):
    """A pointwise stage over reductions along its rows: everything inside one loop over rows.

    Applies when every tensor computed for it is indexed by the same leading axes; what is
    computed for a row then stays in the nearest cache until the row is done. Where another stage
    reads the result (attention), only one structure is tried. So are stages with one result for
    each row, where several reductions read the row. On a GPU the rows are those of blocks.
    """

    name = "row-fusion"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        found = rows_behind(draft, stage)
        if draft.on_gpu:
            if found is None or draft.workload.consumers(stage.name):
                return None
            return _Fusion(draft, stage, *found).in_blocks()
        found = found or numbers_behind(draft, stage)
        if found is None or not draft.can("fuse_producer"):
            return None
        fusion = _Fusion(draft, stage, *found)
        choices = fusion.choices()
        pipelined = fusion.pipelined(choices)
        if pipelined:
            # No more than a dozen structures; reductions of few lanes gain least in memory.
            choices = [it for it in choices if not (it.blocks and it.partials == "narrow")]
        choices += pipelined
        if draft.workload.consumers(stage.name):
            choices = choices[:1]
        return [fusion.made(choice) for choice in choices]


@frozen
class _Fusion:
    """A stage with all that is computed for it row by row.

    Attributes:
        draft: The sketch so far.
        stage: What writes the rows.
        behind: What is computed for it, in the order in which it is.
        rows: Number of row axes.
    """

    draft: SketchDraft
    stage: Stage
    behind: list[Stage]
    rows: int

    @property
    def row(self) -> Axis:
        """The last row axis."""
        return self.stage.axes[self.rows - 1]

    def choices(self) -> list[_Choice]:
        """Every structure that differs from the others for these stages."""
        reductions = [producer for producer in self.behind if not is_pointwise(producer)]
        several_rows = bool(_rows_of_a_block(self.row.extent))
        found: dict[tuple[int, ...], str] = {}
        for partials in sorted(PARTIALS, key=bool):  # The plain one names what is the same.
            lanes = tuple(partial_lanes(self.draft, it, partials) for it in reductions)
            found.setdefault(lanes, partials)
        return [
            _Choice(blocks, recompute, partials)
            for blocks in ((False, True) if several_rows else (False,))
            for recompute in ((False, True) if len(reductions) < len(self.behind) else (False,))
            for partials in found.values()
        ]

    def pipelined(self, choices: Sequence[_Choice]) -> list[_Choice]:
        """Structures in which a row is written while the next one is computed.

        For results that may be written past the caches, with reductions in whole vectors.
        """
        _, streams = stream_choice(self.draft, self.stage)
        long_enough = _rows_of_a_pipeline(self.row.extent)
        if not (streams and long_enough and self.draft.can("software_pipeline")):
            return []
        fitting = (
            it for it in choices if not (it.blocks or it.recompute or it.partials == "narrow")
        )
        hosts = ((it, self._host(it)) for it in fitting)
        return [evolve(it, host=host) for it, host in hosts if host is not None]

    def made(self, choice: _Choice) -> SketchDraft:
        """The draft with all of these stages in one loop over rows."""
        stage, row_axes, inner = (
            self.stage,
            self.stage.axes[: self.rows],
            self.stage.axes[self.rows :],
        )
        blocks = self._row_split(choice)
        row_loops = (*loops(row_axes), f"{self.row.name}.1")
        # A row of a single result has no loops of its own.
        own = [row_vectors(self.draft, stage)] if inner else []
        inner_loops = (*loops(inner), f"{inner[-1].name}.1") if inner else ()
        first = self.draft.extended(
            settled=[stage.name, *(producer.name for producer in self.behind)],
            label=choice.label,
            splits=[blocks, *own],
            steps=[
                Order(stage.name, (*row_loops, *inner_loops)),
                Parallel(stage.name, row_loops[:-1]),
            ],
        )
        loop = row_loops[-2 if choice.blocks else -1]
        inlined = [it for it in self.behind if is_pointwise(it) and choice.recompute]
        made = with_producers(first, stage, loop, self.behind, inlined, self.rows, choice.partials)
        choices, last_steps = self._memory_steps(choice)
        most = math.prod(axis.extent for axis in row_axes)
        least = _rows_of_a_block(self.row.extent)[0] if choice.blocks else 1
        parallel = blocks.factors[0] * math.prod(axis.extent for axis in row_axes[:-1])
        return made.extended(
            params=choices,
            constraints=self.draft.shared(parallel, most // least),
            steps=[*(Vectorize(stage.name, loop) for loop in inner_loops[-1:]), *last_steps],
        )

    def _row_split(self, choice: _Choice) -> Split:
        """The last row axis: a parallel loop, and rows that one iteration of it computes."""
        domain = _rows_of_a_block(self.row.extent) if choice.blocks else None
        if choice.host:
            domain = _rows_of_a_pipeline(self.row.extent)
        return split_in_two(self.stage.name, self.row, domain)

    def _lanes(self, producer: Stage, choice: _Choice) -> int:
        """Partial results of a stage."""
        return partial_lanes(self.draft, producer, choice.partials)

    def _host(self, choice: _Choice) -> str | None:
        """The stage along a row in whose loops the row before can be written: the first one.

        None where that overwrites what is still to be written.
        """
        for producer in self.behind:
            if self._lanes(producer, choice) > 1:
                return partial_name(producer.name)
            if producer.name in self.stage.reads:
                return None
            if not is_pointwise(producer) or len(producer.spatial_axes) > self.rows:
                return producer.name
        return None

    def _memory_steps(self, choice: _Choice) -> tuple[list[Param], list[Step]]:
        """Steps that write results which no cache holds, and that ask early for what is read."""
        params, steps = stream_choice(self.draft, self.stage)
        is_one = self.rows == len(self.stage.axes)
        from_afar = steps or (is_one and _exceeds_a_core(self.draft))
        if not from_afar or choice.blocks or choice.recompute:
            return params, steps
        more, prefetches = self._prefetch(choice)
        if not choice.host:
            return [*params, *more], [*steps, *prefetches]
        name = self.stage.name
        pipeline = SoftwarePipeline(name, f"{self.row.name}.1", choice.host)
        return more, [Stream(name, const(1)), *prefetches, pipeline]

    def _prefetch(self, choice: _Choice) -> tuple[list[Param], list[Step]]:
        """A parameter and its step, or nothing: whether the next row is asked for.

        The second stage along a row that reads an input asks for it: the first one waits for
        memory itself.
        """
        if not self.draft.can("prefetch"):
            return [], []
        passes = self.behind if choice.host else [*self.behind, self.stage]
        axes = max(self.rows + 1, len(self.stage.axes))
        for tensor in self.draft.workload.inputs:
            readers = [it for it in passes if _reads_a_row(it, tensor.name, axes)]
            if len(readers) > 1:
                second, name = readers[1], f"{self.stage.name}.prefetch"
                whole = is_pointwise(second)
                if whole or self._lanes(second, choice) > 1:
                    reader = second.name if whole else partial_name(second.name)
                    loop = f"{self.row.name}.1"
                    step = Prefetch(reader, tensor.name, self.stage.name, loop, var(name))
                    return [Ordinal(name, (0, 1))], [step]
        return [], []

    def in_blocks(self) -> list[SketchDraft] | None:
        """A block for one row or, where rows are short, several; threads share each stage's part.

        Reductions are made across the threads of a row. What is computed for a row stays in shared
        memory; where that is dear to compute, another sketch computes it again for every reader.
        """
        reductions = [other for other in self.behind if not is_pointwise(other)]
        if any(len(other.spatial_axes) > self.rows for other in reductions):
            return None
        check_gpu(self.draft.target)
        # A value for the whole row is computed by each reader.
        inlined = [s for s in self.behind if is_pointwise(s) and len(s.axes) == self.rows]
        long = [s for s in self.behind if is_pointwise(s) and s not in inlined]
        result = []
        if self._row_bytes([*reductions, *long]) <= self._shared_bytes:
            result.append(self._in_block(inlined, GPU_ROW_LABELS[0]))
        if not result or any(is_expensive(other) for other in long):
            result.append(self._in_block(inlined + long, GPU_ROW_LABELS[1]))
        return result

    @property
    def _shared_bytes(self) -> int:
        return self.draft.target.shared_memory_bytes - _SPARE_SHARED_BYTES

    def _row_bytes(self, kept: Sequence[Stage]) -> int:
        """Bytes of what is kept for a row."""
        outputs = (other.output for other in kept)
        return sum(math.prod(it.shape[self.rows :]) * it.element.bytes for it in outputs)

    def _in_block(self, inlined: list[Stage], label: str) -> SketchDraft:
        draft, stage, rows = self.draft, self.stage, self.rows
        fused = [other for other in self.behind if other not in inlined]
        axes = (axis for other in (stage, *self.behind) for axis in other.axes[rows:])
        longest = max(axis.extent for axis in axes)
        threads = Ordinal(f"{stage.name}.threads", block_threads(longest, draft.target))
        unroll = Ordinal(f"{stage.name}.unroll", UNROLL_LIMITS)
        row_loops = loops(stage.axes[:rows])
        # Blocks, and the rows of one; none where a block has one row.
        several = [] if longest > _SHORT_ROW else self._rows_in_block(fused)
        made = draft.extended(
            settled=[stage.name, *(other.name for other in self.behind)],
            label=label,
            params=[threads],
            steps=[Inline(other.name) for other in reversed(inlined)],
        ).extended(splits=several, steps=[Bind(stage.name, row_loops, "block")])
        count = var(threads.name)
        made = _spread(made, stage, rows, count, f"{self.row.name}.1" if several else "")
        for producer in reversed(fused):
            place = f"{producer.spatial_axes[rows - 1].name}.0" if several else ""
            fuse = FuseProducer(producer.name, stage.name, row_loops[-1], 1)
            made = _spread(made.extended(steps=[fuse]), producer, rows, count, place)
        source = f"target {draft.target.name}: threads of a block"
        most = draft.target.max_threads_per_block
        return made.extended(
            params=[unroll],
            constraints=[AtMost(it.factors[1] * count, most, source) for it in several],
            steps=[UnrollLimit(stage.name, var(unroll.name))],
        )

    def _rows_in_block(self, fused: list[Stage]) -> list[Split]:
        """The last row axis in blocks and the rows of one; empty where there is no choice."""
        most = self._shared_bytes // max(self._row_bytes(fused), 1)
        choices = tuple(n for n in _ROWS_IN_BLOCK if self.row.extent % n == 0 and n <= most)
        return [split(self.stage.name, self.row, None, choices)] if len(choices) > 1 else []


def _exceeds_a_core(draft: SketchDraft) -> bool:
    """Return whether an input is larger than the caches that a core has for itself."""
    own = [cache.size_bytes for cache in draft.target.caches if not cache.shared]
    sizes = (tensor.elements * tensor.element.bytes for tensor in draft.workload.inputs)
    return bool(own) and max(sizes) > max(own)


def _rows_of_a_block(extent: int) -> tuple[int, ...]:
    return tuple(rows for rows in _ROWS_OF_A_BLOCK if extent % rows == 0)


def _rows_of_a_pipeline(extent: int) -> tuple[int, ...]:
    """Number of rows that may follow one another; none where there are too few."""
    return tuple(rows for rows in divisors(extent) if rows >= _FEWEST_ROWS)


def _reads_a_row(reader: Stage, tensor: str, axes: int) -> bool:
    """Tell if a stage of so many axes reads all of a tensor, one row for each of its rows."""
    return len(reader.axes) == axes and any(
        load.tensor == tensor
        and {axis for form in reader.forms(load) for axis in form.axes}
        == {axis.name for axis in reader.axes}
        for load in reader.loads
    )


def _spread(
    draft: SketchDraft, stage: Stage, rows: int, threads: IntExpr, place: str
) -> SketchDraft:
    """Spread a stage's part of a row over the threads: in vectors, or as a reduction across them.

    ``place`` is the loop over the rows of a block, which have threads of their own; empty where
    a block has one row.
    """
    name, axis = stage.name, stage.axes[-1]
    apart = [Bind(name, (place,), "thread_y")] if place else []
    if not is_pointwise(stage):
        axis = stage.reduce_axes[-1]
        return draft.extended(
            splits=[cover(name, axis, threads)],
            steps=[*apart, Bind(name, (f"{axis.name}.1",), "thread")],
        )
    widths = vector_widths(axis.extent, stage.output.dtype, draft.target)
    lanes = Ordinal(f"{name}.lanes", widths) if len(widths) > 1 else const(1)
    outer = [*loops(stage.axes)]
    if place and place not in outer:
        outer.insert(rows, place)
    return draft.extended(
        splits=[cover(name, axis, threads, lanes)],
        steps=[
            Order(name, (*outer, f"{axis.name}.1", f"{axis.name}.2")),
            *apart,
            Bind(name, (f"{axis.name}.1",), "thread"),
            Vectorize(name, f"{axis.name}.2"),
        ],
    )


PARTIALS = {"narrow": 1, "": 4, "wide": 16}
"""Partial results of a long reduction, in quarters of a vector.

A function that the compiler calls element by element (an exponential) runs faster between narrow
vectors, which it need not spill; several whole vectors keep a core busy where one chain of
dependent additions does not.
"""
_WIDTHS = (1, 2, 4, 8)
_UNROLLED = (1, 4)
# Narrower vectors than this gain nothing over a chain of numbers.
_NARROWEST = 4


def with_producers(
    draft: SketchDraft,
    consumer: Stage,
    loop: str,
    producers: Sequence[Stage],
    inlined: Sequence[Stage],
    rows: int,
    partials: str,
) -> SketchDraft:
    """The draft with everything that is computed inside ``loop`` of ``consumer``.

    Args:
        draft: The sketch so far.
        consumer: The stage with the loop.
        loop: The loop, over rows or over blocks of rows.
        producers: What is computed there, in topological order.
        inlined: Those of them that are computed again for every use.
        rows: Number of axes that all of them share with the consumer, the leading ones.
        partials: How many partial results a long reduction has: a key of :data:`PARTIALS`.
    """
    lanes = {producer.name: partial_lanes(draft, producer, partials) for producer in producers}
    # What is inlined goes into the partial results, so these have to be there before.
    made = draft.extended(
        steps=[
            *(
                SplitReduction(producer.name, producer.reduce_axes[-1].name, lanes[producer.name])
                for producer in reversed(producers)
                if lanes[producer.name] > 1
            ),
            *(Inline(producer.name) for producer in reversed(producers) if producer in inlined),
        ]
    )
    for producer in reversed(producers):
        if producer in inlined:
            continue
        if lanes[producer.name] > 1:
            made = _with_partials(made, consumer, producer, loop, lanes[producer.name])
        elif is_pointwise(producer) and len(producer.spatial_axes) > rows:
            made = with_kept(made, consumer, producer, loop)
        else:
            made = made.extended(steps=[FuseProducer(producer.name, consumer.name, loop, 1)])
    return made


def with_kept(draft: SketchDraft, consumer: Stage, producer: Stage, loop: str) -> SketchDraft:
    """The draft with a pointwise stage in a buffer, in vectors along its innermost axis."""
    return draft.extended(
        steps=[FuseProducer(producer.name, consumer.name, loop, 1)],
    ).extended(
        splits=[row_vectors(draft, producer)],
        steps=[Vectorize(producer.name, f"{producer.axes[-1].name}.1")],
    )


def row_vectors(draft: SketchDraft, stage: Stage) -> Split:
    """The innermost axis of a pointwise stage: a loop over vectors of a searched width."""
    lanes = draft.target.lanes(stage.output.dtype)
    widths = (quarters * lanes // 4 for quarters in _WIDTHS)
    enough = tuple(width for width in widths if width >= min(lanes, _NARROWEST))
    return vectors_of(draft, stage, enough)


def partial_lanes(draft: SketchDraft, producer: Stage, partials: str) -> int:
    """Partial results of a reduction: as many as asked for, or the next fewer that divide it.

    As many as asked for also where that makes fewer rounds, the last of which is then not whole.
    1 where the axis is too short to be split.
    """
    if is_pointwise(producer) or not draft.can("split_reduction"):
        return 1
    lanes = draft.target.lanes(producer.output.dtype)
    extent, least = producer.reduce_axes[-1].extent, min(lanes, _NARROWEST)
    wanted = max(PARTIALS[partials] * lanes // 4, least)
    widths = (1 << power for power in reversed(range(wanted.bit_length())))
    known = [width for width in widths if width >= max(least, 2) and extent >= 2 * width]
    even = [width for width in known if extent % width == 0]
    if known and (not even or -(-extent // known[0]) < extent // even[0]):
        return known[0]
    return even[0] if even else 1


def _with_partials(
    draft: SketchDraft, consumer: Stage, producer: Stage, loop: str, lanes: int
) -> SketchDraft:
    """A long reduction in vectors of partial results, some iterations of which are unrolled."""
    axis = producer.reduce_axes[-1]
    partial, lane = partial_name(producer.name), f"{lane_axis(axis.name)}.0"
    rounds = evolve(axis, extent=-(-axis.extent // lanes))
    domain = tuple(count for count in _UNROLLED if rounds.extent % count == 0)
    inner = f"{axis.name}.1"
    return draft.extended(
        steps=[FuseProducer(name, consumer.name, loop, 1) for name in (producer.name, partial)]
    ).extended(
        splits=[split_in_two(partial, rounds, domain, f"{producer.name}.{axis.name}")],
        steps=[
            Order(partial, (*loops(producer.axes), inner, lane)),
            Unroll(partial, (inner,)),
            Vectorize(partial, lane),
        ],
    )
