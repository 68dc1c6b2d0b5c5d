"""Stages that surround a tensor with a constant."""

from __future__ import annotations

from autotune.workloads import Stage, Workload
from autotune_mlir.padding import padding_of
from autotune_mlir.schedule.plan import StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = ["assume_inside", "is_padding", "pad_stage", "split_padding", "vectorize_padding"]


def is_padding(stage: Stage, workload: Workload) -> bool:
    """Whether a stage is a ``tensor.pad`` in the program."""
    if len(stage.reads) != 1:
        return False
    tensor = workload.tensors[stage.reads[0]]
    padding = padding_of(stage, tensor.shape)
    return padding is not None and stage.output.dtype == padding.value.dtype == tensor.dtype


def pad_stage(script: Script, own: StagePlan) -> None:
    """Make the loops of a stage that pads, in parallel where the stage is.

    Args:
        script: Where to write.
        own: The stage. Its loops are in the order of its axes.
    """
    axes = [axis.name for axis in own.stage.spatial_axes]
    parallel = [0] * len(axes)
    for loop in own.parallel:
        parallel[axes.index(own.axis_of(loop))] = own.tile_inside(loop)
    if any(parallel):
        script.tile_parallel(script.match(tag("stage", own.stage.name)), parallel)
        assume_inside(script)
    split_padding(script, own.stage, 1 if own.vector is None else own.extent(own.vector))


def split_padding(script: Script, stage: Stage, lanes: int) -> None:
    """Make the loops of a tile that is padded, around vectors of its innermost dimension."""
    script.clean(script.match_kind("func.func"))
    script.tile(script.match(tag("stage", stage.name)), padded_vector(stage, lanes))
    assume_inside(script)


def padded_vector(stage: Stage, lanes: int) -> list[int]:
    """Extents of what is one vector of a stage that pads."""
    return [*[1] * (len(stage.spatial_axes) - 1), lanes]


def vectorize_padding(script: Script, stage: Stage, lanes: int) -> None:
    """Turn what is padded into a load of which the lanes in the margins are masked."""
    sizes = padded_vector(stage, lanes)
    script.vectorize(script.match(tag("stage", stage.name)), f" vector_sizes {sizes}")


def assume_inside(script: Script) -> None:
    """Drop the choice between a tile that pads and one that is nothing but margin.

    Tiles of a ``tensor.pad`` come with this choice. A tile that is nothing but margin copies an
    empty part of the tensor, which is right, too.
    """
    choices = script.match_kind("scf.if")
    script.add(
        f"transform.scf.take_assumed_branch {choices} take_else_branch : (!transform.any_op) -> ()"
    )
