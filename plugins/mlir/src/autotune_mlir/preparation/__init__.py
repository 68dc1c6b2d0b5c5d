"""What a candidate asks of the program before it is scheduled: operations that no script makes."""

from __future__ import annotations

from autotune_mlir.preparation.program import prepare_program, prepare_workload

__all__ = ["prepare_program", "prepare_workload"]
