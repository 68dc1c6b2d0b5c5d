"""The benchmark of whole networks: its bars, what it keeps, and what it says of failures."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import benchmark_scripts


@pytest.fixture(scope="module")
def models() -> Iterator[Any]:
    with benchmark_scripts("models") as (module,):
        yield module


def row(runtime: str, latency: float | None, problem: str = "", error: float = 0.1) -> Any:
    return {"runtime": runtime, "latency": latency, "problem": problem, "error": error}


def network(models: Any, name: str = "bert_base", **changes: Any) -> Any:
    task = {
        "name": "dense",
        "total": 0.008,
        "flop": 1e6,
        "occurrences": 12,
        "trials": 9,
        "run_by": "tuned",
        "reason": "",
    }
    tuned = {
        "trials": 100,
        "latency": 0.011,
        "seconds": {"startup": 50.0, "total": 1000.0},
        "tasks": [task, {**task, "name": "softmax", "total": None, "reason": "no trials"}],
    }
    fields = {
        "coverage": {"flop": 100.0, "tunable_flop": 99.5},
        "tuned": {300: tuned, 1200: tuned},
        "bench": {
            "runtimes": [
                row("autotune", 0.01),
                row("torch eager", 0.02),
                row("onnxruntime", 0.0125),
                row("openvino", 0.001, "its outputs are not those of torch eager"),
                row("untuned", None, "too slow"),
            ]
        },
        "final": {"300": [1.1, 1.0, 1.2], "1200": [1.0, 1.0, 1.0], "metaschedule": [2.0] * 3},
        **changes,
    }
    return models.Measured(name, {}, **fields)


def test_bars_of_a_network_that_keeps_all_promises_but_one(models: Any) -> None:
    bars = {bar.name: bar for bar in models.all_bars([network(models)], (300, 1200))}
    values = {name: bar.value for name, bar in bars.items()}
    assert values == {
        "bert_base, error of the outputs over what is allowed": 0.1,
        "bert_base, share of flop in our space": 0.995,
        "bert_base, times eager": 2.0,
        # Of those whose outputs are right.
        "bert_base, times the best of the others": 1.25,
        "bert_base, seconds after 300 s of tuning over those after 1200 s": 1.1,
        "bert_base, share of start-up in tuning": 0.05,
        "bert_base, share of 1200 s that is used": pytest.approx(1000 / 1200),
        "bert_base, times MetaSchedule in 1200 s": 2.0,
        "times the best of the others, geometric mean": pytest.approx(1.25),
    }
    assert all(bar.holds for bar in bars.values())


def test_quick_has_the_bars_of_outputs_and_coverage_only(models: Any) -> None:
    bars = models.quick_bars([network(models)])
    assert [bar.name.partition(", ")[2] for bar in bars] == [
        "error of the outputs over what is allowed",
        "share of flop in our space",
    ]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"bench": None}, "error of the outputs over what is allowed"),
        ({"coverage": None}, "share of flop in our space"),
        ({"coverage": {"flop": 100.0, "tunable_flop": 98.0}}, "share of flop in our space"),
        ({"bench": {"runtimes": [row("autotune", 1.0, "wrong", 3.0)]}}, "error of the outputs"),
        ({"final": {}}, "times MetaSchedule"),
        ({"final": {"300": [1.2], "1200": [1.0]}}, "seconds after 300 s"),
        ({"tuned": {}}, "share of start-up"),
        ({"tuned": {1200: {"seconds": {"startup": 9.0, "total": 400.0}}}}, "that is used"),
        (
            {"bench": {"runtimes": [row("autotune", 3.0), row("torch eager", 2.0)]}},
            "times eager",
        ),
        (
            {"bench": {"runtimes": [row("autotune", 3.0), row("openvino", 2.5)]}},
            "bert_base, times the best of the others",
        ),
    ],
)
def test_what_is_missing_or_too_slow_breaks_its_bar(
    models: Any, changes: dict[str, Any], name: str
) -> None:
    broken = models.all_bars([network(models, **changes)], (300, 1200))
    assert any(name in bar.name and not bar.holds for bar in broken)


@pytest.mark.parametrize(("peak", "applies"), [(0.5, True), (0.7, False)])
def test_nobody_has_to_be_faster_than_the_machine(models: Any, peak: float, applies: bool) -> None:
    """1.5 times MetaSchedule cannot be where that is beyond 85 % of the multiply-adds."""
    final = {"300": [1.0], "1200": [0.9], "metaschedule": [1.0], "peak": [peak]}
    bars = models.all_bars([network(models, final=final)], (300, 1200))
    (bar,) = (bar for bar in bars if "MetaSchedule" in bar.name)
    assert bar.applies == applies == (not bar.holds)


def test_one_budget_is_not_compared_with_itself(models: Any) -> None:
    bars = models.all_bars([network(models)], (1200,))
    assert not any("over those after" in bar.name for bar in bars)


def test_the_geometric_mean(models: Any) -> None:
    assert models.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert models.geometric_mean([0.5, None]) is None
    assert models.geometric_mean([]) is None


def test_a_step_that_is_done_is_not_done_again(models: Any, tmp_path: Path) -> None:
    made = []

    def make() -> dict[str, int]:
        made.append(1)
        return {"calls": len(made)}

    path, errors = tmp_path / "step.json", {}
    for _ in range(2):
        assert models.kept(path, errors, "step", make) == {"calls": 1}
    assert json.loads(path.read_text()) == {"calls": 1} and errors == {}
    assert list(tmp_path.iterdir()) == [path]


def test_a_step_that_fails_is_named_and_tried_again(models: Any, tmp_path: Path) -> None:
    def fails() -> None:
        raise models.StepFailed("no compiler")

    errors: dict[str, str] = {}
    path = tmp_path / "step.json"
    assert models.kept(path, errors, "step", fails) is None
    assert errors == {"step": "no compiler"} and not path.exists()
    assert models.kept(path, errors, "step", lambda: 7) == 7


def test_a_command_that_fails_says_why_in_its_last_line(models: Any) -> None:
    program = "import sys; print('first\\nlast', file=sys.stderr); sys.exit(2)"
    with pytest.raises(models.StepFailed, match="^last$"):
        models.output_of([sys.executable, "-c", program], os.environ)


def test_what_runs_for_ever_is_ended_with_what_it_started(
    models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "environment", lambda: dict(os.environ))
    child = tmp_path / "child"
    program = (
        "import os, subprocess, sys, time, pathlib\n"
        "it = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(child)!r}).write_text(str(it.pid))\n"
        "time.sleep(600)"
    )
    seconds = 5.0
    while not child.exists():
        models.run_for([sys.executable, "-c", program], seconds)
        seconds *= 2
    pid = int(child.read_text())
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").exists() and state(pid) != "Z" and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}/stat").exists() or state(pid) == "Z"
    with pytest.raises(models.StepFailed, match="too soon"):
        models.run_for([sys.executable, "-c", ""], 60.0)


def state(pid: int) -> str:
    """Of a process: ``Z`` where it has ended and nobody has asked for its status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def test_what_holds_a_network_back_is_shown(
    models: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = {"runtimes": [row("autotune", 0.01), row("onnxruntime", 0.008)]}
    found = network(models, bench=bench)
    models.print_network(found)
    shown = capsys.readouterr().out
    assert "dense" in shown and "100%" in shown and "1.5 Gflop/s" in shown
    assert "9 trials, tuned" in shown and "no trials" in shown
    models.print_table([found])
    assert "10.00 ms" in capsys.readouterr().out
