"""Calls that are meant to break something end with one line and status 2."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_lines import IN_PROCESS, TUNE
from python_processes import start_python

from autotune.errors import InvalidValueError
from autotune.models.cost import ModelFile, model_file

HUGE = 10**30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*TUNE, "--trials", str(HUGE)), f"trials must be a whole number .*, not {HUGE}"),
        ((*TUNE, "--seed", str(HUGE)), f"seed must be a whole number .*, not {HUGE}"),
        ((*TUNE, "--round-size", str(HUGE)), f"round_size must be a whole number .*, not {HUGE}"),
        ((*TUNE, "--backend", "json:JSONDecoder"), "backend 'json:JSONDecoder' failed"),
        ((*TUNE, "--target", "deep.json"), "'deep.json' is not a JSON file"),
        ((*TUNE, "--load-cost-model", "/dev/zero"), "no regular file"),
        (("explain", "gemm", "--config", "deep.json"), "'deep.json' is not of the form"),
        (("train", "record", "--tasks", "deep.json"), "'deep.json' is no task list"),
        (("best", "--database", "loop.db"), "there is no such file|Too many levels"),
        (("best", "--database", "a" * 300), "File name too long"),
        (("best", "--json", "a" * 300), "File name too long"),
        (("tune", "gemm", "--shape", "m=\u0663,n=8,k=8"), "m must be a whole number"),
        (("tune", "gemm", "--shape", "m=1_0,n=8,k=8"), "m must be a whole number"),
        (("best", "gemm", "--shape", "m=\u0663,n=8,k=8"), "m must be a whole number"),
    ],
)
def test_a_hostile_call_is_one_line(arguments: tuple[str, ...], message: str, cli: Any) -> None:
    Path("deep.json").write_text("[" * 100_000)
    os.symlink("loop.db", "loop.db")
    done = cli(*arguments)
    assert done.status == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("autotune: error: ") and re.search(message, line), line


@pytest.mark.parametrize("size", [2**20, 2**32])
def test_tensors_that_no_memory_holds_are_refused_with_their_bytes(size: int, cli: Any) -> None:
    shape = f"m={size},n={size},k={size}"
    done = cli("tune", "gemm", *TUNE[4:], *IN_PROCESS, "--shape", shape, "--quiet")
    assert done.status == 2
    assert f"its inputs and outputs are {3 * 4 * size * size} bytes" in done.stderr


def test_a_model_file_has_a_largest_size(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(model_file, "_MOST_BYTES", 8)
    (tmp_path / "model").write_bytes(bytes(8))
    ModelFile.at(tmp_path / "model")
    (tmp_path / "model").write_bytes(bytes(9))
    with pytest.raises(InvalidValueError, match="larger than 8 bytes"):
        ModelFile.at(tmp_path / "model")


@pytest.mark.parametrize(("closed", "status"), [(">&-", 2), ("2>&-", 0), ("<&- 2>&-", 0)])
def test_closed_streams(closed: str, status: int, tuned_cli: Any) -> None:
    before = Path("autotune.db").read_bytes()
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m autotune best {closed}', sys.executable],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status
    assert ("standard output is closed" in done.stderr) == (status == 2)
    assert "Traceback" not in done.stderr
    assert Path("autotune.db").read_bytes() == before


SIGNALLED = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "autotune.cli.app":
            os.kill(os.getpid(), signal.{name})
sys.meta_path.insert(0, Finder())
import atexit
atexit.register(lambda: os.kill(os.getpid(), signal.{name}))
from autotune.cli import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_during_imports_and_at_the_end(number: signal.Signals, tmp_path: Path) -> None:
    code = SIGNALLED.format(name=number.name)
    with start_python("-c", code, cwd=tmp_path) as process:
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stdout == "" and "Traceback" not in stderr
