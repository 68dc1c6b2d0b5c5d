"""The command that runs benchmarks: its rows, their options, its status and what it writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import BENCHMARKS, benchmark_scripts

pytestmark = pytest.mark.needs("ortools", "tvm")

ROW = '''"""A row of this test."""

from support.bars import Bar
from support.common import Report


def run(options):
    value = 1 if options.quick else 3
    return Report({"value": value}, [Bar("value", value, 2.0)])
'''


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


@pytest.mark.parametrize(("options", "status"), [((), 0), (("--quick", "--check"), 1)])
def test_a_row_is_run_and_its_bars_are_checked(
    bench: Any,
    options: tuple[str, ...],
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"row_of_test_{status}"
    (tmp_path / f"{name}.py").write_text(ROW)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(bench, "HERE", tmp_path)
    written = tmp_path / "out.json"
    assert bench.main([name, *options, "--json", str(written)]) == status
    data = json.loads(written.read_text())
    assert data["value"] == (1 if options else 3) and data["machine"]["cores"] > 0
    assert [bar["holds"] for bar in data["bars"]] == [not options]


def test_several_rows_have_a_process_each_and_the_worst_status(
    bench: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "found"
    # One needs a folder of spaces, the other has a device, or says that there is none.
    assert bench.main(["replay", "cuda_network", "--quick", "--json", str(folder)]) == 2
    captured = capfd.readouterr()
    assert "--spaces needs a folder" in captured.err and "== cuda_network" in captured.out
    assert folder.is_dir()
