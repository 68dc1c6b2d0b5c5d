from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Runs this Python in a folder with nothing but example programs; returns its output."""
    for program in EXAMPLES.glob("*.mlir"):
        (tmp_path / program.name).write_text(program.read_text().replace("512", "64"))

    def run_python(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                **(environment or {}),
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run_python
