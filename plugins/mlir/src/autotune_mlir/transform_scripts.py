"""Scripts of the Transform dialect, applied to programs."""

from __future__ import annotations

from typing import Any

from autotune.backends import BuildFailed, InvalidSchedule
from autotune_mlir import bindings
from autotune_mlir.lowering import (
    fusion,
)
from autotune_mlir.parsing import brief, here, kernel_of, operation_named
from autotune_mlir.passes.carried_slices import carry_slices
from autotune_mlir.passes.divided_indices import PIECES, fold_divided_indices
from autotune_mlir.passes.strided_rows import slice_rows
from autotune_mlir.passes.tensorize import PRODUCTS, tensorized_stages

__all__ = ["apply_schedule", "apply_until_calls", "fuse_elementwise"]

_MAIN_SEQUENCE = "__transform_main"
# Sequences of a schedule, as far as it has them; what calls of instructions leave is for another.
_STRUCTURE = "structure"
_BEFORE_CALLS = (_STRUCTURE, PIECES, "vectors")


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


def apply_until_calls(module: Any, schedule: str) -> str | None:
    """Apply a schedule up to the point at which instructions are called.

    Between its sequences is done what the Transform dialect has no operation for.

    Args:
        module: As of :func:`apply_schedule`, which says what is raised.
        schedule: Text of a module with its sequences.

    Returns:
        The rest of the schedule, for what the calls leave; None where there are no calls.
    """
    calls, divides = (f"@{sequence}(" in schedule for sequence in (PRODUCTS, PIECES))
    if not (calls or divides):
        apply_schedule(module, schedule)
        return None
    for sequence in _BEFORE_CALLS:
        if sequence == PIECES and not divides:
            continue
        apply_schedule(module, schedule, sequence)
        with here(module.context) as ir:
            if sequence == _STRUCTURE and calls:
                slice_rows(ir, module, tensorized_stages(kernel_of(module)))
            elif sequence == PIECES:
                fold_divided_indices(ir, kernel_of(module))
                carry_slices(ir, kernel_of(module))
    return PRODUCTS if calls else None


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
