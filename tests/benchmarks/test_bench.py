"""The command that runs benchmarks: its rows, their options, its status and what it writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import BENCHMARKS, benchmark_scripts
from recorded_spaces import small_space

from autotune.evaluation.replay.formats import space_bytes

pytestmark = pytest.mark.needs("ortools", "tvm")


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
