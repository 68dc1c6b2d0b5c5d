from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from python_processes import run_python

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Runs this Python in a folder with nothing but example programs; returns its output."""
    for program in (EXAMPLES / "external").glob("*.*"):
        (tmp_path / program.name).write_text(program.read_text())
    for program in EXAMPLES.glob("*.mlir"):
        (tmp_path / program.name).write_text(program.read_text().replace("512", "64"))

    def run_there(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
        return run_python(*arguments, cwd=tmp_path, **(environment or {}))

    return run_there
