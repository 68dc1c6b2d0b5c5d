from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.process import WorkerDied, ask_isolated, ask_once
from autotune.process.processes import marked_processes


@pytest.fixture(autouse=True)
def temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_an_answer(temporary_directory: Path) -> None:
    assert ask_once("answering_child", {"op": "double", "number": 4}, 1, 60) == {"done": {"is": 8}}
    assert list(temporary_directory.iterdir()) == []


def test_a_failure() -> None:
    answer = ask_once("answering_child", {"op": "fail"}, 1, 60)
    assert answer == {"failed": "RuntimeError: cannot"}


def test_an_end_without_an_answer(temporary_directory: Path) -> None:
    with pytest.raises(WorkerDied, match="exited with status 5"):
        ask_once("answering_child", {"op": "leave"}, 1, 60)
    assert list(temporary_directory.iterdir()) == []


def test_no_answer_in_time(temporary_directory: Path) -> None:
    with pytest.raises(TimeoutError, match=r"no answer in 0\.5 s"):
        ask_once("answering_child", {"op": "hang"}, 1, 0.5)
    assert list(temporary_directory.iterdir()) == []
    assert marked_processes(temporary_directory) == []


@pytest.mark.parametrize(
    ("op", "seconds", "said"),
    [
        ("leave", 60, "x cannot be read: the process that reads it: exited with status 5"),
        ("hang", 0.5, "x cannot be read: the process that reads it: no answer in 0.5 s"),
        ("fail", 60, "x cannot be read: RuntimeError: cannot"),
    ],
)
def test_every_end_but_an_answer_is_an_error_that_the_caller_chooses(
    op: str, seconds: float, said: str
) -> None:
    for kind in (InvalidValueError, UnsupportedWorkload):
        with pytest.raises(kind) as caught:
            ask_isolated("x cannot be read", "answering_child", {"op": op}, 1, seconds, kind)
        assert str(caught.value) == said
