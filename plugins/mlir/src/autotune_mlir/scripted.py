"""From a request to the text of its program and of its schedule."""

from __future__ import annotations

from autotune.backends import BuildRequest
from autotune.ir.workloads import Workload
from autotune.sketches import Candidate, is_default

__all__ = ["program_of", "schedule_of", "scheduled_text"]


def program_of(workload: Workload, program: str | None, candidate: Candidate | None) -> str:
    """The program that is scheduled: the imported one, or one made from the workload.

    It has what the candidate asks for beside a script (:mod:`autotune_mlir.preparation`).

    Args:
        workload: What is computed.
        program: The imported program, in normal form.
        candidate: The schedule; None is the untuned program.

    Raises:
        UnsupportedWorkload: MLIR has no form for the workload.
        InvalidSchedule: a step cannot be applied to the program.
    """
    from autotune_mlir.emit import payload
    from autotune_mlir.preparation import prepare_program

    return prepare_program(payload(workload) if program is None else program, workload, candidate)


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

    workload, candidate = request.workload, request.candidate
    if request.program is None:
        return schedule(candidate, workload)
    operands = operands_of(workload, program_of(workload, request.program, candidate))
    return schedule(candidate, workload, operands)


def scheduled_text(request: BuildRequest) -> str:
    """The scheduled program, before MLIR's passes and before calls of instructions are made.

    Raises:
        InvalidSchedule: a step cannot be applied.
        BuildFailed: the program does not parse.
    """
    from autotune_mlir.parsing import parse_payload
    from autotune_mlir.transform_scripts import apply_until_calls, fuse_elementwise

    program = program_of(request.workload, request.program, request.candidate)
    module = parse_payload(program)
    script = schedule_of(request)
    if script is not None:
        apply_until_calls(module, script)
    if is_default(request.candidate):
        fuse_elementwise(module)
    return str(module)
