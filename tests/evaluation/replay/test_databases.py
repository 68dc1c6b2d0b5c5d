"""Tasks of a database as spaces."""

from __future__ import annotations

import itertools

import pytest
from attrs import evolve

from autotune.errors import AutotuneError
from autotune.evaluation.replay import Budget, Contestant
from autotune.evaluation.replay.contestants import make_strategy, refusal, replay
from autotune.evaluation.replay.study import measured_tables
from autotune.ir.workloads import gemm
from autotune.models.cost import GradientBoostedTrees
from autotune.store.sqlite.sqlite_database import SQLiteDatabase
from autotune.targets import preset
from autotune.testing.sample_records import KEY, sample_record
from autotune.testing.toy_space import ToySpace, toy_outcome


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
