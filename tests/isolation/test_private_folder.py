from __future__ import annotations

from pathlib import Path

import pytest

from autotune.isolation.private_folder import make_private_folder, remove_stale_folders


@pytest.fixture(autouse=True)
def temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_goes_when_it_is_removed(temporary_directory: Path) -> None:
    folder = make_private_folder()
    (folder.path / "file").write_text("")
    folder.remove()
    assert list(temporary_directory.iterdir()) == []


def test_a_folder_in_use_stays(temporary_directory: Path) -> None:
    folder = make_private_folder()
    assert remove_stale_folders(temporary_directory) == []
    other = make_private_folder()
    assert folder.path.is_dir()
    for each in (folder, other):
        each.remove()


def test_a_folder_left_behind_is_removed_by_the_next(temporary_directory: Path) -> None:
    left = temporary_directory / "autotune-left"
    left.mkdir()
    (left / "lock").write_text("")
    (left / "input-0.npy").write_text("")
    folder = make_private_folder()
    assert not left.exists()
    folder.remove()


def test_what_is_not_such_a_folder_stays(temporary_directory: Path) -> None:
    (temporary_directory / "autotune-notes").mkdir()
    (temporary_directory / "autotune-file").write_text("")
    assert remove_stale_folders(temporary_directory) == []
    assert len(list(temporary_directory.iterdir())) == 2
