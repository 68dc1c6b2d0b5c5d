"""Backends: the interface; implementations are plugins."""

from __future__ import annotations

from autotune.backends.backend import (
    Backend,
    BoundCall,
    BuildFailed,
    BuildRequest,
    Executable,
    ExportReport,
    ImportedProgram,
    InvalidSchedule,
)

__all__ = [
    "Backend",
    "BoundCall",
    "BuildFailed",
    "BuildRequest",
    "Executable",
    "ExportReport",
    "ImportedProgram",
    "InvalidSchedule",
]
