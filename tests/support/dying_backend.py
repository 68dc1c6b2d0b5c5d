"""A backend and an importer that die of the text of programs, for tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

from autotune.backends import (
    BuildRequest,
    ExportReport,
    ForeignSchedules,
    ImportedProgram,
    LoweredProgram,
    ProgramFile,
)
from autotune.ir.workloads import Workload
from autotune.plugins.importer import Importer
from autotune.store.records import Record
from autotune.targets import Target
from autotune.testing.reference_backend import ReferenceBackend


def _die() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


class DyingBackend(ReferenceBackend):
    """Ends its process wherever it reads a program."""

    def imports(self, program: object) -> bool:
        return isinstance(program, ProgramFile)

    def import_program(self, program: object) -> ImportedProgram:
        _die()
        return super().import_program(program)

    def lower(self, request: BuildRequest) -> LoweredProgram:
        _die()
        return super().lower(request)

    def show(self, request: BuildRequest) -> str:
        _die()
        return ""

    def export_formats(self) -> Mapping[str, str]:
        return {"text": "Dies"}

    def export_records(self, records: Iterable[Record], format: str, path: Path) -> ExportReport:
        _die()
        return ExportReport(0, (), ())

    def import_formats(self) -> Mapping[str, str]:
        return {"text": "Dies"}

    def import_records(self, format: str, path: Path, target: Target) -> ForeignSchedules:
        _die()
        return ForeignSchedules(())


class DyingImporter(Importer):
    """Ends its process."""

    def read(self, program: object) -> list[Workload]:
        _die()
        return []
