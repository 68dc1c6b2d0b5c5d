from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from python_processes import run_python

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"

# As `one_worker` in this process: with a compiler, each further one is a third of a small run.
_ONE_WORKER = """
from autotune.process import memory
memory.affordable_workers = lambda *_: 1
"""
_COMMAND_LINE = """
import runpy
runpy.run_module("autotune", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Runs this Python in a folder with nothing but example programs; returns its output."""
    for program in (EXAMPLES / "external").glob("*.*"):
        (tmp_path / program.name).write_text(program.read_text())
    for program in EXAMPLES.glob("*.mlir"):
        (tmp_path / program.name).write_text(program.read_text().replace("512", "64"))

    def run_there(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
        return run_python(*arguments, cwd=tmp_path, **(environment or {}))

    return run_there


@pytest.fixture
def run_code(run: Callable[..., str]) -> Callable[[str], str]:
    """Runs Python code as ``run`` does; tuning starts one worker."""
    return lambda code: run(["-c", _ONE_WORKER + code])


@pytest.fixture
def run_command(run: Callable[..., str]) -> Callable[[Sequence[str]], str]:
    """Runs ``autotune ...`` as ``run`` does; tuning starts one worker."""
    return lambda arguments: run(["-c", _ONE_WORKER + _COMMAND_LINE, *arguments])
