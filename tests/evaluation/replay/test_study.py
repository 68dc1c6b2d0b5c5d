"""Studies: pieces, the file that keeps them, and summaries."""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path

import pytest
from attrs import evolve
from recorded_spaces import small_table

from autotune.errors import AutotuneError
from autotune.evaluation.replay import (
    Budget,
    Contestant,
    LeftOut,
    Replay,
    Study,
    compare,
    run_study,
    summarize,
)
from autotune.evaluation.replay.contestants import make_strategy, refusal, replay
from autotune.evaluation.replay.study import append_run, matching, measured_tables, read_runs
from autotune.evaluation.replay.views import tables
from autotune.ir.workloads import gemm
from autotune.models.cost import GradientBoostedTrees
from autotune.store.sqlite.sqlite_database import SQLiteDatabase
from autotune.targets import preset
from autotune.testing.sample_records import KEY, sample_record
from autotune.testing.toy_space import ToySpace, toy_outcome


@pytest.fixture(scope="module")
def study() -> Study:
    contestants = (Contestant("random"), Contestant("grid"), Contestant("felix"))
    spaces = (small_table("one-a"), small_table("two-a"))
    return Study(spaces, contestants, (0, 1, 2), Budget(20))


@pytest.fixture(scope="module")
def runs(study: Study) -> list[Replay]:
    made = run_study(study.wanted(study.left_out()), study.tables, (), 1)
    return [it for it in made if isinstance(it, Replay)]


def test_every_contestant_meets_every_space_and_seed(study: Study, runs: list[Replay]) -> None:
    assert study.size == 18 and len(runs) == 12
    assert {(it.strategy, it.space) for it in study.left_out()} == {
        ("felix", "one-a"),
        ("felix", "two-a"),
    }
    made = {(run.strategy, run.space, run.seed) for run in runs}
    assert len(made) == 12 and {run.strategy for run in runs} == {"random", "grid"}


def test_runs_survive_a_file(tmp_path: Path, study: Study, runs: list[Replay]) -> None:
    path = str(tmp_path / "runs.jsonl")
    assert read_runs(path) == []
    for run in runs[:7]:
        append_run(path, run)
    assert read_runs(path) == runs[:7]
    # Cut off in the middle of a line: that run is lost, and its place is taken.
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[:-20])
    assert read_runs(path) == runs[:6]
    append_run(path, runs[6])
    assert read_runs(path) == runs[:7] and Path(path).read_bytes() == content
    pieces = study.wanted(study.left_out())
    assert list(matching(runs[:7], pieces, study.tables).values()) == runs[:7]
    others = [
        evolve(runs[0], digest="another"),
        evolve(runs[1], budget=Budget(21)),
        evolve(runs[2], seed=9),
    ]
    assert not matching(others, pieces, study.tables)


@pytest.mark.parametrize(
    "line",
    [
        "nothing",
        "[1]",
        '{"space": "s"}',
        '{"space": 1e999}',
    ],
)
def test_a_line_that_is_no_run_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(AutotuneError, match="line 1 is no run"):
        read_runs(str(path))


def test_a_run_that_contradicts_itself_is_refused(runs: list[Replay]) -> None:
    data = runs[0].to_json()
    for steps in (
        [[2, 1.0, 1.0], [1, 2.0, 0.5]],
        [[1, 1.0, 1.0], [2, 2.0, 1.5]],
        [[21, 1.0, 1.0]],
    ):
        with pytest.raises(AutotuneError):
            Replay.from_json({**data, "steps": steps})


def test_a_strategy_that_fails_is_left_out(study: Study) -> None:
    broken = Contestant("recorded_spaces:Failing")
    wanted = Study(study.tables[:1], (broken,), (0,), Budget(5)).wanted([])
    (found,) = run_study(wanted, study.tables, (), 1)
    assert isinstance(found, LeftOut) and found.strategy == broken.label
    assert "RuntimeError" in found.reason and "\n" not in found.reason


def test_a_summary_shows_everything(study: Study, runs: list[Replay]) -> None:
    summary = summarize(study.tables, runs, study.budget, study.left_out())
    assert [it.strategy for it in summary.strategies][0] == "random"
    for it in summary.strategies:
        assert (it.runs, it.spaces) == (6, 2) and set(it.by_space) == {"one-a", "two-a"}
        assert it.to_budget.low <= it.to_budget.value <= it.to_budget.high
        assert it.to_budget.value == pytest.approx(sum(it.by_space.values()) / 2)
    # In whatever order runs are made, the table is the same.
    again = summarize(study.tables, runs[::-1], study.budget, study.left_out())
    assert json.dumps(again.to_json()) == json.dumps(summary.to_json())
    difference = compare(summary, "random", "grid")
    own = {it.strategy: it.to_budget.value for it in summary.strategies}
    assert difference.to_budget.interval.value == pytest.approx(own["random"] - own["grid"])
    assert difference.to_budget.pairs == 6
    with pytest.raises(AutotuneError, match="unknown strategy among the runs 'rando'"):
        compare(summary, "rando", "grid")
    shown = "\n".join(table.to_text() for table in tables(summary, [difference]))
    for text in ("random", "P20", "regret@20", "one-a", "Compared with grid", "felix     all"):
        assert text in shown, shown


def test_processes_make_the_same_runs(study: Study, runs: list[Replay]) -> None:
    sources = [partial(small_table, table.name) for table in study.tables]
    wanted = [it for it in study.wanted(study.left_out()) if it.contestant.name == "grid"]
    made = [it for it in run_study(wanted, study.tables, sources, 2) if isinstance(it, Replay)]
    key = {(it.space, it.strategy, it.seed): it.steps for it in made}
    assert len(key) == 6
    for run in runs:
        if run.strategy == "grid":
            assert key[run.space, run.strategy, run.seed] == run.steps
    with pytest.raises(AutotuneError, match="at least 1 run"):
        next(iter(run_study(wanted, study.tables, sources, 0)))


@pytest.fixture(scope="module")
def database() -> SQLiteDatabase:
    """A task with 300 candidates of two sketches, and one with 3 of which none is ok."""
    found = SQLiteDatabase(":memory:")
    target = preset("haswell")
    key = evolve(KEY, target=target.fingerprint)
    for trial, candidate in enumerate(itertools.islice(ToySpace().enumerate(), 300)):
        record = sample_record(trial, candidate=candidate, key=key, target=target.to_json())
        found.append_record(evolve(record, outcome=toy_outcome(candidate)))
    for trial in range(3):
        found.append_record(sample_record(trial, status="crash", workload=gemm(m=4, n=4, k=4)))
    return found


def test_a_task_is_the_space_of_what_was_measured(database: SQLiteDatabase) -> None:
    (table,) = measured_tables(database)
    assert len(table) == table.space.count() == 300 and table.has_nest
    assert len(table.space.sketches()) == 2
    for candidate in table.space.enumerate():
        outcome = table.outcomes[table.place(candidate)]
        assert (outcome.status, outcome.latency) == (
            toy_outcome(candidate).status,
            toy_outcome(candidate).latency,
        )
    assert table.notes


def test_strategies_have_the_models_that_read_nests(database: SQLiteDatabase) -> None:
    (table,) = measured_tables(database)
    _, cost_model = make_strategy(Contestant("evolutionary"), table, 0)
    assert isinstance(cost_model, GradientBoostedTrees)
    ticks = itertools.count()
    for name in ("evolutionary", "random"):
        assert refusal(Contestant(name), table) == ""
        run = replay(Contestant(name), table, 0, Budget(24, None, 8), lambda: float(next(ticks)))
        assert run.evaluations == 24 and run.steps


def test_too_few_candidates_are_no_space(database: SQLiteDatabase) -> None:
    with pytest.raises(AutotuneError, match="no task with 301 candidates .* 2 has 300"):
        measured_tables(database, 301)
    # Of the other task nothing was valid.
    assert len(measured_tables(database, 3)) == 1
