"""Programs as files of lines such as ``small 8 8 16``."""

from __future__ import annotations

from pathlib import Path

from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload, gemm
from autotune.plugins.importer import Importer


class SizesImporter(Importer):
    """Reads a matrix product from every line: its name, then m, n and k."""

    def read(self, program: object) -> list[Workload]:
        """The products of a file."""
        lines = [line.split() for line in Path(str(program)).read_text().splitlines()]
        if not all(len(line) == 4 for line in lines):
            raise InvalidValueError(f"{program}: a line is a name and three sizes")
        return [evolve(gemm(m=int(m), n=int(n), k=int(k)), name=name) for name, m, n, k in lines]
