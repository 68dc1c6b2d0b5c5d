"""What a candidate asks of the program before it is scheduled: operations that no script makes."""

from __future__ import annotations

from autotune.ir.workloads import Workload
from autotune.sketches import Candidate
from autotune_mlir.preparation.chunked_reductions import (
    chunk_program,
    chunked_reductions,
    with_chunks,
)
from autotune_mlir.preparation.chunked_scans import chunk_scans, chunked_scans, with_chunked_scans
from autotune_mlir.preparation.divided_operands import divide_program, divided_operands
from autotune_mlir.preparation.reversal import forwards, reverse_program
from autotune_mlir.preparation.transposition import (
    transpose_program,
    transposed_operands,
    with_transposed,
)

__all__ = ["prepare_program", "prepare_workload"]


def prepare_workload(workload: Workload, candidate: Candidate | None) -> Workload:
    """The stages of the program that :func:`prepare_program` makes.

    Args:
        workload: What is computed.
        candidate: The steps; None is the untuned program.
    """
    found = forwards(candidate, workload)
    candidate, workload = found.candidate, found.workload
    workload = with_transposed(workload, transposed_operands(candidate, workload))
    workload = with_chunks(workload, chunked_reductions(candidate, workload))
    return with_chunked_scans(workload, chunked_scans(candidate, workload))


def prepare_program(program: str, workload: Workload, candidate: Candidate | None) -> str:
    """A program as the schedule of a candidate needs it.

    - Packed operands that are read backwards are reversed before.
    - What tiles read at quotients or remainders, as slices, is an operand.
    - Operands that are packed as a whole with another dimension innermost are transposed in it.
    - Reductions in chunks are two: that of each chunk, and that of their results.
    - Scans in parts are three: that of each part, that of what they continue, and all results.

    Args:
        program: The text of a program with attributes for stages.
        workload: What it computes.
        candidate: The steps; None is the untuned program.

    Raises:
        InvalidSchedule: a step cannot be applied to the program.
    """
    found = forwards(candidate, workload)
    program = reverse_program(program, workload, found)
    candidate, workload = found.candidate, found.workload
    program = divide_program(program, workload, divided_operands(candidate, workload))
    transposed = transposed_operands(candidate, workload)
    program = transpose_program(program, workload, transposed)
    workload = with_transposed(workload, transposed)
    reductions = chunked_reductions(candidate, workload)
    program = chunk_program(program, workload, reductions)
    workload = with_chunks(workload, reductions)
    return chunk_scans(program, workload, chunked_scans(candidate, workload))
