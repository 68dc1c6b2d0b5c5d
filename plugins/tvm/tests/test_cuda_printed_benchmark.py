"""The benchmark of printed kernels judges them by families, on a device that is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmark_scripts import benchmark_scripts
from fake_cuda import FakeCuda

from autotune.ir.workloads import cumsum, elementwise

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    with benchmark_scripts("bench", "cuda_printed") as (bench, printed):
        yield SimpleNamespace(bench=bench, printed=printed)


@pytest.fixture
def cases(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workloads of one sketch each."""
    small = {"elementwise9": elementwise(m=9, n=8), "cumsum7": cumsum(m=7, n=12, axis=0)}
    monkeypatch.setattr(scripts.printed, "workloads", lambda _: iter(small.items()))


@pytest.mark.usefixtures("cases")
def test_families_are_right_or_named(
    scripts: Any, cuda: FakeCuda, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cuda.fail(1, "nothing")
    found = tmp_path / "found.json"
    arguments = ["cuda_printed", "--quick", "--check", "--json", str(found)]
    assert scripts.bench.main(arguments) == 1
    said = capsys.readouterr().out
    assert "elementwise: printed kernels that are not right: 1" in said
    assert "cumsum               1 of 1 right, " in said
    rows = json.loads(found.read_text())["rows"]
    assert [row["family"] for row in rows] == ["elementwise", "cumsum"]
    assert [row["statuses"]["cuda"] for row in rows] == ["wrong_result", "ok"]
    assert all(row["statuses"]["tvm"] == "ok" for row in rows)


@pytest.mark.usefixtures("cases", "cuda")
def test_what_would_end_too_late_is_left_out(
    scripts: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = count(step=60)
    options = SimpleNamespace(limit=150.0, quick=True)
    report = scripts.printed.run(options, clock=lambda: float(next(seconds)))
    assert report.data["left"] == ["cumsum7"]
    assert "left out, as there was no time: cumsum7" in capsys.readouterr().out
    assert {bar.name.partition(":")[0] for bar in report.bars} == {"elementwise"}
