"""`transfer` on results that are known."""

from __future__ import annotations

import gzip
import json
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import benchmark_scripts


@pytest.fixture(scope="module")
def scripts() -> Iterator[tuple[Any, ...]]:
    with benchmark_scripts("transfer", "support.transfer_recorded") as found:
        yield found


def pair(task: str, warm: list[float], cold: list[float], turns: tuple[float, float]) -> Any:
    head = {"kind": "pair", "task": task, "seed": 0, "trials": 4}
    runs = {
        name: {"history": it, "warm_start": []} for name, it in (("warm", warm), ("cold", cold))
    }
    again = {"history": [2.0, 2.0]}
    return {**head, **runs, "again": again, "turns": {"warm": turns[0], "cold": turns[1]}}


def test_trials_are_counted_on_one_clock(scripts: tuple[Any, ...]) -> None:
    (transfer, _) = scripts
    # The cold run's clock was twice as slow; its own last latency is 1.2 of the other's.
    piece = pair("a", [3.0, 1.04, 1.0, 1.0], [4.0, 2.4, 2.4, 2.4], (1.0, 1.2))
    assert [transfer.trials_to(piece, name) for name in ("warm", "cold")] == [2, 5]
    level = pair("a", [3.0, 1.04, 1.0, 1.0], [4.0, 2.4, 2.0, 2.0], (1.0, 1.0))
    assert [transfer.trials_to(level, name) for name in ("warm", "cold")] == [2, 3]


def test_medians_and_intervals(scripts: tuple[Any, ...]) -> None:
    (transfer, _) = scripts
    assert transfer.summary([[0.5, 0.5], [0.5]]) == (0.5, 0.5, 0.5)
    middle, low, high = transfer.summary([[0.1, 0.2, 0.3], [0.4, 0.5], [2.0]])
    assert middle == pytest.approx(0.35) and low < middle < high <= 2.0


def test_a_slower_second_run_is_caught(scripts: tuple[Any, ...], tmp_path: Path) -> None:
    (transfer, _) = scripts
    parser = ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    asked = ["--work", str(tmp_path), "--trials", "4", "--quick"]
    options = transfer.options_of(parser, asked)
    study = transfer.study_of(options)
    name = study.tasks[0].name
    good = pair(name, [1.0] * 4, [2.0, 2.0, 1.0, 1.0], (1.0, 1.0))
    _, bars = transfer.report(study, [good])
    assert [bar.holds for bar in bars] == [True, True]
    worse = {**good, "again": {"history": [2.0, 2.1]}}
    _, bars = transfer.report(study, [worse])
    assert [bar.holds for bar in bars] == [True, False]
    _, bars = transfer.report(study, [])
    assert not bars[0].holds


def write_cache(path: Path, kernel: str, times: list[float | str]) -> None:
    """A cache of two parameters, as Kernel Tuner writes it."""
    entries = {
        f"{number // 20},{number % 20}": {"a": number // 20, "b": number % 20, "time": time}
        for number, time in enumerate(times)
    }
    data = {
        "device_name": path.name,
        "kernel_name": kernel,
        "problem_size": [4096],
        "tune_params_keys": ["a", "b"],
        "tune_params": {"a": list(range(20)), "b": list(range(20))},
        "objective": "time",
        "cache": entries,
    }
    path.write_bytes(gzip.compress(json.dumps(data).encode()))


@pytest.fixture
def recorded(scripts: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> Any:
    (_, found) = scripts
    monkeypatch.setattr(found, "SEEDS", 3)
    monkeypatch.setattr(found, "MOST_EVALUATIONS", 40)
    return found


def test_recorded_devices_help_each_other(recorded: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    common = rng.permutation(400) + 100.0
    for number, device in enumerate(("one", "two", "three")):
        own = (common * (1 + 0.01 * rng.random(400)) * 5.0**number).tolist()
        write_cache(tmp_path / f"kernel-{device}.json.gz", "kernel", [*own[:-1], "InvalidConfig"])
    write_cache(tmp_path / "alone-one.json.gz", "alone", [1.0 + at for at in range(400)])
    data, bars = recorded.replay_recorded(tmp_path)
    assert all(bar.holds for bar in bars) and len(bars) == 4
    assert {row["space"] for row in data["rows"]} == {
        f"kernel-{device}" for device in ("one", "two", "three")
    }
    assert all(max(row["warm"]) <= 20 for row in data["rows"])


def test_devices_that_have_nothing_in_common_do_not(recorded: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for device in ("one", "two", "three"):
        times = (rng.permutation(400) + 1.0).tolist()
        write_cache(tmp_path / f"kernel-{device}.json.gz", "kernel", times)
    _, bars = recorded.replay_recorded(tmp_path)
    assert not any(bar.holds for bar in bars if bar.name.endswith("median"))
