from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from process_facts import becomes_true
from small_disk import run_on_small_disk

from autotune.process import private_folder
from autotune.process.private_folder import make_private_folder
from autotune.process.processes import marked_processes
from autotune.process.stale_folders import remove_if_abandoned, remove_stale_folders


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


def test_a_folder_that_was_removed_is_made_again_and_held(temporary_directory: Path) -> None:
    folder = make_private_folder()
    shutil.rmtree(folder.path)
    folder.restore()
    (folder.path / "worker-1").mkdir()
    assert remove_stale_folders(temporary_directory) == []
    folder.restore()
    # As a process that was killed lets go of it: the next one removes it.
    os.close(folder.descriptor)
    assert remove_stale_folders(temporary_directory) == [folder.path]


def test_a_folder_that_is_still_being_removed_is_made_again_after_that(
    temporary_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_private_folder()
    shutil.rmtree(folder.path)
    opened, removals = os.open, [1, 2, 3]

    def open_late(path: object, *options: Any, **named: Any) -> int:
        # Between the folder and its lock.
        if removals and str(path).endswith("lock.new"):
            removals.pop()
            shutil.rmtree(folder.path)
        return opened(path, *options, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("os.open", open_late)
    folder.restore()
    assert not removals and (folder.path / "lock").exists()
    assert remove_stale_folders(temporary_directory) == []


def test_a_folder_left_behind_is_removed_by_the_next(temporary_directory: Path) -> None:
    left = temporary_directory / "autotune-left"
    left.mkdir()
    (left / "lock").write_text("")
    (left / "input-0.npy").write_text("")
    folder = make_private_folder()
    assert not left.exists()
    folder.remove()


@pytest.mark.parametrize("files", [[], ["lock.new"]])
def test_a_folder_whose_maker_was_killed_is_removed_when_it_is_old(
    temporary_directory: Path, files: list[str]
) -> None:
    path = temporary_directory / "autotune-unfinished"
    path.mkdir()
    for name in files:
        (path / name).write_text("")
    assert remove_stale_folders(temporary_directory) == []
    os.utime(path, (0, 0))
    assert remove_stale_folders(temporary_directory) == [path]
    assert list(temporary_directory.iterdir()) == []


def test_a_removal_that_was_interrupted_can_be_resumed(temporary_directory: Path) -> None:
    folder = make_private_folder()
    (folder.path / "worker-1").mkdir()
    (folder.path / "worker-1" / "file").write_text("")
    # Not removable: the folder of a process that still writes to it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda path, **options: None)
        folder.remove()
    assert remove_stale_folders(temporary_directory) == [folder.path]
    assert list(temporary_directory.iterdir()) == []


def test_a_folder_is_abandoned_when_no_worker_is_left(temporary_directory: Path) -> None:
    folder = make_private_folder()
    remove_if_abandoned(folder.path)
    assert folder.path.is_dir()  # held
    os.close(folder.descriptor)
    inputs, worker = folder.path / "inputs", folder.path / "worker-1"
    inputs.mkdir()
    worker.mkdir()
    with subprocess.Popen(["sleep", "60"], env={"TMPDIR": str(worker)}) as process:
        assert becomes_true(lambda: marked_processes(worker) == [process.pid])
        remove_if_abandoned(folder.path)
        assert inputs.is_dir()  # another worker is still being ended
        process.kill()
    remove_if_abandoned(folder.path)
    assert list(temporary_directory.iterdir()) == []
    remove_if_abandoned(folder.path)


MAKE_FOLDER = """
from autotune.process import WorkerStartFailed, make_private_folder
try:
    make_private_folder()
except WorkerStartFailed as error:
    print(error)
"""


def test_no_room_for_a_folder(tmp_path: Path) -> None:
    said = run_on_small_disk(MAKE_FOLDER, tmp_path, "size=64k,nr_inodes=2")
    assert "No space left on device" in said
    assert f"make room in {tmp_path}, or set TMPDIR" in said


def test_what_is_not_such_a_folder_stays(temporary_directory: Path) -> None:
    (temporary_directory / "autotune-notes").mkdir()
    (temporary_directory / "autotune-file").write_text("")
    assert remove_stale_folders(temporary_directory) == []
    assert len(list(temporary_directory.iterdir())) == 2


@pytest.mark.parametrize("named", ["", "there", "missing"])
def test_the_directory_is_the_one_that_tempfile_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    if named:
        monkeypatch.setenv("TMPDIR", str(tmp_path / named))
    before = sorted(tmp_path.rglob("*"))
    chosen = private_folder.temporary_directory()
    # Nothing is written to find out: who is killed then would leave it.
    assert tempfile.tempdir is None and sorted(tmp_path.rglob("*")) == before
    assert chosen == Path(tempfile.gettempdir())
