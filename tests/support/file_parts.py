"""Parts of plugins that read and write files of forms of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import evolve

from autotune.backends import ExportReport
from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload, gemm
from autotune.plugins.importer import Importer
from autotune.testing.reference_backend import ReferenceBackend


class Exporting(ReferenceBackend):
    """Offers a format of its own."""

    def export_formats(self) -> dict[str, str]:
        return {"names": "one name a line"}

    def export_records(self, records: Any, format: str, path: Path) -> ExportReport:
        found = list(records)
        if path.exists():
            raise InvalidValueError(f"{str(path)!r} exists")
        path.write_text("\n".join(f"{record.run_id}/{record.trial}" for record in found))
        refused = (("run-1/0", "just so"),)
        return ExportReport(len(found) - 1, refused, (str(path),), f"read {path}")


class Sizes(Importer):
    """Reads the sizes of square matrix products, one a line."""

    def read(self, program: object) -> list[Workload]:
        assert isinstance(program, str)
        sizes = map(int, Path(program).read_text().split())
        return [evolve(gemm(m=n, n=n, k=n), name=f"gemm{n}") for n in sizes]
