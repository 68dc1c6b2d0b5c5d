"""Seeds, training data and the best of equal records that a new run takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from toy_parts import REFERENCE_BACKEND, valid_outcome
from tuner_bench import Bench, SteppingDatabase, with_plan

import autotune
from autotune.errors import AutotuneError
from autotune.ir.workloads import gemm
from autotune.report import comparison_table, warm_start_text
from autotune.search.strategies import EvolutionaryStrategy, GridStrategy, RandomStrategy
from autotune.sketches import Candidate
from autotune.store.database import Database
from autotune.store.records import Outcome, WarmSource
from autotune.store.sqlite import open_database
from autotune.testing.toy_space import ToySpace
from autotune.tuning.events import WarmStarted, event_from_json, event_to_json
from autotune.tuning.result import Result
from autotune.tuning.warm_start import seed_limit

STRATEGIES = pytest.mark.parametrize(
    "strategy", [EvolutionaryStrategy, RandomStrategy, GridStrategy]
)


def tune(folder: Path, m: int = 32, **options: Any) -> Result:
    given = {"trials": 16, "round_size": 8, "seed": 1, **options}
    return autotune.tune(
        gemm(m=m, n=32, k=32),
        backend=REFERENCE_BACKEND,
        threads=1,
        database=folder / "records.db",
        **given,
    )


@STRATEGIES
def test_the_same_task_again_is_never_slower_than_its_recorded_best(strategy: Any) -> None:
    with open_database(":memory:") as database:
        first = Bench(database, strategy=RandomStrategy, seed=1).run(48)
        for trials in (1, 8):
            bench = Bench(database, strategy=strategy, seed=trials + 1)
            second = bench.run(trials)
            assert first.best is not None and second.best is not None
            assert (second.best.latency or 0.0) <= (first.best.latency or 0.0)
            assert second.cached >= 1 and second.trials == trials
            assert first.best.candidate.digest not in bench.measured or trials > 1
            (source,) = second.warm_start
            assert source.record == first.best.name and source.used_as[0] == "best"
            assert source.distance == 0.0 and source.candidate == first.best.candidate.digest


def test_a_best_that_was_found_in_another_space_counts_too(tmp_path: Path) -> None:
    """Its sketch is none of this run's, and still its record answers the first trial."""
    parts: dict[str, Any] = {"search_space": "toy_parts:toy_space", "cost_model": "random"}
    parts |= {"pruning_model": None, "strategy": "random"}
    first = tune(tmp_path, trials=48, parts=parts)
    second = tune(tmp_path, trials=2, seed=7)
    assert first.fastest is not None and second.fastest is not None
    assert (second.fastest.latency or 0.0) <= (first.fastest.latency or 0.0)
    assert second.cached == 1
    own = {it.digest for it in autotune_sketches(second)}
    assert first.fastest.candidate.sketch.digest not in own


def autotune_sketches(result: Result) -> list[Any]:
    """Sketches of a result's candidates that were measured by its own run."""
    with open_database(result.database, read_only=True) as database:
        records = list(database.records())
    return [it.candidate.sketch for it in records if it.run_id == result.run_id]


def test_a_similar_task_gives_seeds_and_training_data() -> None:
    with open_database(":memory:") as database:
        for extent in (4, 16):
            Bench(database, ToySpace(extent), seed=extent).run(12)
        bench = Bench(database, trees=True)
        result = bench.run(24)
        again = bench.run(24)
    assert result.cached == 0
    # The nearest first: of equally near ones the one that was recorded last.
    sizes = [it.task for it in result.warm_start]
    assert sorted(sizes) == ["gemm m=16 n=16 k=16 float32", "gemm m=4 n=4 k=4 float32"]
    assert [it.training for it in result.warm_start] == [12, 12]
    seeds = [it.candidate for it in result.warm_start if "seed" in it.used_as]
    assert seeds and bench.measured[: len(seeds)] == seeds
    (started,) = bench.seen(WarmStarted)
    assert isinstance(started, WarmStarted) and started.sources == result.warm_start
    assert event_from_json(event_to_json(started, 0.0)) == started
    written = result.to_json()["warm_start"]
    assert tuple(WarmSource.from_json(it) for it in written) == result.warm_start
    text = warm_start_text(result.warm_start)
    assert text.startswith("warm start: ") and "24 outcomes for the cost model" in text
    assert text in comparison_table(result).notes
    assert again.from_records and again.warm_start == result.warm_start


@pytest.mark.parametrize("off", ["fresh", "warm_start"])
def test_it_can_be_left_out(off: str) -> None:
    with open_database(":memory:") as database:
        cold = Bench(database)
        cold.run(12)
    with open_database(":memory:") as database:
        Bench(database, ToySpace(16), seed=1).run(12)
        bench = Bench(database)
        tuner = bench.tuner(12, fresh=off == "fresh")
        if off == "warm_start":
            options = evolve(tuner.plan.options, warm_start=False)
            tuner = with_plan(tuner, options=options)
            assert tuner.plan.identity != bench.tuner(12).plan.identity
        (result,) = tuner.run()
    assert result.warm_start == () and bench.measured == cold.measured


@pytest.mark.parametrize("conditions", [{"threads": 2}, {"backend": "broken"}])
def test_other_machines_say_nothing(tmp_path: Path, conditions: dict[str, Any]) -> None:
    with open_database(":memory:") as database:
        Bench(database, seed=1).run(16)
        other = Bench(database, seed=2).tuner(8)
        key = evolve(other.plan.key, **conditions)
        tasks = [evolve(task, key=key) for task in other.plan.tasks]
        (result,) = with_plan(other, tasks=tasks).run()
        assert result.warm_start == ()


def test_another_compiler_gives_seeds_that_are_timed_again() -> None:
    with open_database(":memory:") as database:
        first = Bench(database, seed=1).run(16)
        bench = Bench(database, seed=2)
        tuner = bench.tuner(8)
        key = evolve(tuner.plan.key, compiler_version="2")
        tasks = [evolve(task, key=key) for task in tuner.plan.tasks]
        (result,) = with_plan(tuner, tasks=tasks).run()
        (source,) = result.warm_start
        assert first.best is not None and source.used_as == ("seed",)
        assert bench.measured[0] == source.candidate == first.best.candidate.digest
        assert result.cached == 0


@pytest.mark.parametrize(("trials", "tasks", "most"), [(1, 1, 1), (64, 1, 8), (64, 4, 2)])
def test_seeds_are_a_small_share_of_the_budget(trials: int, tasks: int, most: int) -> None:
    assert seed_limit(trials, tasks) == most


def _facts(database: Database, seed: int) -> dict[str, Any]:
    """Actions and findings of a run, but for times and names."""
    (run,) = [it for it in database.runs() if it.seed == seed]
    assert run.checkpoint is not None
    progress = run.checkpoint["progress"]
    return {
        "search": run.checkpoint["search"],
        "logs": [[entry[:3] for entry in log] for log in progress["logs"]],
        "warm": [[{**it, "record": ""} for it in task] for task in progress["warm_starts"]],
        "trials": run.trials,
    }


def _others(database: Database, seed: int, extent: int) -> None:
    Bench(database, ToySpace(extent), RandomStrategy, seed=seed).run(12)


class _Stop(Exception):
    """Ends a run somewhere; the run can be resumed."""


@pytest.mark.parametrize("tasks", [1, 2])
def test_what_others_record_meanwhile_decides_nothing(tasks: int) -> None:
    """At whatever step the run is stopped: seeds and training data are those of its start."""

    def run(database: SteppingDatabase, step: Callable[[], None]) -> Bench:
        bench = Bench(database, step=step, round_size=4, tasks=tasks, trees=True, seed=9)
        tuner = bench.tuner(20)
        with tuner.guard:
            tuner.run()
        return bench

    def start(database: SteppingDatabase) -> None:
        _others(database, 1, 4)
        _others(database, 2, 16)

    with SteppingDatabase() as database:
        start(database)
        count = [0]

        def counted() -> None:
            count[0] += 1

        run(database, counted)
        expected = _facts(database, 9)
    warm = expected["warm"]
    assert len(warm) == tasks and all(warm) and expected["search"]["cost_model"]["features"]
    for stop_at in range(20, count[0], 29):
        with SteppingDatabase() as database:
            start(database)
            taken = [0]

            def stopping(taken: list[int] = taken, stop_at: int = stop_at) -> None:
                taken[0] += 1
                if taken[0] == stop_at:
                    raise _Stop

            with pytest.raises((_Stop, AutotuneError)):
                run(database, stopping)
            begun = [it for it in database.runs() if it.seed == 9]
            # A better record of each neighbour, and a neighbour that is nearer.
            _others(database, 3, 4)
            _others(database, 4, 2)
            run(database, lambda: None)
            if begun:
                assert _facts(database, 9) == expected, f"stopped at step {stop_at}"


def test_a_failure_among_the_seeds_is_only_a_failed_trial() -> None:
    def failing(candidate: Candidate) -> Outcome:
        return Outcome("build_error", message="scripted")

    with open_database(":memory:") as database:
        Bench(database, ToySpace(4), seed=1).run(16)
        broken = Bench(database, seed=2, outcome=failing)
        result = broken.run(8)
        assert result.best is None and len(result.warm_start) == 1
        fine = Bench(database, seed=3, outcome=valid_outcome).run(8)
        assert fine.best is not None
