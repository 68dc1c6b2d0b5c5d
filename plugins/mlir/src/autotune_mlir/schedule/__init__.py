"""A candidate's whole schedule: structure first, then vectors."""

from __future__ import annotations

from autotune.ir.workloads import Workload
from autotune.sketches import Candidate
from autotune_mlir.schedule.copies import pad_stage_extents
from autotune_mlir.schedule.loops import make_loops
from autotune_mlir.schedule.plan import plan_of
from autotune_mlir.schedule.script import Script, module_of
from autotune_mlir.schedule.vectors import lower_to_vectors, make_pieces

__all__ = ["schedule"]


def schedule(candidate: Candidate, workload: Workload) -> str:
    """The transform script of a candidate, for the program that is made from its workload.

    It has three sequences: ``structure`` makes loops and buffers, ``vectors`` turns what is inside
    the innermost of them into operations on vectors, and ``__transform_main`` is one after the
    other.

    Args:
        candidate: The steps and their parameters.
        workload: What the program computes.

    Raises:
        InvalidSchedule: no script says a step.
    """
    plan = plan_of(candidate, workload)
    structure, vectors = Script(), Script()
    for own in plan.stages.values():
        if own.padded:
            pad_stage_extents(structure, own)
    # Outputs are written in place from the start. Otherwise the empty tensor that one begins as is
    # taken for that of a result in between, and rows of what is in one are copied out of the way
    # of the other.
    function = structure.function()
    structure.add(
        f"transform.bufferization.eliminate_empty_tensors {function} : !transform.any_op"
    )
    make_loops(structure, plan)
    make_pieces(vectors, plan)
    lower_to_vectors(vectors, plan)
    return module_of({"structure": structure, "vectors": vectors})
