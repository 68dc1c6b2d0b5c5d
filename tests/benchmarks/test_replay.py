"""`replay` on small spaces: pieces, the table, and bars that can fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import benchmark_scripts
from recorded_spaces import small_space

from autotune.evaluation.replay.formats import space_bytes


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    with benchmark_scripts("bench") as (module,):
        yield module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "spaces"
    folder.mkdir()
    for name in ("bowl-one.json.gz", "bowl-one.t4.json", "other-two.t4.json"):
        path = folder / name
        path.write_bytes(space_bytes(small_space(name.partition(".")[0]), None, str(path)))
    (folder / "bowl.t1.json").write_bytes(space_bytes(small_space(), None, "bowl.t1.json"))
    return folder


def test_runs_are_kept_and_judged(
    bench: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--spaces", str(folder), "--strategies", "random,grid", "--seeds", "2")
    results, written = folder.parent / "runs.jsonl", folder.parent / "out.json"
    kept = ["replay", *options, "--results", str(results)]
    assert bench.main([*kept, "--json", str(written)]) == 0
    data: dict[str, Any] = json.loads(written.read_text())
    assert [it["name"] for it in data["spaces"]] == ["bowl-one", "other-two"]
    assert {it["strategy"]: it["runs"] for it in data["strategies"]} == {"random": 4, "grid": 4}
    bars = {it["name"]: it for it in data["bars"]}
    missing = next(it for name, it in bars.items() if "neither in the table" in name)
    assert missing["value"] >= 1 and not missing["holds"]
    beside = next(it for name, it in bars.items() if "beside Kernel Tuner" in name)
    assert beside["value"] is None and not beside["holds"]
    lines = results.read_bytes()
    capsys.readouterr()
    assert bench.main([*kept, "--report", "--check"]) == 1 and results.read_bytes() == lines
    shown = capsys.readouterr().out
    assert "LOW" in shown and "P200 by space" in shown
