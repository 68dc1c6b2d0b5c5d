"""Programs of requests, and their scripts of the Transform dialect."""

from __future__ import annotations

from typing import Any

from autotune.backends import BuildFailed, BuildRequest, InvalidSchedule
from autotune.ir.workloads import Workload
from autotune.sketches import is_default
from autotune_mlir import bindings
from autotune_mlir.compiler import (
    fusion,
)
from autotune_mlir.parsing import brief, here, operation_named, parse_payload

__all__ = ["apply_schedule", "fuse_elementwise", "program_of", "schedule_of", "unscheduled_text"]

_MAIN_SEQUENCE = "__transform_main"


def program_of(workload: Workload, program: str | None) -> str:
    """The program of a baseline: the imported one, or one made from the workload.

    Scripts are for the one that is made from the workload.

    Args:
        workload: What is computed.
        program: The imported program.

    Raises:
        UnsupportedWorkload: MLIR has no form for the workload.
    """
    from autotune_mlir.emit import payload

    return payload(workload) if program is None else program


def schedule_of(request: BuildRequest) -> str | None:
    """The Transform dialect's script of the request's candidate; None for a baseline.

    The untuned program has none, and the default pipeline consists of passes.

    Raises:
        InvalidSchedule: a step cannot be applied.
    """
    if request.candidate is None or is_default(request.candidate):
        return None
    from autotune_mlir.schedule import schedule

    return schedule(request.candidate, request.workload)


def unscheduled_text(request: BuildRequest) -> str:
    """The program of a baseline, before the passes that lower it.

    Raises:
        BuildFailed: the program does not parse.
    """
    module = parse_payload(program_of(request.workload, request.program))
    if is_default(request.candidate):
        fuse_elementwise(module)
    return str(module)


def apply_schedule(module: Any, schedule: str, sequence: str = _MAIN_SEQUENCE) -> None:
    """Transform a program by a script of the Transform dialect, as ``mlir-opt`` does it.

    Args:
        module: The ``ir.Module``; changed, and not to be used when this fails.
        schedule: Text of a module with the sequence.
        sequence: Its name.

    Raises:
        InvalidSchedule: the script does not parse, or one of its operations fails.
    """
    interpreter = bindings.load().interpreter
    with here(module.context) as ir:
        try:
            script = ir.Module.parse(schedule)
            named = operation_named(script, sequence)
            if named is None:
                raise InvalidSchedule(f"the script has no sequence @{sequence}")
            interpreter.apply_named_sequence(module, named, script)
        except (ir.MLIRError, ValueError) as error:  # of what does not parse, of what fails
            raise InvalidSchedule(brief(error)) from error


def fuse_elementwise(module: Any) -> None:
    """Fuse elementwise operations, as MLIR's default pipeline begins.

    Args:
        module: The ``ir.Module``; changed.

    Raises:
        BuildFailed: the pass rejected it.
    """
    with here(module.context) as ir:
        try:
            bindings.load().passmanager.PassManager.parse(fusion()).run(module.operation)
        except ir.MLIRError as error:
            raise BuildFailed(brief(error)) from error
