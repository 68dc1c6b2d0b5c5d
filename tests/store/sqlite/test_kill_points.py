from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "least"), [("append", 190), ("statements", 100), ("migration", 100), ("recovery", 5)]
)
def test_nothing_is_lost_or_torn(tmp_path: Path, kind: str, least: int) -> None:
    script = Path(__file__).parent / "kill_points.py"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        # A process with threads cannot be forked safely.
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(script), kind, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    killed, ended = map(int, done.stdout.split())
    assert killed >= least
    assert ended <= max(10, killed)
