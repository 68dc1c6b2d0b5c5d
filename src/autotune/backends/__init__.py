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
    UnsupportedExport,
)
from autotune.backends.native_call import (
    NativeCall,
    NativeCallFailed,
    sample_native_call,
    time_native_call,
)
from autotune.backends.parking import park_threads
from autotune.backends.program_file import ProgramFile

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
    "UnsupportedExport",
    "LoweredProgram",
    "NativeCall",
    "NativeCallFailed",
    "ProgramFile",
    "aligned_copy",
    "aligned_empty",
    "bind_copies",
    "check_arguments",
    "park_threads",
    "poison_array",
    "sample_native_call",
    "time_native_call",
]
