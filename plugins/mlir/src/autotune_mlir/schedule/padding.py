"""Stages that surround a tensor with a constant."""

from __future__ import annotations

from autotune.workloads import Stage, Workload
from autotune_mlir.padding import padding_of
from autotune_mlir.schedule.plan import StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = ["assume_inside", "buffer_of_padding", "is_padding", "pad_stage", "split_padding"]


def is_padding(stage: Stage, workload: Workload) -> bool:
    """Whether a stage is a ``tensor.pad`` in the program."""
    if len(stage.reads) != 1:
        return False
    tensor = workload.tensors[stage.reads[0]]
    padding = padding_of(stage, tensor.shape)
    return padding is not None and stage.output.dtype == padding.value.dtype == tensor.dtype


def pad_stage(script: Script, own: StagePlan) -> None:
    """Make a stage that pads a buffer of its own, and the loops that fill it.

    The whole buffer is filled with the constant, then the tensor is copied into it: both with the
    stage's order of loops, and in parallel where the stage is.
    """
    name = own.stage.name
    buffer_of_padding(script, name, name)
    axes = [axis.name for axis in own.stage.spatial_axes]
    target = script.match(tag("pack", name))
    parallel = [0] * len(axes)
    for loop in own.parallel:
        parallel[axes.index(own.axis_of(loop))] = own.tile_inside(loop)
    if any(parallel):
        script.tile_parallel(target, parallel)
    for loop in own.order:
        if loop in own.parallel or loop == own.vector:
            continue
        sizes = [0] * len(axes)
        sizes[axes.index(own.axis_of(loop))] = own.tile_inside(loop)
        script.tile(script.match(tag("pack", name)), sizes)


def buffer_of_padding(script: Script, name: str, label: str) -> None:
    """Let a ``tensor.pad`` become a buffer, and operations that fill it.

    Args:
        script: Where to write.
        name: The stage that pads.
        label: What the operations are found by, with the attribute ``autotune.pack``.
    """
    buffer, made = script.handle(), script.handle()
    script.add(
        f"{buffer}, {made} = transform.structured.bufferize_to_allocation "
        f"{script.match(tag('stage', name))} "
        '{memory_space = 0 : i64, memcpy_op = "linalg.copy"} : !transform.any_op'
    )
    for kind in ("linalg.fill", "linalg.copy"):
        (filling,) = script.apply(f'transform.select "{kind}" in {{}}', [made])
        script.annotate(filling, "pack", label)


def split_padding(script: Script, label: str, rank: int, lanes: int) -> None:
    """Make the loops of what fills a buffer, around vectors of its innermost dimension."""
    script.tile(script.match(tag("pack", label)), [*[1] * (rank - 1), lanes])


def assume_inside(script: Script) -> None:
    """Drop the choice between a tile that pads and one that is nothing but margin.

    Tiles of a ``tensor.pad`` come with this choice. A tile that is nothing but margin copies an
    empty part of the tensor, which is right, too.
    """
    choices = script.match_kind("scf.if")
    script.add(
        f"transform.scf.take_assumed_branch {choices} take_else_branch : (!transform.any_op) -> ()"
    )
