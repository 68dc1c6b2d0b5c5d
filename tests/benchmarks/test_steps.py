"""Steps of benchmarks that take hours: kept, tried again, and ended with what they started."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import benchmark_scripts


@pytest.fixture(scope="module")
def models() -> Iterator[Any]:
    with benchmark_scripts("models") as (module,):
        yield module


def test_a_step_that_is_done_is_not_done_again(models: Any, tmp_path: Path) -> None:
    made = []

    def make() -> dict[str, int]:
        made.append(1)
        return {"calls": len(made)}

    path, errors = tmp_path / "step.json", {}
    for _ in range(2):
        assert models.kept(path, errors, "step", make) == {"calls": 1}
    assert json.loads(path.read_text()) == {"calls": 1} and errors == {}
    assert list(tmp_path.iterdir()) == [path]


def test_a_step_that_fails_is_named_and_tried_again(models: Any, tmp_path: Path) -> None:
    def fails() -> None:
        raise models.StepFailed("no compiler")

    errors: dict[str, str] = {}
    path = tmp_path / "step.json"
    assert models.kept(path, errors, "step", fails) is None
    assert errors == {"step": "no compiler"} and not path.exists()
    assert models.kept(path, errors, "step", lambda: 7) == 7


def test_a_command_that_fails_says_why_in_its_last_line(models: Any) -> None:
    program = "import sys; print('first\\nlast', file=sys.stderr); sys.exit(2)"
    with pytest.raises(models.StepFailed, match="^last$"):
        models.output_of([sys.executable, "-c", program], os.environ)


def test_what_runs_for_ever_is_ended_with_what_it_started(
    models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "environment", lambda: dict(os.environ))
    child = tmp_path / "child"
    program = (
        "import os, subprocess, sys, time, pathlib\n"
        "it = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(child)!r}).write_text(str(it.pid))\n"
        "time.sleep(600)"
    )
    seconds = 5.0
    while not child.exists():
        models.run_for([sys.executable, "-c", program], seconds)
        seconds *= 2
    pid = int(child.read_text())
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").exists() and state(pid) != "Z" and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}/stat").exists() or state(pid) == "Z"
    with pytest.raises(models.StepFailed, match="too soon"):
        models.run_for([sys.executable, "-c", ""], 60.0)


def state(pid: int) -> str:
    """Of a process: ``Z`` where it has ended and nobody has asked for its status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"
