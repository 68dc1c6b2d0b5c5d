"""Kept speedups are found for the same question only, and are never in the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from autotune_tvm.networks.kept_speedups import KeptSpeedups, user_file
from autotune_tvm.networks.passes import expected_costs, layouts
from autotune_tvm.networks.passes.layouts import choose_layout
from autotune_tvm.networks.pipeline import passes_for
from relax_networks import const, network, op, weights

from autotune.targets import Target


def convolution(channels: int, seed: int = 0) -> Any:
    """A network of one convolution."""
    kernel = const(weights(channels, 4, 3, 3, seed=seed))
    return network([((1, 4, 6, 6), "float32")], lambda emit, x: emit(op.nn.conv2d(x, kernel)))


def test_a_network_is_scored_once_for_a_machine(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(layouts, "expected_speedup", lambda *given: asked.append(given) or 1.5)
    kept = KeptSpeedups(tmp_path / "new" / "speedups.json")
    first = choose_layout(convolution(8), target, kept)[1]
    assert "1.50 times" in first and len(asked) == 1
    # Other weights make no difference; other shapes, cores and versions do.
    assert choose_layout(convolution(8, seed=9), target, kept)[1] == first
    assert len(asked) == 1
    choose_layout(convolution(16), target, kept)
    choose_layout(convolution(8), target.with_cores(target.cores + 1), kept)
    for part in (expected_costs.SketchSpace, expected_costs.PSA, expected_costs.TVMBackend):
        with monkeypatch.context() as patch:
            patch.setattr(part, "version", "another")
            choose_layout(convolution(8), target, kept)
    assert len(asked) == 6
    assert len(json.loads(kept.path.read_text())["speedups"]) == 6


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
    monkeypatch.setattr("autotune_tvm.networks.kept_speedups._MOST", 2)
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


def test_a_user_without_a_home_keeps_nothing(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", home)
    assert user_file() is None
    asked = []
    monkeypatch.setattr(layouts, "expected_speedup", lambda *given: asked.append(given) or 1.5)
    for _ in range(2):
        passes_for(target)["layouts"](convolution(8))
    assert len(asked) == 2
