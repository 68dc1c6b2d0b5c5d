"""Running the command line, in this process and in others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import frozen

from autotune.cli.app import run
from autotune.testing.toy_parts import REFERENCE_BACKEND, TOY_SPACE

PARTS = ("--backend", REFERENCE_BACKEND, "--space", TOY_SPACE, "--cost-model", "random")


@frozen
class Done:
    """What a command did."""

    status: int
    stdout: str
    stderr: str


@frozen
class Cli:
    """Runs commands in a folder of their own."""

    folder: Path
    capture: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> Done:
        """Run a command in this process."""
        self.capture.readouterr()
        status = run(arguments)
        captured = self.capture.readouterr()
        return Done(status, captured.out, captured.err)

    def tune(self, *arguments: str, shape: str = "m=8,n=8,k=8") -> Done:
        """``autotune tune gemm`` with parts that need no compiler."""
        return self("tune", "gemm", "--shape", shape, *PARTS, "--threads", "1", *arguments)

    def files(self) -> set[str]:
        """Names of the files in the folder."""
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
def cli(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capsys)


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the database and the result of one run of 20 trials, to be copied."""
    folder = tmp_path_factory.mktemp("tuned")
    files = ("--database", str(folder / "autotune.db"), "--json", str(folder / "out.json"))
    options = ("--threads", "1", "--trials", "20", "--quiet")
    assert run(("tune", "gemm", "--shape", "m=8,n=8,k=8", *PARTS, *options, *files)) == 0
    return folder


@pytest.fixture
def tuned_cli(cli: Cli, tuned: Path) -> Cli:
    """Runs commands in a folder where a run has ended."""
    shutil.copytree(tuned, cli.folder, dirs_exist_ok=True)
    return cli


Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def spawn(tmp_path: Path) -> Spawn:
    """Starts ``autotune ...`` as a process, in the folder of the test."""

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        return subprocess.Popen(
            [sys.executable, "-m", "autotune", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, **environment},
            start_new_session=True,
        )

    return start
