"""Running the command line, in this process and in others."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import frozen
from command_lines import IN_PROCESS, TUNE, Done
from python_processes import start_python

from autotune.cli.app import run


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

    def tune(self, *arguments: str) -> Done:
        """``autotune tune gemm`` with parts that need neither a compiler nor workers."""
        return self(*TUNE, *IN_PROCESS, *arguments)

    def tune_with_workers(self, *arguments: str) -> Done:
        """``autotune tune gemm`` with parts that need no compiler, timed in other processes."""
        return self(*TUNE, *arguments)

    def files(self) -> set[str]:
        """Names of the files in the folder."""
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
def cli(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capfd)


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the database and the result of one run of 20 trials, to be copied."""
    folder = tmp_path_factory.mktemp("tuned")
    files = ("--database", str(folder / "autotune.db"), "--json", str(folder / "out.json"))
    assert run((*TUNE, *IN_PROCESS, "--trials", "20", "--quiet", *files)) == 0
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
        return start_python("-m", "autotune", *arguments, cwd=tmp_path, **environment)

    return start
