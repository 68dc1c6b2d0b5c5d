"""The replay of measured GPU kernels: from candidates to a table, and what falls short."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import benchmark_scripts

pytestmark = pytest.mark.needs("tvm")


@pytest.fixture(scope="module")
def scripts() -> Iterator[tuple[Any, Any]]:
    with benchmark_scripts("gpu_replay", "cuda_candidates") as modules:
        yield modules


@pytest.fixture
def measured(scripts: Any, tmp_path: Path) -> Path:
    """A space of 120 candidates of one product, with latencies that nothing knows."""
    row: dict[str, Any] = {
        "case": "a",
        "small": False,
        "outcome": "ok",
        "drawn_by": ["R"],
        "workload": "gemm",
        "parameters": {"m": 64, "n": 64, "k": 64},
    }
    rng = np.random.default_rng(0)
    drawn = scripts[1].space_of([row]).sample(120, rng)
    path = tmp_path / "measured.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for it in drawn:
            own = {"sketch": it.sketch.name, "config": it.config, "latency": rng.uniform(1, 9)}
            file.write(json.dumps({**row, **own}) + "\n")
    return path


def test_from_measured_candidates_to_a_table(
    scripts: Any, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, written = measured.with_name("runs.jsonl"), measured.with_name("out.json")
    asked = [
        "gpu_replay.py",
        "--candidates",
        str(measured),
        "--strategies",
        "random,grid",
        "--seeds",
        "2",
    ]
    asked += ["--results", str(results), "--json", str(written)]
    monkeypatch.setattr("sys.argv", asked)
    assert scripts[0].main() == 0
    lines = results.read_bytes()
    assert lines.count(b"\n") == 4
    data = json.loads(written.read_text())
    assert data["spaces"] == 1
    for row in data["strategies"].values():
        values = [it["value"] for it in row]
        assert values == sorted(values, reverse=True) and min(values) >= 1
    # What was run is not run again; `pruner` was not asked for, so its bar is not kept.
    monkeypatch.setattr("sys.argv", [*asked, "--report", "--check"])
    assert scripts[0].main() == 1 and results.read_bytes() == lines
    share, beside = json.loads(written.read_text())["bars"]
    assert share["holds"] and beside["value"] is None and not beside["holds"]


def test_intervals_hold_the_mean_and_bars_can_fail(scripts: Any) -> None:
    regrets = np.random.default_rng(1).uniform(0, 0.5, (6, 10, 4))
    found = scripts[0].figures(regrets[:, :, 0])
    assert 1 < found["low"] < found["value"] < found["high"] < np.exp(0.5)
    better = {"pruner": regrets / 2, "random": regrets}
    assert all(bar.holds for bar in scripts[0].bars_of(better, 5, 5))
    worse = {"pruner": regrets, "random": regrets / 2}
    assert not any(bar.holds for bar in scripts[0].bars_of(worse, 4, 5))
