"""From a request to the text of its program and of its schedule."""

from __future__ import annotations

from autotune.backends import BuildRequest
from autotune.ir.workloads import Workload
from autotune.sketches import is_default

__all__ = ["program_of", "schedule_of", "scheduled_text"]


def program_of(workload: Workload, program: str | None) -> str:
    """The program before scheduling: the imported one, or one made from the workload.

    Raises:
        UnsupportedWorkload: MLIR has no form for the workload.
    """
    if program is not None:
        return program
    from autotune_mlir.emit import payload

    return payload(workload)


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

    workload, program = request.workload, request.program
    operands = None if program is None else operands_of(workload, program)
    return schedule(request.candidate, workload, operands)


def scheduled_text(request: BuildRequest) -> str:
    """The scheduled program, before MLIR's passes.

    Raises:
        InvalidSchedule: a step cannot be applied.
        BuildFailed: the program does not parse.
    """
    from autotune_mlir.compiler import apply_schedule, fuse_elementwise, parse_payload

    module = parse_payload(program_of(request.workload, request.program))
    script = schedule_of(request)
    if script is not None:
        apply_schedule(module, script)
    if is_default(request.candidate):
        fuse_elementwise(module)
    return str(module)
