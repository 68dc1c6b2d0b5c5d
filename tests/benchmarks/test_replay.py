"""benchmarks/replay.py on small spaces: pieces, the table, and bars that can fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from python_processes import python_environment
from recorded_spaces import small_space

from autotune.evaluation.replay.formats import space_bytes

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "replay.py"


def called(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=python_environment())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "spaces"
    folder.mkdir()
    for name in ("bowl-one.json.gz", "bowl-one.t4.json", "other-two.t4.json"):
        path = folder / name
        path.write_bytes(space_bytes(small_space(name.partition(".")[0]), None, str(path)))
    (folder / "bowl.t1.json").write_bytes(space_bytes(small_space(), None, "bowl.t1.json"))
    return folder


def test_runs_are_kept_and_judged(folder: Path) -> None:
    options = ("--spaces", str(folder), "--strategies", "random,grid", "--seeds", "2")
    results, written = folder.parent / "runs.jsonl", folder.parent / "out.json"
    done = called(*options, "--results", str(results), "--json", str(written))
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(written.read_text())
    assert [it["name"] for it in data["spaces"]] == ["bowl-one", "other-two"]
    assert {it["strategy"]: it["runs"] for it in data["strategies"]} == {"random": 4, "grid": 4}
    bars = {it["name"]: it for it in data["bars"]}
    missing = next(it for name, it in bars.items() if "neither in the table" in name)
    assert missing["value"] >= 1 and not missing["holds"]
    beside = next(it for name, it in bars.items() if "beside Kernel Tuner" in name)
    assert beside["value"] is None and not beside["holds"]
    lines = results.read_bytes()
    again = called(*options, "--results", str(results), "--report", "--check")
    assert again.returncode == 1 and results.read_bytes() == lines
    assert "LOW" in again.stdout and "P200 by space" in again.stdout


def test_there_are_no_spaces_here() -> None:
    done = called("--check")
    assert done.returncode == 2 and "--spaces needs a folder" in done.stderr
