"""Attacks: each test is one case of a class, with a verdict that is counted.

The counts of every class are printed when the tests have run; see ``conftest.py`` at the root.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from command_lines import IN_PROCESS, TUNE

from autotune.cli.app import run

Verdict = Callable[[str], None]


@pytest.fixture
def verdict(request: pytest.FixtureRequest) -> Verdict:
    """Takes how a case ended, in a word or two, when everything about it has been checked."""
    properties = request.node.user_properties
    return lambda end: properties.append(("ended", end))


def pytest_runtest_setup(item: pytest.Item) -> None:
    mark = item.get_closest_marker("attack")
    if mark is not None:
        item.user_properties.append(("attack", *mark.args))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """A case without a verdict fails."""
    try:
        result = yield
    except pytest.skip.Exception:  # noqa: TID251
        item.user_properties.append(("ended", "skipped"))
        raise
    named = dict(item.user_properties)
    if "attack" in named and "ended" not in named:
        pytest.fail("the case ended without a verdict")
    return result


@frozen
class Done:
    """Outcome of a command."""

    status: int
    stdout: str
    stderr: str

    def line(self) -> str:
        """The one line of a command that refused, after warnings if there are any."""
        assert self.status == 2, self
        assert self.stdout == "", self
        *warnings, line = self.stderr.splitlines()
        assert all(" warning: " in warning for warning in warnings), self
        assert line.startswith("autotune: error: "), line
        assert len(line) < 2000 and line.isprintable(), line
        return line


@pytest.fixture
def command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Done]:
    """Runs a command in this process, in a folder of its own."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def called(*arguments: str) -> Done:
        capfd.readouterr()
        status = run(arguments)
        captured = capfd.readouterr()
        return Done(status, captured.out, captured.err)

    return called


@pytest.fixture(scope="session")
def tuned_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with one run of 20 trials."""
    path = tmp_path_factory.mktemp("tuned") / "autotune.db"
    assert run((*TUNE, *IN_PROCESS, "--trials", "20", "--quiet", "--database", str(path))) == 0
    return path


@pytest.fixture
def with_database(command: Callable[..., Done], tuned_database: Path) -> Callable[..., Done]:
    """Runs commands in a folder where there is a database."""
    shutil.copy(tuned_database, "autotune.db")
    return command
