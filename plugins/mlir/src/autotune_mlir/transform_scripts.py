"""Scripts of the Transform dialect, applied to programs."""

from __future__ import annotations

from typing import Any

from autotune.backends import BuildFailed, InvalidSchedule
from autotune_mlir import bindings
from autotune_mlir.lowering import (
    fusion,
)
from autotune_mlir.parsing import brief, here, operation_named

__all__ = ["apply_schedule", "fuse_elementwise"]

_MAIN_SEQUENCE = "__transform_main"


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
