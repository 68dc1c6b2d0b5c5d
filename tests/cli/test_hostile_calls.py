"""Commands in hostile environments, and with hostile files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from python_processes import start_python

from autotune.cli.output import write_text
from autotune.errors import InvalidValueError
from autotune.models.cost import ModelFile, model_file


def test_a_model_file_has_a_largest_size(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(model_file, "_MOST_BYTES", 8)
    (tmp_path / "model").write_bytes(bytes(8))
    ModelFile.at(tmp_path / "model")
    (tmp_path / "model").write_bytes(bytes(9))
    with pytest.raises(InvalidValueError, match="larger than 8 bytes"):
        ModelFile.at(tmp_path / "model")


@pytest.mark.parametrize(("closed", "status"), [(">&-", 2), ("2>&-", 0), ("<&- 2>&-", 0)])
@pytest.mark.promise(
    "closed standard streams",
    "one line, or the result; nothing is written to the database instead",
)
def test_closed_streams(closed: str, status: int, tuned_cli: Any) -> None:
    before = Path("autotune.db").read_bytes()
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m autotune best {closed}', sys.executable],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == status
    assert ("standard output is closed" in done.stderr) == (status == 2)
    assert "Traceback" not in done.stderr
    assert Path("autotune.db").read_bytes() == before


@pytest.mark.parametrize(
    ("encoding", "name", "shown"),
    [("ascii", "é.db", b"\\xe9.db is sound"), ("utf-8", "\udcff.db", b"\\udcff.db is sound")],
)
def test_what_the_encoding_of_the_output_lacks_is_written_out(
    encoding: str, name: str, shown: bytes, tuned_cli: Any
) -> None:
    shutil.copy("autotune.db", name)
    done = subprocess.run(
        [sys.executable, "-m", "autotune", "records", "check", "--database", name],
        env={**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert shown in done.stdout


def test_files_on_standard_output_are_utf_8(capfdbinary: Any) -> None:
    write_text("-", "é→")
    assert capfdbinary.readouterr().out == "é→".encode()


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
@pytest.mark.promise(
    "a signal during imports or at the end",
    "status 130 and no traceback",
)
def test_signals_during_imports_and_at_the_end(number: signal.Signals, tmp_path: Path) -> None:
    code = SIGNALLED.format(name=number.name)
    with start_python("-c", code, cwd=tmp_path) as process:
        stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 130
    assert stdout == "" and "Traceback" not in stderr
