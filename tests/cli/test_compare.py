"""``autotune compare``: figures, interrupts, what it is not asked for."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_lines import IN_PROCESS
from toy_parts import REFERENCE_BACKEND, TOY_SPACE

from autotune.evaluation.compare import RunFailed, read_pieces
from autotune.plugins.installing import install_extra
from autotune.testing.reference_backend import SCRIPT_VARIABLE

PATIENCE = 300.0
COMPARE = (
    *("compare", "gemm:m=8,n=8,k=8", "--backend", REFERENCE_BACKEND, "--space", TOY_SPACE),
    *(*IN_PROCESS, "--threads", "1", "--trials", "16", "--results", "results.jsonl"),
)
EVOLUTIONARY = ("--contender", "evolutionary=--strategy evolutionary --cost-model random")


@pytest.fixture(autouse=True)
def _runs_find_test_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are processes of their own."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))


def wait_for_runs(results: Path, number: int, process: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        if sum(line["kind"] == "run" for line in read_pieces(results)) >= number:
            return
        time.sleep(0.02)
    raise AssertionError(process.communicate(timeout=PATIENCE))


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_a_comparison_that_was_stopped_goes_on(number: int, cli: Any, spawn: Any) -> None:
    command = (*COMPARE, *EVOLUTIONARY, "--seeds", "1")
    results = cli.folder / "results.jsonl"
    # The second run is far from its end when the first one has ended.
    process = spawn(*command, **{SCRIPT_VARIABLE: json.dumps({"build_seconds": 0.1})})
    wait_for_runs(results, 1, process)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in stderr
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "results.jsonl holds 1 of 2 runs; the same command does the others" in stderr
    before = read_pieces(results)

    files = ("--json", "out.json", "--csv", "out.csv", "--plot", "out.svg")
    plots = files if have_matplotlib() else files[:4]
    done = cli(*command, *plots)
    assert done.status == 0, done.stderr
    assert read_pieces(results)[: len(before)] == before
    lines = done.stderr.splitlines()
    assert [line[: len("[2/2]")] for line in lines] == ["[2/2]", "[2/2]"]
    assert re.search(r"ms in \d+ s$", lines[0])
    assert lines[-1].endswith("2 winners took turns")
    for text in ("gemm m=8 n=8 k=8 float32", "median latency", "evolutionary", "pairs, over all"):
        assert text in done.stdout
    assert re.search(r"^evolutionary does not beat random for certain", done.stdout, re.MULTILINE)

    report = json.loads((cli.folder / "out.json").read_text())
    (workload,) = report["workloads"]
    assert [it["contender"] for it in workload["contenders"]] == ["random", "evolutionary"]
    assert [it["runs"] for it in workload["contenders"]] == [1, 1]
    best = min(line["latency"] for line in read_pieces(results) if line["kind"] == "run")
    # The reference backend's latency of a candidate is always the same.
    assert workload["best_known"] == pytest.approx(best, rel=1e-4)
    with (cli.folder / "out.csv").open() as stream:
        assert [row["contender"] for row in csv.DictReader(stream)] == ["random", "evolutionary"]
    if have_matplotlib():
        assert "</svg>" in (cli.folder / "out.svg").read_text()
    again = cli(*command, *plots, "--quiet")
    assert (again.status, again.stderr, again.stdout) == (0, "", done.stdout)


def have_matplotlib() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def test_a_run_that_fails_is_in_the_table(cli: Any) -> None:
    broken = "broken=--strategy faulty_parts:no_such_strategy"
    done = cli(*COMPARE, "--no-random", "--contender", broken, "--seeds", "1")
    assert done.status == 1
    assert "broken seed 0: failed: " in done.stderr
    assert re.search(r"broken/0 failed: .*no_such_strategy", done.stdout)
    assert "Traceback" not in done.stdout + done.stderr


def test_a_budget_of_time_reaches_the_runs(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def tune(arguments: list[str], _: Any) -> Any:
        asked.append(list(arguments))
        raise RunFailed("it measured no candidate")

    from autotune.evaluation.compare import complete

    monkeypatch.setitem(complete.__kwdefaults__, "tune", tune)
    command = [*COMPARE[:-4], "--time", "3", "--round-size", "8", "--no-random", *EVOLUTIONARY]
    done = cli(*command, "--seeds", "1", "--dtype", "float16")
    assert done.status == 1, done.stderr
    (arguments,) = asked
    assert arguments[:5] == ["gemm", "--shape", "m=8,n=8,k=8", "--dtype", "float16"]
    for given in ("--time 3.0", "--round-size 8", "--seed 0", f"--space {TOY_SPACE}"):
        assert given in " ".join(arguments)


def test_a_plot_needs_matplotlib(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [it for it in sys.modules if it.endswith(("compare.plot", "pages.plots"))]:
        monkeypatch.delitem(sys.modules, name)
    done = cli(*COMPARE, *EVOLUTIONARY, "-o", "out.svg")
    assert done.status == 2
    assert f"which is not installed: run {install_extra('report')}\n" in done.stderr
    assert cli.files() == set()
