"""Stages that surround a tensor with a constant."""

from __future__ import annotations

from autotune.ir.workloads import Stage, Workload, padding_of_stage
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = [
    "assume_inside",
    "is_padding",
    "is_shifted",
    "pad_stage",
    "split_padding",
    "vectorize_padding",
]


def is_padding(stage: Stage, workload: Workload) -> bool:
    """Return whether a stage is a ``tensor.pad`` in the program."""
    return padding_of_stage(stage, workload) is not None


def is_shifted(stage: Stage, workload: Workload) -> bool:
    """Return whether a stage pads with a margin in front of the innermost dimension.

    It is computed in single elements: what a vector loads is not shifted.
    """
    padding = padding_of_stage(stage, workload)
    return padding is not None and padding.low[-1] > 0


def pad_stage(script: Script, plan: Plan, own: StagePlan) -> None:
    """Make the loops of a stage that pads, in parallel where the stage is.

    Args:
        script: Where to write.
        plan: The schedule.
        own: The stage. Its loops are in the order of its axes.
    """
    axes = [axis.name for axis in own.stage.spatial_axes]
    parallel = [0] * len(axes)
    for loop in own.parallel:
        parallel[axes.index(own.axis_of(loop))] = own.tile_inside(loop)
    if any(parallel):
        script.tile_parallel(script.match(tag("stage", own.stage.name)), parallel)
        assume_inside(script)
    split_padding(script, plan, own)


def split_padding(script: Script, plan: Plan, own: StagePlan) -> None:
    """Make the loops of a tile that is padded, around vectors of its innermost dimension."""
    script.tile(script.match(tag("stage", own.stage.name)), _vector_sizes(plan, own))
    assume_inside(script)


def vectorize_padding(script: Script, plan: Plan, own: StagePlan) -> None:
    """Turn what is padded into a load of which the lanes in the margins are masked."""
    sizes = _vector_sizes(plan, own)
    script.vectorize(script.match(tag("stage", own.stage.name)), f" vector_sizes {sizes}")


def _vector_sizes(plan: Plan, own: StagePlan) -> list[int]:
    """Extents of what is one vector: a part of the innermost dimension."""
    lanes = 1 if is_shifted(own.stage, plan.workload) else _lanes(plan, own)
    return [*[1] * (len(own.stage.spatial_axes) - 1), lanes]


def _lanes(plan: Plan, own: StagePlan) -> int:
    """Lanes of a stage that pads: its own, or those of the copy that it is computed in."""
    if own.vector is not None:
        return own.extent(own.vector)
    for stage in plan.stages.values():
        for packed in stage.packed:
            if own.inlined and packed.operand == own.stage.name:
                return packed.lanes
    return 1


def assume_inside(script: Script) -> None:
    """Drop the choice between a tile that pads and one that is nothing but margin.

    Tiles of a ``tensor.pad`` come with this choice. A tile that is nothing but margin copies an
    empty part of the tensor, which is right, too. What is left of the choice are casts, through
    which a reader of the tile would not be followed; they are simplified away. Other patterns
    would take a result that is put into tiles and taken out of them, of extents that are computed,
    for what was put in.
    """
    choices = script.match_kind("scf.if")
    script.add(
        f"transform.scf.take_assumed_branch {choices} take_else_branch : (!transform.any_op) -> ()"
    )
    function = script.match_kind("func.func")
    script.patterns(function, ["linalg.tiling_canonicalization"])
    script.merge(function)
