"""Speedups that are kept in a file, which is never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.networks.passes.expected_costs import KeptSpeedups, user_file


def test_what_cannot_be_expressed_is_kept_too(tmp_path: Path) -> None:
    kept = KeptSpeedups(tmp_path / "speedups.json")
    assert kept.find("a") is None
    kept.keep("a", None)
    kept.keep("b", 2.0)
    assert (kept.find("a"), kept.find("b"), kept.find("c")) == ((None,), (2.0,), None)


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff\x00",
        b"[" * 100_000,
        b"[]",
        b'{"schema": "autotune.layout_speedups", "version": 2, "speedups": {"a": 2.0}}',
        b'{"schema": "another", "version": 1, "speedups": {"a": 2.0}}',
        b'{"schema": "autotune.layout_speedups", "version": 1, "speedups": [["a", 2.0]]}',
        b'{"schema": "autotune.layout_speedups", "version": 1, "speedups": {"a": NaN}}',
        b'{"schema": "autotune.layout_speedups", "version": 1, "speedups": {"a": -1.0}}',
        b'{"schema": "autotune.layout_speedups", "version": 1, "speedups": {"a": "2"}}',
    ],
)
def test_a_damaged_file_counts_as_empty_and_is_replaced(tmp_path: Path, damage: bytes) -> None:
    kept = KeptSpeedups(tmp_path / "speedups.json")
    kept.path.write_bytes(damage)
    assert kept.find("a") is None
    kept.keep("a", 3.0)
    assert kept.find("a") == (3.0,)


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for path in (tmp_path / "file" / "speedups.json", tmp_path):
        kept = KeptSpeedups(path)
        kept.keep("a", 1.0)
        assert kept.find("a") is None


def test_the_oldest_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.networks.passes.expected_costs._MOST_KEPT", 2)
    kept = KeptSpeedups(tmp_path / "speedups.json")
    for number, key in enumerate("abac"):
        kept.keep(key, 1.0 + number)
    assert [kept.find(key) for key in "abc"] == [(3.0,), None, (4.0,)]


def test_the_file_is_in_the_folder_for_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert user_file() == Path("/caches/autotune/layouts.json")
    monkeypatch.setenv("HOME", "/home/somebody")
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert user_file() == Path("/home/somebody/.cache/autotune/layouts.json")
