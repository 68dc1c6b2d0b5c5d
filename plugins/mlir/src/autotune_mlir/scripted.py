"""From a request to the text of its program and of its schedule."""

from __future__ import annotations

from autotune.backends import BuildRequest
from autotune.ir.workloads import Workload
from autotune.sketches import is_default

__all__ = ["program_of", "schedule_of", "unscheduled_text"]


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
    from autotune_mlir.parsing import parse_payload
    from autotune_mlir.transform_scripts import fuse_elementwise

    module = parse_payload(program_of(request.workload, request.program))
    if is_default(request.candidate):
        fuse_elementwise(module)
    return str(module)
