"""Text files that may be anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import InvalidValueError
from autotune.ir import text_files
from autotune.ir.text_files import read_text_file


def test_a_file_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "MOST_BYTES", 8)
    path = tmp_path / "text"
    path.write_text("ünïcod")
    assert read_text_file(path) == "ünïcod"
    path.write_text("ünïcode")
    with pytest.raises(InvalidValueError, match="longer than 8 bytes"):
        read_text_file(path)
    with pytest.raises(InvalidValueError, match="'/dev/zero' is longer"):
        read_text_file("/dev/zero")


def test_what_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        read_text_file(tmp_path / "binary")
    with pytest.raises(FileNotFoundError):
        read_text_file(tmp_path / "missing")
