"""A file of results that grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import InvalidValueError
from autotune.evaluation.compare import append_piece, read_pieces


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.jsonl"
    append_piece(path, {"seed": 0})
    append_piece(path, {"seed": 1})
    return path


def test_pieces_are_kept(results: Path) -> None:
    assert read_pieces(results) == [{"seed": 0}, {"seed": 1}]
    assert read_pieces(results.with_name("none.jsonl")) == []


def test_a_piece_that_was_cut_off_is_replaced(results: Path) -> None:
    whole = results.read_bytes()
    results.write_bytes(whole[:-3])
    assert read_pieces(results) == [{"seed": 0}]
    append_piece(results, {"seed": 1})
    assert results.read_bytes() == whole


@pytest.mark.parametrize("line", ["[1]", "{", "4", "[" * 100_000])
def test_a_whole_line_that_is_no_piece_is_named(results: Path, line: str) -> None:
    with results.open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(InvalidValueError, match="line 3 of the results file '.*' is no result"):
        read_pieces(results)


def test_what_is_no_text_is_no_results_file(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\n")
    for path in (tmp_path / "binary", tmp_path):
        with pytest.raises(InvalidValueError, match="cannot read the results file"):
            read_pieces(path)
