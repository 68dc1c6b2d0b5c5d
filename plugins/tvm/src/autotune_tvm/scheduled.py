"""From a request to its program: imported or generated, then scheduled."""

from __future__ import annotations

from typing import Any

from autotune.backends import BuildRequest, InvalidSchedule
from autotune.ir.workloads import Workload
from autotune.sketches import Candidate, WarpTensorize, is_default
from autotune.sketches.intrinsics import find_intrinsic
from autotune.targets import Target
from autotune_tvm import runtime
from autotune_tvm.default_schedule import default_schedule, fallback_schedule

__all__ = ["program_of", "scheduled_module"]


def program_of(workload: Workload, program: str | None) -> Any:
    """The module that is scheduled, made from the workload, with a block for each stage.

    It takes its arguments as the imported program does, where there is one.

    Raises:
        UnsupportedWorkload: the text is no program, or TVM has no form for the workload.
    """
    from autotune_tvm.emit import module_for
    from autotune_tvm.importer import argument_names, module_from_text

    if program is None:
        return module_for(workload)
    return module_for(workload, argument_names(module_from_text(program)))


def _imported(program: str) -> Any:
    from autotune_tvm.importer import callable_module, module_from_text

    return callable_module(module_from_text(program))


def scheduled_module(request: BuildRequest) -> Any:
    """The module to compile: TVM's, with the candidate's steps applied.

    The passes of :mod:`autotune_tvm.passes` follow the schedule.

    Raises:
        InvalidSchedule: a step cannot be applied.
    """
    module = _scheduled(request)
    from autotune_tvm.passes.booleans import compare_booleans, compares_booleans

    return compare_booleans(module) if compares_booleans(request.workload) else module


def _check_instructions(candidate: Candidate, target: Target) -> None:
    for step in candidate.sketch.core_steps:
        if isinstance(step, WarpTensorize):
            call = find_intrinsic(step.intrinsic)
            if not call.belongs_to(target.processor):
                last = call.last_architecture
                known = f"sm_{call.architecture} {f'to sm_{last}' if last else 'on'}"
                raise InvalidSchedule(
                    f"{step}: {call.name!r} is an instruction from {known}; target "
                    f"{target.name!r} is {target.processor}"
                )


def _scheduled(request: BuildRequest) -> Any:
    runtime.load()
    if request.candidate is None or is_default(request.candidate):
        known = None if request.program is None else _imported(request.program)
        module = known or program_of(request.workload, None)
        if request.candidate is None and request.target.kind == "cuda":
            return fallback_schedule(module, request.target).mod
        if request.candidate is None:
            return module
        return default_schedule(module, request.target, request.threads).mod
    _check_instructions(request.candidate, request.target)
    module = program_of(request.workload, request.program)
    from autotune_tvm.passes.pipeline_fetches import pipeline_fetches
    from autotune_tvm.passes.vectors import flat_reads, uniform_conditions
    from autotune_tvm.replay import schedule

    scheduled = schedule(module, request.candidate, request.workload).mod
    # A whole schedule of TVM's own is left as TVM makes it.
    if not request.candidate.sketch.is_opaque:
        scheduled = flat_reads(uniform_conditions(scheduled))
    return pipeline_fetches(scheduled)
