"""From a request to the text of its program and of its schedule."""

from __future__ import annotations

from autotune.backends import BuildRequest
from autotune.sketches import is_default

__all__ = ["program_of", "schedule_of", "scheduled_text"]


def program_of(request: BuildRequest) -> str:
    """The program that is scheduled: the imported one, or one made from the workload.

    Operands that the request's candidate packs as a whole with another dimension innermost are
    transposed in it.

    Raises:
        UnsupportedWorkload: MLIR has no form for the workload.
    """
    from autotune_mlir.emit import payload
    from autotune_mlir.transposition import (
        transpose_program,
        transposed_operands,
        with_transposed,
    )

    workload = request.workload
    transposed = transposed_operands(request.candidate, workload)
    if request.program is not None:
        return transpose_program(request.program, workload, transposed)
    return payload(with_transposed(workload, transposed))


def schedule_of(request: BuildRequest) -> str | None:
    """The Transform dialect's script of the request's candidate; None for a baseline.

    The untuned program has none, and the default pipeline consists of passes.

    Raises:
        InvalidSchedule: a step cannot be applied.
    """
    if request.candidate is None or is_default(request.candidate):
        return None
    from autotune_mlir.operands import operands_of
    from autotune_mlir.schedule import schedule

    if request.program is None:
        return schedule(request.candidate, request.workload)
    operands = operands_of(request.workload, program_of(request))
    return schedule(request.candidate, request.workload, operands)


def scheduled_text(request: BuildRequest) -> str:
    """The scheduled program, before MLIR's passes.

    Raises:
        InvalidSchedule: a step cannot be applied.
        BuildFailed: the program does not parse.
    """
    from autotune_mlir.compiler import apply_schedule, fuse_elementwise, parse_payload

    module = parse_payload(program_of(request))
    script = schedule_of(request)
    if script is not None:
        apply_schedule(module, script)
    if is_default(request.candidate):
        fuse_elementwise(module)
    return str(module)
