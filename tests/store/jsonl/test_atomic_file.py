"""Files that are there completely or not at all."""

from __future__ import annotations

import os
import signal
import stat
import threading
from pathlib import Path

import pytest
from python_processes import start_python

from autotune.errors import InvalidValueError
from autotune.store.jsonl import replacing


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path) as stream:
        stream.write(b"content")
        stream.flush()
        assert not path.exists()
    assert path.read_bytes() == b"content"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt), replacing(path) as stream:
        stream.write(b"after")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_killed_process_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    code = (
        "import sys, os, signal\nfrom autotune.store.jsonl import replacing\n"
        "with replacing(sys.argv[1]) as stream:\n"
        "    stream.write(b'x' * 1000000)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with start_python("-c", code, str(path)) as process:
        assert process.wait(300) == -signal.SIGKILL
    assert path.read_bytes() == b"before"


def test_modes_and_links_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"before")
    path.chmod(0o640)
    link.symlink_to(path)
    with replacing(link) as stream:
        stream.write(b"after")
    assert link.is_symlink() and path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    plain = tmp_path / "plain"
    plain.touch()
    with replacing(tmp_path / "new"):
        pass
    assert (tmp_path / "new").stat().st_mode == plain.stat().st_mode


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    with replacing(path) as stream:
        stream.write(b"content")
    reader.join(timeout=300)
    assert read == [b"content"]


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="is a folder"), replacing(tmp_path):
        pass
    missing = tmp_path / "a" / "b"
    with pytest.raises(InvalidValueError, match=r"b' cannot be written"), replacing(missing):
        pass
    with pytest.raises(InvalidValueError, match="No space"), replacing("/dev/full") as stream:
        stream.write(b"content")
