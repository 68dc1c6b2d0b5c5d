"""What scripted programs do wrong stays within what belongs to their host."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from autotune.testing.misconduct import MISCONDUCT


@pytest.mark.parametrize("name", ["somebody", "autotune"])
def test_only_the_folder_of_a_host_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A worker whose environment was cleared takes /tmp for its own, below the root of it all."""
    worker = tmp_path / name / "worker-1"
    worker.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(worker))
    with pytest.raises(RuntimeError, match="no folder of a host, and stays"):
        MISCONDUCT["folder"]()
    assert worker.is_dir()


def test_the_folder_of_a_host_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = tmp_path / "autotune-12345678" / "worker-1"
    worker.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(worker))
    MISCONDUCT["folder"]()
    assert not worker.parent.exists() and tmp_path.is_dir()
