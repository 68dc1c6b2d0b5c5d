"""Misconduct of scripted programs stays within what belongs to their host."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from autotune.testing.reference_backend import MISCONDUCT


@pytest.mark.parametrize("name", ["somebody", "autotune"])
def test_only_the_folder_of_a_host_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    worker = tmp_path / name / "worker-1"
    worker.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(worker))
    with pytest.raises(RuntimeError, match="no folder of a host, and stays"):
        MISCONDUCT["folder"]()
    assert worker.is_dir()


def test_the_folder_of_a_host_is_removed_and_nothing_once_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, other = tmp_path / "autotune-12345678" / "worker-1", tmp_path / "other" / "tmp"
    for folder in (worker, other):
        folder.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(worker))
    # What tempfile falls back to where TMPDIR is gone.
    monkeypatch.setattr(tempfile, "tempdir", str(other))
    for _ in range(2):
        MISCONDUCT["folder"]()
        assert not worker.parent.exists() and other.is_dir()


def test_without_a_folder_of_its_own_a_program_removes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "autotune-1" / "tmp"))
    with pytest.raises(RuntimeError, match="'' is no folder of a host"):
        MISCONDUCT["folder"]()
