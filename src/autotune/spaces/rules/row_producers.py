"""Steps of stages that are computed for a row, or for a block of rows, inside another's loops."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.ir.workloads import Stage
from autotune.sketches import (
    FuseProducer,
    Inline,
    Order,
    SplitReduction,
    Step,
    Tile,
    Unroll,
    Vectorize,
    lane_axis,
    partial_name,
)
from autotune.spaces.rules.access import is_pointwise
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.vector_levels import Levels, split_levels, vector_levels

__all__ = ["PARTIALS", "kept_steps", "partial_lanes", "producer_steps", "row_vector_levels"]

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


def producer_steps(
    draft: SketchDraft,
    consumer: Stage,
    loop: str,
    producers: Sequence[Stage],
    inlined: Sequence[Stage],
    rows: int,
    partials: str,
) -> tuple[list[Step], list[Levels]]:
    """Steps and factors of everything that is computed inside ``loop`` of ``consumer``.

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
    steps: list[Step] = [
        *(
            SplitReduction(producer.name, producer.reduce_axes[-1].name, lanes[producer.name])
            for producer in reversed(producers)
            if lanes[producer.name] > 1
        ),
        *(Inline(producer.name) for producer in reversed(producers) if producer in inlined),
    ]
    levels: list[Levels] = []
    for producer in reversed(producers):
        if producer in inlined:
            continue
        if lanes[producer.name] > 1:
            found, made = _split(consumer, producer, loop, lanes[producer.name])
        elif is_pointwise(producer) and len(producer.spatial_axes) > rows:
            found, made = kept_steps(draft, consumer, producer, loop)
        else:
            found, made = Levels(), [FuseProducer(producer.name, consumer.name, loop, 1)]
        levels.append(found)
        steps.extend(made)
    return steps, levels


def kept_steps(
    draft: SketchDraft, consumer: Stage, producer: Stage, loop: str
) -> tuple[Levels, list[Step]]:
    """A pointwise stage that is kept in a buffer, in vectors along its innermost axis."""
    levels = row_vector_levels(draft, producer)
    inner = producer.axes[-1].name
    return levels, [
        FuseProducer(producer.name, consumer.name, loop, 1),
        levels.tile(producer.name, inner),
        Vectorize(producer.name, f"{inner}.1"),
    ]


def row_vector_levels(draft: SketchDraft, stage: Stage) -> Levels:
    """The innermost axis of a pointwise stage: a loop over vectors of a searched width."""
    lanes = draft.target.lanes(stage.output.dtype)
    widths = (quarters * lanes // 4 for quarters in _WIDTHS)
    enough = tuple(width for width in widths if width >= min(lanes, _NARROWEST))
    return vector_levels(draft, stage, enough)


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


def _split(consumer: Stage, producer: Stage, loop: str, lanes: int) -> tuple[Levels, list[Step]]:
    """A long reduction in vectors of partial results, some iterations of which are unrolled."""
    axis = producer.reduce_axes[-1]
    partial, lane = partial_name(producer.name), f"{lane_axis(axis.name)}.0"
    rounds = -(-axis.extent // lanes)
    domain = tuple(count for count in _UNROLLED if rounds % count == 0)
    levels = split_levels(f"{producer.name}.{axis.name}", rounds, domain)
    outer = [f"{other.name}.0" for other in producer.axes]
    inner = f"{axis.name}.1"
    return levels, [
        FuseProducer(producer.name, consumer.name, loop, 1),
        FuseProducer(partial, consumer.name, loop, 1),
        Tile(partial, axis.name, levels.factors),
        Order(partial, (*outer, inner, lane)),
        Unroll(partial, (inner,)),
        Vectorize(partial, lane),
    ]
