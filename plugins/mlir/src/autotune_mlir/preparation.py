"""What a candidate asks of the program before it is scheduled: operations that no script makes."""

from __future__ import annotations

from autotune.ir.workloads import Workload
from autotune.sketches import Candidate
from autotune_mlir.chunks import chunk_program, chunked_reductions, with_chunks
from autotune_mlir.transposition import transpose_program, transposed_operands, with_transposed

__all__ = ["prepare_program", "prepare_workload"]


def prepare_workload(workload: Workload, candidate: Candidate | None) -> Workload:
    """The stages of the program that :func:`prepare_program` makes.

    Args:
        workload: What is computed.
        candidate: The steps; None is the untuned program.
    """
    workload = with_transposed(workload, transposed_operands(candidate, workload))
    return with_chunks(workload, chunked_reductions(candidate, workload))


def prepare_program(program: str, workload: Workload, candidate: Candidate | None) -> str:
    """A program as the schedule of a candidate needs it.

    - Operands that are packed as a whole with another dimension innermost are transposed in it.
    - Reductions in chunks are two: that of each chunk, and that of their results.

    Args:
        program: The text of a program with attributes for stages.
        workload: What it computes.
        candidate: The steps; None is the untuned program.

    Raises:
        InvalidSchedule: a step cannot be applied to the program.
    """
    transposed = transposed_operands(candidate, workload)
    program = transpose_program(program, workload, transposed)
    workload = with_transposed(workload, transposed)
    return chunk_program(program, workload, chunked_reductions(candidate, workload))
