"""Contenders that take turns, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import benchmark_scripts
from process_facts import becomes_true
from toy_parts import REFERENCE_BACKEND

from autotune.ir.workloads import gemm

with benchmark_scripts("support.common", "support.serve") as (common, serve):
    pass


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


def test_the_least_of_the_samples_counts() -> None:
    asked: list[int] = []

    def timer(number: int) -> float:
        asked.append(number)
        return 1e-3 * (1 + len(asked) % 3)

    assert serve.measured(timer, samples=5, seconds=0.02) == 1e-3
    assert len(asked) == 7 and len(set(asked[2:])) == 1


@pytest.mark.parametrize("obeys", [True, False])
def test_a_tuner_that_is_interrupted_may_save_its_run(
    obeys: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A that takes too long is ended."""
    ready, saved = tmp_path / "ready", tmp_path / "saved"
    program = (
        "import pathlib, signal, sys, time\n"
        f"save = lambda *_: (pathlib.Path({str(saved)!r}).touch(), {obeys} and sys.exit(130))\n"
        "signal.signal(signal.SIGTERM, save)\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "while True:\n    time.sleep(60)\n"
    )
    whole = subprocess.Popen.communicate

    def interrupted(process: Any, timeout: float | None = None) -> Any:
        if timeout is not None:
            # Its patience begins when it has heard the signal, however late that is.
            assert becomes_true(saved.exists)
        if saved.exists():
            return whole(process, timeout=timeout)
        assert becomes_true(ready.exists)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    monkeypatch.setattr(common, "SAVING_SECONDS", 300.0 if obeys else 0.5)
    with pytest.raises(KeyboardInterrupt):
        common._ended([sys.executable, "-c", program], dict(os.environ))
    assert saved.exists()
