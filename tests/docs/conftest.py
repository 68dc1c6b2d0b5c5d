from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Runs this Python with arguments in an empty folder; returns its output."""

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
