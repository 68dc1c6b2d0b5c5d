"""The benchmark of CUDA devices tunes, stops and goes on, on a device that is none."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmark_scripts import benchmark_scripts
from fake_cuda import FakeCuda
from process_facts import becomes_true

from autotune.store.database import Database
from autotune.store.sqlite import open_database

pytestmark = pytest.mark.slow
# Trials end a row long before its seconds do, however slow the machine.
SECONDS, TRIALS = "3600", 6


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    with benchmark_scripts("bench", "cuda_device", "support.cuda_rows") as modules:
        bench, device, rows = modules
        yield SimpleNamespace(bench=bench, cuda_device=device, cuda_rows=rows)


@pytest.fixture
def run(
    scripts: Any, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[], tuple[int, dict[str, Any]]]:
    """Runs a small row, without torch; returns the exit status and what was written."""
    del cuda
    rows = scripts.cuda_rows
    small = [rows.Case("softmax", "softmax", {"m": 8, "n": 64}, (rows.FP32,))]
    found = tmp_path / "found.json"
    arguments = ["--work", str(tmp_path / "work"), "--time", SECONDS, "--json", str(found)]
    monkeypatch.setattr(scripts.cuda_device, "MOST_TRIALS", TRIALS)
    monkeypatch.setattr(scripts.cuda_device, "rows_of", lambda _: small)
    monkeypatch.setitem(scripts.cuda_device.STEPS, "eager", lambda *_: {"latency": 1.0})

    def called() -> tuple[int, dict[str, Any]]:
        status = scripts.bench.main(["cuda_device", *arguments])
        return status, json.loads(found.read_text())

    return called


def opened(folder: Path) -> Database:
    """The database of the row."""
    (path,) = folder.glob("*/softmax-*/records-*.db")
    return open_database(path)


def trials_of(folder: Path) -> int:
    """Candidates in it; 0 where it is not there yet."""
    if not list(folder.glob("*/softmax-*/records-*.db")):
        return 0
    with opened(folder) as database:
        return database.count()


def test_rows_are_tuned_and_an_interrupted_one_goes_on(
    scripts: Any, run: Callable[[], tuple[int, dict[str, Any]]], tmp_path: Path
) -> None:
    original = subprocess.Popen.communicate

    def interrupted(process: Any, input: Any = None, timeout: float | None = None) -> Any:
        if "tune" not in process.args or timeout is not None:
            return original(process, input, timeout)
        # As Ctrl-C, while the tuner of the first row is waited for.
        assert becomes_true(lambda: trials_of(tmp_path / "work") > 0)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "communicate", interrupted)
        status, found = run()
    assert status == scripts.cuda_device.INTERRUPTED
    assert [row["left"] for row in found["rows"]] == [["tuned", "eager"]]
    before = trials_of(tmp_path / "work")
    assert before > 0

    status, found = run()
    assert status == 0
    (row,) = found["rows"]
    assert not row["left"] and not row["errors"]
    assert row["ratios"]["default"] >= 1.0 and row["ratios"]["eager"] > 1.0
    assert row["trials"] >= before
    assert trials_of(tmp_path / "work") >= before
    # It is one run, whose budget is that of both calls.
    with opened(tmp_path / "work") as database:
        (only,) = database.runs()
    assert only.status == "finished" and only.trials == TRIALS
