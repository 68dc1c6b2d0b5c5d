"""Kept speedups are found for the same question only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from autotune_tvm.networks.passes import expected_costs, layouts
from autotune_tvm.networks.passes.layouts import choose_layout
from autotune_tvm.networks.pipeline import passes_for
from relax_networks import const, network, op, weights

from autotune.networks.kept_speedups import KeptSpeedups, user_file
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
