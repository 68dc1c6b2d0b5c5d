"""A candidate's whole schedule: structure first, then vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.ir.workloads import Workload
from autotune.sketches import Candidate
from autotune_mlir.emit import operand_names
from autotune_mlir.schedule.copies import pad_stage_extents
from autotune_mlir.schedule.levels import is_padding, pad_stage
from autotune_mlir.schedule.loops import (
    is_row_fusion,
    is_scan,
    is_split,
    tile_pointwise,
    tile_reduction,
    tile_rows,
    tile_scan,
    tile_stage,
)
from autotune_mlir.schedule.plan import Plan, plan_of
from autotune_mlir.schedule.script import Script, module_of
from autotune_mlir.schedule.vectors import lower_to_vectors, make_pieces

__all__ = ["schedule"]


def schedule(
    candidate: Candidate,
    workload: Workload,
    operands: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The transform script of a candidate, for the payload of its workload.

    It has three sequences: ``structure`` makes loops and buffers, ``vectors`` turns what is inside
    the innermost of them into operations on vectors, and ``__transform_main`` is one after the
    other.

    Args:
        candidate: The steps and their parameters.
        workload: What the program computes.
        operands: For each stage the tensors that its operation reads, in the order of its
            operands; by default those of a program that was made from the workload.

    Raises:
        InvalidSchedule: no script says a step.
    """
    plan = plan_of(candidate, workload)
    workload = plan.workload
    order = operand_names(workload) if operands is None else operands
    structure = Script()
    for name, own in plan.stages.items():
        if own.padded:
            pad_stage_extents(structure, workload, own, order[name])
    _write_to_outputs(structure)
    _make_loops(structure, plan, order)
    vectors = Script()
    make_pieces(vectors, plan)
    lower_to_vectors(vectors, plan)
    sequences = {"structure": structure, "vectors": vectors}
    return module_of(sequences)


def _write_to_outputs(script: Script) -> None:
    """Write outputs in place from the start.

    Otherwise the empty tensor that it begins as is taken for that of a result in between, and rows
    of what is in one are copied out of the way of the other.
    """
    function = script.match_kind("func.func")
    script.add(f"transform.bufferization.eliminate_empty_tensors {function} : !transform.any_op")


def _make_loops(script: Script, plan: Plan, operands: Mapping[str, Sequence[str]]) -> None:
    """The loops of all stages, those first that must not be drawn into the loops of others."""
    roots = _roots(plan)
    padding = [name for name in roots if is_padding(plan.stages[name].stage, plan.workload)]
    pointwise = [
        name for name in roots if plan.stages[name].stage.combiner is None and name not in padding
    ]
    for name in padding:
        pad_stage(script, plan, plan.stages[name])
    # The last one first: a parallel loop hands out what is computed inside it to later stages, and
    # these would have no operation left to compute for themselves.
    for name in reversed(pointwise):
        if is_row_fusion(plan, plan.stages[name]):
            tile_rows(script, plan, name)
        else:
            tile_pointwise(script, plan, name)
    for name in roots:
        if is_split(plan.stages[name]):
            tile_reduction(script, plan, name)
        elif is_scan(plan.stages[name]):
            tile_scan(script, plan, name)
        elif name not in (*padding, *pointwise):
            tile_stage(script, plan, name, operands)


def _roots(plan: Plan) -> list[str]:
    """Stages with loops of their own at the outermost level."""
    consumers = {stage.consumer for stage in plan.stages.values()}
    return [
        name
        for name, stage in plan.stages.items()
        if not stage.inlined
        and stage.inside is None
        and stage.partial_of is None
        and name not in consumers
    ]
