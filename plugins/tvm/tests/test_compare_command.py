"""``autotune compare`` with a real compiler and the strategy of the gallery."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from python_processes import run_python

GALLERY = Path(__file__).resolve().parents[3] / "docs" / "gallery"


@pytest.mark.slow
def test_a_strategy_of_ones_own_beside_random(tmp_path: Path) -> None:
    path = os.pathsep.join([str(GALLERY), *filter(None, sys.path)])
    command = ("-m", "autotune", "compare", "gemm:m=32,n=32,k=32", "--threads", "1")
    command += ("--contender", "draft=--strategy own_strategy:Draft")
    budget = ("--trials", "4", "--round-size", "4", "--seeds", "1")
    shown = run_python(*command, *budget, "--json", "out.json", cwd=tmp_path, PYTHONPATH=path)
    assert "draft" in shown and "one seed: there are no intervals" in shown
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["failures"] == []
    (workload,) = report["workloads"]
    found = {it["contender"]: it for it in workload["contenders"]}
    assert set(found) == {"random", "draft"}
    assert 0 < workload["best_known"] == min(it["latency"]["value"] for it in found.values())
    assert all(1 <= point["trials"] <= 4 for run in report["runs"] for point in run["points"])
