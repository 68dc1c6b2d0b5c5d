"""Benchmarks are run: rows, options, status, what is written, contenders in turn, and bars."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import BENCHMARKS, benchmark_scripts
from recorded_spaces import small_space
from toy_parts import REFERENCE_BACKEND

from autotune.errors import InvalidValueError
from autotune.evaluation.replay.formats import space_bytes
from autotune.ir.workloads import gemm

pytestmark = pytest.mark.needs("ortools", "tvm")


with benchmark_scripts("backends", "support.backend_workloads", "support.common") as scripts:
    backends, operators, common = scripts


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    with benchmark_scripts("bench") as (module,):
        yield module


def test_every_row_says_what_it_takes(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main([]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == list(bench.rows()) and len(listed) > 20
    for row in listed:
        with pytest.raises(SystemExit) as ended:
            bench.main([row, "--help"])
        said = capsys.readouterr().out
        assert ended.value.code == 0 and f"bench.py {row}" in said and "--check" in said


def test_every_row_is_documented(bench: Any) -> None:
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(documented) == sorted(bench.rows())


def test_an_unknown_row_is_one_line(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["peak", "gem", "--quick"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: no row 'gem'; rows: backends, ")


@pytest.fixture
def spaces(tmp_path: Path) -> Path:
    folder = tmp_path / "spaces"
    folder.mkdir()
    for name in ("bowl-one.json.gz", "bowl-one.t4.json", "other-two.t4.json"):
        path = folder / name
        path.write_bytes(space_bytes(small_space(name.partition(".")[0]), None, str(path)))
    (folder / "bowl.t1.json").write_bytes(space_bytes(small_space(), None, "bowl.t1.json"))
    return folder


def test_a_row_is_run_goes_on_and_its_bars_are_checked(
    bench: Any, spaces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--spaces", str(spaces), "--strategies", "random,grid", "--seeds", "2")
    results, written = spaces.parent / "runs.jsonl", spaces.parent / "out.json"
    kept = ["replay", *options, "--results", str(results)]
    assert bench.main([*kept, "--json", str(written)]) == 0
    data: dict[str, Any] = json.loads(written.read_text())
    assert data["machine"]["cores"] > 0
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


def test_several_rows_have_a_process_each_and_the_worst_status(
    bench: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "found"
    # One needs a folder of spaces, the other has a device, or says that there is none.
    assert bench.main(["replay", "cuda_network", "--quick", "--json", str(folder)]) == 2
    captured = capfd.readouterr()
    assert "--spaces needs a folder" in captured.err and "== cuda_network" in captured.out
    assert folder.is_dir()


def test_rows_are_tuned_as_what_they_are() -> None:
    for row in backends.ROWS:
        name, shape, arguments = row.tuned()
        if "--importer" in arguments:
            (read,) = operators.RowImporter().read(name)
            assert read == row.made() and not shape
        else:
            assert (name, dict(shape)) == (row.workload, dict(row.shape))
    with pytest.raises(InvalidValueError, match="'argmin' is not one of argmax, "):
        operators.RowImporter().read("argmin m=3 n=4")


def test_every_row_has_a_bar_but_those_with_a_reason() -> None:
    names = {row.name for row in backends.ROWS}
    assert set(backends.REASONS) <= names
    for threads in (1, 2):
        trials = [
            backends.Trial(name, threads, 0, final={"native": [1.0], "mlir": [1.31]})
            for name in names
        ]
        failed = {bar.name for bar in backends.bars_of(trials) if "mlir over ours" in bar.name}
        free = set(backends.REASONS if threads > 1 else ())
        assert len(failed) == len(names - free)


def test_contenders_have_their_turns_and_those_that_fail_are_told(tmp_path: Path) -> None:
    workload = gemm(m=8, n=8, k=8).to_json()
    numpy = {"kind": "numpy", "workload": workload, "threads": 1, "backend": REFERENCE_BACKEND}
    none = {**numpy, "kind": "record", "database": str(tmp_path / "none.db")}
    turns = common.Turns(rounds=3, pause=0.0, samples=2, sample_seconds=1e-5)
    requests = {name: (it, sys.executable) for name, it in (("numpy", numpy), ("none", none))}
    found, errors = common.compare(requests, turns)
    assert list(found) == ["numpy"] and len(found["numpy"]) == 3
    assert all(0 < seconds < 60 for seconds in found["numpy"])
    assert list(errors) == ["none"]


def test_a_contender_that_dies_in_its_turn_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = """import json, sys
print(json.dumps({"ready": True}), flush=True)
for number, _ in enumerate(sys.stdin):
    if json.loads(sys.argv[1])["dies"] and number:
        sys.exit(1)
    print(json.dumps({"seconds": 1.0}), flush=True)
"""
    (tmp_path / "serve.py").write_text(server)
    monkeypatch.setattr(common, "SUPPORT", tmp_path)
    monkeypatch.setattr(common, "environment", lambda *_: dict(os.environ))
    requests = {name: ({"dies": name == "weak"}, sys.executable) for name in ("weak", "strong")}
    found, errors = common.compare(requests, common.Turns(rounds=4, pause=0.0))
    assert found == {"strong": [1.0] * 4}
    assert errors == {"weak": "in its turn: it ended"}


def test_a_bar_that_is_missed_by_little_does_not_read_like_one_that_is_kept() -> None:
    missed = common.Bar("time over theirs", 1.0003, 1.0, at_most=True)
    assert str(missed) == "HIGH  time over theirs: 1.0003, wanted <= 1"
    assert str(common.Bar("time over theirs", 1.0, 1.0, at_most=True)).startswith("ok ")
    assert str(common.Bar("trials", 17.04, 100, at_most=True)) == "ok   trials: 17, wanted <= 100"


def test_a_bar_beyond_the_peak_of_the_machine_promises_nothing_there() -> None:
    final = {"autotune": [1.05], "metaschedule": [1.2], "peak": [0.98]}
    trial = common.Trial(0, {}, 1.0, None, final, {})
    ceiling = common.metaschedule_ceiling([trial])
    assert ceiling == pytest.approx(common.REACHABLE * 1.2 / 0.98)
    bar = common.Bar("times theirs", trial.ratio("metaschedule"), 1.5, ceiling=ceiling)
    assert bar.holds and str(bar).startswith("n/a  times theirs: 1.14, wanted >= 1.5, but 85%")
    assert not common.Bar("times theirs", 1.14, 1.5, ceiling=1.6).holds
    assert not common.Bar("times theirs", 1.14, 1.5).holds
