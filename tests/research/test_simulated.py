"""research/simulated.py: truths from a database that is made here, and runs on them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import RESEARCH, benchmark_scripts
from python_processes import start_python

from autotune import make_workload, open_database
from autotune.errors import InvalidValueError, UnknownNameError
from autotune.plugins.parts import create_part
from autotune.spaces import SpaceContext
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import preset

BACKEND = "autotune.testing.reference_backend:ReferenceBackend"
TARGET = preset("skylake-avx512")
LABEL = "gemm-0"


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    """The modules."""
    names = ("simulated", "simulation")
    with benchmark_scripts(*names) as modules:
        yield SimpleNamespace(**dict(zip(names, modules, strict=True)))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 programs of a product, whose latency grows with what they vectorise least."""
    workload = make_workload("gemm", {"m": 64, "n": 64, "k": 64})
    limits = create_part("backend", BACKEND).limits(TARGET)
    context = SpaceContext(workload=workload, target=TARGET, limits=limits)
    space = create_part("search_space", "sketch", context)
    key = MeasureKey(TARGET.fingerprint, BACKEND, "1", "1", TARGET.cores, "quick")
    rng = np.random.default_rng(0)
    records = []
    for number, candidate in enumerate(space.sample(240, rng)):
        row = np.log2(np.maximum(candidate.values, 1))
        latency = float(np.exp(0.3 * row[0] - 0.2 * row[-1] + rng.normal(0, 0.02))) * 1e-3
        outcome = Outcome("ok", latency, (latency,))
        told = (candidate, key, TARGET.to_json(), "sketch-1", outcome, 0.0)
        records.append(Record("run", number, *told))
    path = tmp_path_factory.mktemp("simulated") / "records.db"
    with open_database(path) as opened:
        opened.append_missing(records)
    return path


@pytest.fixture(scope="module")
def truth(scripts: Any, database: Path) -> Any:
    task = scripts.simulated.tasks_of(database)[LABEL]
    return scripts.simulation.grown(task, scripts.simulation.fit_of(task))


def test_trees_explain_what_has_a_reason(scripts: Any, database: Path) -> None:
    tasks = scripts.simulated.tasks_of(database)
    assert list(tasks) == [LABEL]
    fit = scripts.simulation.fit_of(tasks[LABEL])
    assert fit.explained > 0.9 and fit.is_good
    assert 0.02 < fit.own < 0.2 and 0.02 < fit.residual < 0.2
    logarithms = tasks[LABEL].logarithms
    disturbed = logarithms + (np.arange(len(logarithms)) % 10 == 0)
    worse = scripts.simulation.fit_of(replace(tasks[LABEL], logarithms=disturbed))
    assert worse.residual > 2 * fit.residual, "some were measured at a bad time"
    assert worse.own < 2 * fit.own


def test_a_truth_says_the_same_in_another_process(scripts: Any, truth: Any) -> None:
    candidates = list(truth.space.sample(20, np.random.default_rng(1)))
    other = scripts.simulation.Truth.from_json(json.loads(json.dumps(truth.to_json())))
    assert other.digest == truth.digest
    found = truth.latencies(candidates)
    assert (other.latencies(candidates) == found).all()
    assert other.latencies(candidates[::-1])[::-1] == pytest.approx(found), "not by position"


def test_what_no_feature_tells_is_normal_and_fixed(scripts: Any, truth: Any) -> None:
    candidates = list(truth.space.sample(2000, np.random.default_rng(2)))
    found = scripts.simulation.unexplained(candidates)
    assert abs(found.mean()) < 0.1 and abs(found.std() - 1) < 0.1
    assert (scripts.simulation.unexplained(candidates[5:]) == found[5:]).all()


def test_tasks_are_of_all_operators_in_turns(scripts: Any) -> None:
    fit = scripts.simulation.Fit
    explained = {"a0": 0.95, "a1": 0.94, "a2": 0.93, "b0": 0.7, "c0": 0.5}
    fits = {label: fit(value, 0.2, 0.1) for label, value in explained.items()}
    fits["d0"] = fit(0.9, 0.4, 0.3)
    operators = {label: label[0] for label in fits}
    chosen = scripts.simulation.chosen_tasks
    assert chosen(fits, operators, 3) == ["a0", "b0", "a1"]
    assert chosen(fits, operators, 9) == ["a0", "b0", "a1", "a2"], "c and d are mostly luck"


def test_a_run_is_decided_by_its_seed(scripts: Any, truth: Any) -> None:
    player = scripts.simulated.player_of(["--strategy", "evolutionary"])
    assert player.cost_model == "gbdt" and player.pruning_model == "psa"
    one, same, other = (
        scripts.simulation.play(truth, player, seed, trials=40, round_size=16)
        for seed in (3, 3, 4)
    )
    assert one["asked"] == same["asked"] != other["asked"]
    assert one["asked"][0] == 40
    assert [it["seconds"] for it in one["steps"]] == [it["seconds"] for it in same["steps"]]
    assert one["latency"] == one["steps"][-1]["seconds"][0]


def test_arguments_of_contenders(scripts: Any) -> None:
    told = ["--strategy", "evolutionary", "--strategy-option", "population=64"]
    player = scripts.simulated.player_of([*told, "--cost-model", "random"])
    assert player.strategy_options == {"population": 64}
    assert player.cost_model == "random"
    with pytest.raises(UnknownNameError, match="evolution"):
        scripts.simulated.player_of(["--strategy", "evolution"])
    with pytest.raises(InvalidValueError, match="name=value"):
        scripts.simulated.player_of(["--strategy-option", "population"])


def _script(database: Path, results: Path, *arguments: str) -> tuple[int, str, str]:
    command = (str(RESEARCH / "simulated.py"), "--database", str(database))
    told = ("--results", str(results), "--seeds", "1", "--trials", "32", *arguments)
    with start_python(*command, *told) as process:
        shown, errors = process.communicate()
    return process.returncode, shown, errors


def _lines(results: Path) -> Sequence[Any]:
    return [json.loads(line) for line in results.read_text().splitlines()]


@pytest.mark.slow
def test_runs_are_pieces(database: Path, tmp_path: Path) -> None:
    results, written = tmp_path / "results.jsonl", tmp_path / "report.json"
    chosen = ["--contenders", "random,evolutionary"]
    status, shown, errors = _script(database, results, *chosen)
    assert status == 0, errors
    lines = _lines(results)
    assert [line["kind"] for line in lines] == ["fit", "run", "run"]
    assert {line["contender"] for line in lines[1:]} == {"random", "evolutionary"}
    assert f"{LABEL}: R^2" in shown
    told = ["--report", "--json", str(written)]
    assert _script(database, results, *chosen, *told)[0] == 0
    assert _lines(results) == lines, "nothing is done again"
    runs = json.loads(written.read_text())["runs"]
    latencies = {line["contender"]: line["latency"] for line in lines[1:]}
    for run in runs:
        assert run["points"][-1]["latency"] == pytest.approx(latencies[run["contender"]])


def test_wrong_arguments(database: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    status, _, errors = _script(database, results, "--contenders", "evolution")
    assert status == 2 and "there is no contender 'evolution'" in errors
    status, _, errors = _script(database, results, "--tasks", "gemm-7")
    assert status == 1 and f"there is no task 'gemm-7', only {LABEL}" in errors
    status, _, errors = _script(database, results, "--check")
    assert status == 2 and "--check needs 200 trials" in errors
