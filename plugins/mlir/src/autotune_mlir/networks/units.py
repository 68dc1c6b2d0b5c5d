"""Functions of a module, compiled each by itself, and the kernel that calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from autotune.backends import BuildFailed, BuildRequest, InvalidSchedule
from autotune.sketches import baseline_candidate
from autotune.store.records import Record
from autotune.targets import Target
from autotune_mlir import bindings, host
from autotune_mlir.code_generation import Generated, generate
from autotune_mlir.compiler import lower
from autotune_mlir.entry import ENTRY
from autotune_mlir.lowering import DEFAULT_SCHEDULE
from autotune_mlir.networks.function import ModuleFunction
from autotune_mlir.networks.linking import kernel_text, unit_symbol
from autotune_mlir.parsing import brief
from autotune_mlir.printed import WHOLE, is_printed, lower_printed, print_request
from autotune_mlir.scripted import program_of, schedule_of

__all__ = ["Unit", "compile_kernel", "compile_unit"]


@frozen(eq=False)
class Unit:
    """A function that was compiled.

    Attributes:
        function: The function.
        record: What it was scheduled by; None for the default schedule.
        generated: Its code.
        request: What its schedule is of; None where there is none.
        entry: The function that is called.
    """

    function: ModuleFunction
    record: Record | None
    generated: Generated
    request: BuildRequest | None = None
    entry: str = ENTRY

    def schedule(self) -> str:
        """Its schedule as a script of the Transform dialect.

        Raises:
            InvalidSchedule: no script says it.
        """
        assert self.request is not None
        script = schedule_of(self.request)
        assert script is not None
        return script


def compile_unit(
    function: ModuleFunction, module: str, record: Record | None, target: Target, threads: int
) -> Unit:
    """Compile one function that calls no other.

    Args:
        function: The function.
        module: Text of its module.
        record: What schedules it; None for MLIR's default pipeline.
        target: What it runs on.
        threads: How many threads it uses.

    Raises:
        BuildFailed: MLIR or LLVM rejected it; names the function.
        InvalidSchedule: the record is of another function, or cannot be replayed; likewise.
        UnsupportedTarget: this machine cannot run programs for the target.
    """
    host.check_measuring(target, threads)
    disabled = host.disabled_features(target)
    try:
        if function.imported is None:
            text = kernel_text(module, [function], {})
            lowered = lower(text, threads=threads, disabled=disabled, by_default=True)
            return Unit(function, None, generate(lowered))
        request = _request(function, record, target, threads)
        if is_printed(request):
            lowered = lower_printed(print_request(request), whole=True)
            return Unit(function, record, generate(lowered), request, WHOLE)
        lowered = lower(
            program_of(request.workload, request.program),
            threads=threads,
            disabled=disabled,
            by_default=True,
        )
        return Unit(function, record, generate(lowered))
    except (BuildFailed, InvalidSchedule) as error:
        raise type(error)(f"task {function.name!r}: {error}") from error


def _request(
    function: ModuleFunction, record: Record | None, target: Target, threads: int
) -> BuildRequest:
    imported = function.imported
    assert imported is not None
    workload, program = imported.workload, imported.program
    if record is None:
        candidate = baseline_candidate(workload, DEFAULT_SCHEDULE)
        return BuildRequest(workload, program, candidate, target, threads)
    wanted = record.candidate.sketch.workload
    if wanted.digest != workload.digest:
        raise InvalidSchedule(
            f"record {record.name} is of workload {wanted.name!r}, which is not this function"
        )
    return BuildRequest(workload, program, record.on(workload, program).scheduled, target, threads)


def compile_kernel(
    module: str,
    entries: Sequence[ModuleFunction],
    units: Mapping[str, Unit],
    threads: int,
) -> Generated:
    """Compile what calls the units: the rest of a module, by MLIR's own passes.

    Args:
        module: Text of the module.
        entries: The functions that it is called by.
        units: Functions that were compiled, by name; they have to be kept.
        threads: How many threads it uses.

    Raises:
        BuildFailed: MLIR or LLVM rejected it.
    """
    numbered = {name: (unit.function, number) for number, (name, unit) in enumerate(units.items())}
    try:
        text = kernel_text(module, entries, numbered)
    except bindings.load().ir.MLIRError as error:
        raise BuildFailed(f"the module cannot be linked: {brief(error)}") from error
    addresses = {
        unit_symbol(number): unit.generated.address(unit.entry)
        for number, unit in enumerate(units.values())
    }
    # What calls a unit ignores its status.
    tiles = any(unit.generated.asks_for_tiles for unit in units.values())
    lowered = lower(text, threads=threads, by_default=True, asks_for_tiles=tiles)
    return generate(lowered, addresses)
