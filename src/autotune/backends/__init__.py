"""Backends: the interface; implementations are plugins."""

from __future__ import annotations

from autotune.backends.arrays import (
    ALIGNMENT,
    aligned_copy,
    aligned_empty,
    bind_copies,
    check_arguments,
    poison_array,
)
from autotune.backends.backend import (
    Backend,
    BoundCall,
    BuildFailed,
    BuildRequest,
    Executable,
    ExportReport,
    ImportedProgram,
    InvalidSchedule,
    LoweredProgram,
)

__all__ = [
    "ALIGNMENT",
    "Backend",
    "BoundCall",
    "BuildFailed",
    "BuildRequest",
    "Executable",
    "ExportReport",
    "ImportedProgram",
    "InvalidSchedule",
    "LoweredProgram",
    "aligned_copy",
    "aligned_empty",
    "bind_copies",
    "check_arguments",
    "poison_array",
]
