"""Reductions that are split into parts, and the blocks that this makes."""

from __future__ import annotations

from autotune.backends import InvalidSchedule
from autotune.sketches import (
    ChunkReduction,
    SplitReduction,
    Step,
    WarpTensorize,
    added_axis,
    is_uneven,
    partial_name,
    split_reduction,
)
from autotune_tvm.schedule_state import ScheduleState

__all__ = ["split_blocks", "split_for_warps"]


def split_blocks(state: ScheduleState, step: SplitReduction | ChunkReduction) -> None:
    """Make a block of partial results, of lanes or of chunks; the old one sums them up.

    Raises:
        InvalidSchedule: lanes do not divide the axis: TVM drops the condition that this needs.
    """
    if isinstance(step, SplitReduction) and is_uneven(state.workload, step):
        raise InvalidSchedule(
            f"{step}: TVM's schedules split what {step.lanes} lanes divide, and they do not "
            f"divide axis {step.axis!r}"
        )
    stage = state.workload.stage(step.stage)
    reduced = state.loops.pop((step.stage, f"{step.axis}.0"))
    chunked = isinstance(step, ChunkReduction)
    parts = [step.chunks, None] if isinstance(step, ChunkReduction) else [None, step.lanes]
    split = state.sch.split(reduced, parts, preserve_unit_iters=True)
    for block in state.blocks.values():
        if not state.sch.get_loops(block):
            # TVM fails at blocks without loops beside the one that it factors.
            state.sch.add_unit_loop(block)
    partial = state.sch.rfactor(split[0 if chunked else 1], factor_axis=0)
    state.workload = split_reduction(state.workload, step)
    name, lane = partial_name(step.stage), added_axis(step)
    state.blocks[name] = partial
    own = [f"{axis.name}.0" for axis in stage.axes]
    at = own.index(f"{step.axis}.0") + (0 if chunked else 1)
    own[at:at] = [f"{lane}.0"]
    for label, loop in zip(own, state.sch.get_loops(partial), strict=True):
        state.loops[name, label] = loop
    if chunked:
        # What is split once more is in the order of its axes.
        axes = state.workload.stage(name).axes
        state.sch.reorder(*(state.loops[name, f"{axis.name}.0"] for axis in axes))
    spatial = [f"{axis.name}.0" for axis in stage.spatial_axes]
    final = [label for label in own if label in (*spatial, f"{lane}.0")]
    for label, loop in zip(final, state.sch.get_loops(state.blocks[step.stage]), strict=True):
        state.loops[step.stage, label] = loop
    if final[-1] != f"{lane}.0":
        state.sch.reorder(*(state.loops[step.stage, label] for label in (*spatial, f"{lane}.0")))


def split_for_warps(state: ScheduleState, steps: tuple[Step, ...]) -> list[Step]:
    """Split the reductions whose parts warps compute: blocks of these change before all others."""
    computed = {step.stage for step in steps if isinstance(step, WarpTensorize)}
    found: list[Step] = []
    for step in steps:
        if isinstance(step, (SplitReduction, ChunkReduction)):
            if partial_name(step.stage) not in computed:
                continue
            state.current = step
            state.name_loops()
            split_blocks(state, step)
            found.append(step)
    return found
