from __future__ import annotations

from pathlib import Path

import pytest
from python_processes import run_python


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "least"), [("append", 190), ("statements", 100), ("migration", 100), ("recovery", 5)]
)
def test_nothing_is_lost_or_torn(tmp_path: Path, kind: str, least: int) -> None:
    script = Path(__file__).parent / "kill_points.py"
    # A process with threads cannot be forked safely.
    output = run_python(str(script), kind, str(tmp_path), OPENBLAS_NUM_THREADS="1")
    killed, ended = map(int, output.split())
    assert killed >= least
    assert ended <= max(10, killed)
