"""Contents of a page are what the records say; this needs no plots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve
from tuner_bench import TARGET, Bench

from autotune.errors import UnsupportedTarget
from autotune.ir.workloads import gemm
from autotune.report.pages import roofline
from autotune.report.pages.contents import (
    Contents,
    CurvePoint,
    TrialPoint,
    best_so_far,
    collect,
    improvements,
    run_contents,
)
from autotune.store.database import RecordFilter
from autotune.store.records import Outcome, Record
from autotune.store.sqlite.sqlite_database import SQLiteDatabase
from autotune.targets import Target, detect_cpu
from autotune.testing.sample_records import KEY, sample_baseline, sample_record


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SQLiteDatabase]:
    with SQLiteDatabase(str(tmp_path / "records.db")) as opened:
        yield opened


def network(database: SQLiteDatabase) -> Contents:
    """Three tasks of one run, and one of them again in another run."""
    Bench(database, tasks=3).tuner(60).run()
    Bench(database, seed=5).run(10)
    return collect(database)


def test_a_curve_is_the_best_valid_latency_so_far() -> None:
    latencies = (None, 4.0, 5.0, None, 2.0, 2.0)
    trials = [TrialPoint(at, 10.0 * at, it) for at, it in enumerate(latencies)]
    points = best_so_far(trials)
    assert points == (
        CurvePoint(2, 10.0, 4.0),
        CurvePoint(3, 20.0, 4.0),
        CurvePoint(4, 30.0, 4.0),
        CurvePoint(5, 40.0, 2.0),
        CurvePoint(6, 50.0, 2.0),
    )
    assert improvements(points) == (points[0], points[3], points[4])
    assert improvements(points[:1]) == points[:1]
    assert improvements(()) == best_so_far(trials[:1]) == ()


def test_curves_equal_the_records(database: SQLiteDatabase) -> None:
    contents = network(database)
    assert len(contents.tasks) == 3
    seen = 0
    for task in contents.tasks:
        for run_id, trials in task.trials.items():
            records = [
                record
                for record in database.records()
                if record.run_id == run_id
                and record.candidate.sketch.workload.digest == task.workload.digest
            ]
            assert [(t.number, t.elapsed, t.latency) for t in trials] == [
                (record.trial, record.elapsed, record.latency) for record in records
            ]
            seen += len(trials)
    assert seen == database.count()


def test_the_total_is_that_of_the_tasks(database: SQLiteDatabase) -> None:
    contents = network(database)
    first, second = contents.runs
    assert len(first.tasks) == 3 and len(second.tasks) == 1
    best = {task.workload.digest: task.before for task in contents.tasks}
    expected = []
    for count, record in enumerate(
        (it for it in database.records() if it.run_id == first.run.run_id), 1
    ):
        digest = record.candidate.sketch.workload.digest
        best[digest] = min(best[digest] or 0.0, record.latency or 1e9)
        expected.append((count, record.elapsed, pytest.approx(sum(map(float, best.values())))))  # type: ignore[arg-type]
    assert [(p.trials, p.elapsed, p.seconds) for p in first.total] == expected
    assert first.trials == len(expected) == 60
    assert sum(first.seconds.values()) > 0 and first.note == ""


def test_weights_count_in_totals_and_shares(database: SQLiteDatabase) -> None:
    Bench(database, tasks=2).tuner(16).run()
    (run,) = database.runs()
    weighted = evolve(run, run_id="other", options={**run.options, "weights": [3.0, 5.0]})
    database.start_run(weighted)
    tasks = {task.workload.digest: task for task in collect(database).tasks}
    found = collect(database).runs[1]
    assert [weight for _, weight in found.tasks] == [3.0, 5.0]
    for share, weight in zip(
        sorted(found.shares, key=lambda it: it.weight), (3.0, 5.0), strict=True
    ):
        task = tasks[share.task.workload.digest]
        assert (share.before, share.after) == (
            weight * (task.before or 0.0),
            weight * (task.after or 0.0),
        )
    assert found.shares[0].after == max(share.after or 0.0 for share in found.shares)


def test_a_total_begins_when_every_task_has_a_latency(database: SQLiteDatabase) -> None:
    Bench(database, tasks=2).tuner(16).run()
    contents = collect(database)
    for task in contents.tasks:
        task.baselines.clear()
    (run,) = contents.runs
    first = [task.trials[run.run.run_id][0].elapsed for task in contents.tasks]
    assert run.total[0].elapsed == max(first) > min(first)


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"tasks": "ab"}, "no list of digests"),
        ({"tasks": [1]}, "no list of digests"),
        ({"tasks": ["a", "b"], "weights": [1.0]}, "2 tasks and 1 weights"),
        ({"tasks": ["a"], "weights": [-1.0]}, "no list of positive numbers"),
        ({"tasks": ["a"], "weights": [True]}, "no list of positive numbers"),
        ({"tasks": ["a"], "weights": [float("nan")]}, "no list of positive numbers"),
        ({"tasks": ["a", "b"], "keys": [{}, {}]}, "measure keys of the run cannot be read"),
        ({"tasks": ["a", "b"], "keys": 3}, "measure keys of the run cannot be read"),
    ],
)
def test_a_run_with_nonsense_is_shown_with_a_note(
    database: SQLiteDatabase, options: dict[str, object], note: str
) -> None:
    Bench(database).run(4)
    (run,) = database.runs()
    contents = collect(database)
    found = run_contents(evolve(run, options=options), lambda digest, key: contents.tasks[0])
    assert note in found.note and found.tasks == () and found.total == ()


def test_a_run_without_a_readable_checkpoint_has_a_note(database: SQLiteDatabase) -> None:
    Bench(database).run(4)
    (run,) = database.runs()
    database.start_run(evolve(run, run_id="bare", checkpoint=None))
    database.start_run(evolve(run, run_id="odd", checkpoint={"version": 99}))
    _, bare, odd = collect(database).runs
    assert bare.seconds == odd.seconds == {}
    assert bare.note == "the run has no checkpoint"
    assert "version 99" in odd.note
    assert len(bare.tasks) == 1


def test_only_the_run_that_is_meant(database: SQLiteDatabase) -> None:
    network(database)
    run = database.runs()[1]
    contents = collect(database, run.run_id)
    (task,) = contents.tasks
    assert list(task.trials) == [run.run_id] and len(contents.runs) == 1
    assert task.before is not None


def test_claims_and_beaten_candidates_are_in_no_curve(database: SQLiteDatabase) -> None:
    imported = sample_record(0, 1e-6)
    database.append_record(
        evolve(imported, outcome=evolve(imported.outcome, imported=True), run_id="theirs")
    )
    beaten = sample_record(1, 1e-5)
    database.append_record(evolve(beaten, outcome=evolve(beaten.outcome, beaten_by="x" * 16)))
    database.append_record(sample_record(2, 1e-3))
    database.append_record(sample_record(3, status="crash"))
    database.append_record(sample_record(3, status="crash"))
    (task,) = collect(database).tasks
    assert list(task.trials) == ["run-1"]
    assert [trial.latency for trial in task.trials["run-1"]] == [None, 1e-3, None, None]
    (rejection,) = task.rejections.values()
    assert rejection.count == 2 and task.outcomes["crash"] == 2


def test_the_fastest_valid_baseline_is_what_there_was_before(database: SQLiteDatabase) -> None:
    database.append_record(sample_record(0, 1e-3))
    database.append_baseline(sample_baseline(4e-3))
    database.append_baseline(sample_baseline(2e-3, name="default"))
    (task,) = collect(database).tasks
    assert (task.before, task.after) == (2e-3, 1e-3)


def test_a_task_uses_the_cores_that_its_programs_ran_on(database: SQLiteDatabase) -> None:
    record = sample_record(0)
    target = Target("cpu", "test", cores=8, peak_flops={"float32": 8e9}).to_json()
    database.append_record(evolve(record, target=target, key=evolve(KEY, threads=2)))
    (task,) = collect(database).tasks
    assert task.read_target().cores == 2
    assert task.read_target().peak_flops["float32"] == 2e9


def test_a_program_below_the_roofs() -> None:
    workload = gemm(m=64, n=64, k=64)
    moved = 3 * 64 * 64 * 4
    fast = evolve(TARGET, peak_flops={"float32": 1e12}, memory_bandwidth=1e9)
    found = roofline.place(workload, 1e-3, fast)
    assert (found.dtype, found.by) == ("float32", "memory")
    assert found.intensity == workload.flop / moved
    assert found.rate == workload.flop / 1e-3
    assert found.least == moved / 1e9
    assert found.share == pytest.approx(moved / 1e9 / 1e-3)
    slow = evolve(TARGET, peak_flops={"float32": 1e9}, memory_bandwidth=1e12)
    found = roofline.place(workload, 1e-3, slow)
    assert (found.by, found.least) == ("arithmetic", workload.flop / 1e9)
    unknown = evolve(TARGET, peak_flops={}, memory_bandwidth=0.0)
    found = roofline.place(workload, 1e-3, unknown)
    assert (found.by, found.least, found.share) == ("", None, None)


def test_operands_decide_which_peak_counts() -> None:
    workload = gemm(m=64, n=64, k=64, dtype="float64")
    target = evolve(TARGET, peak_flops={"float32": 1e12, "float64": 1.0}, memory_bandwidth=1e9)
    found = roofline.place(workload, 1e-3, target)
    assert (found.dtype, found.least) == ("float64", float(workload.flop))


def test_rates_are_measured_where_the_target_is_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = detect_cpu()
    asked: list[Target] = []

    def measure(target: Target) -> Target:
        asked.append(target)
        return evolve(target, memory_bandwidth=7.0, rates_measured=True)

    monkeypatch.setattr(roofline, "measure_rates", measure)
    found = roofline.measured_rates(here)
    assert found.source == "measured on this machine for this report"
    assert found.target.memory_bandwidth == 7.0 and asked == [here]
    other = evolve(here, processor="of-another-kind", name="elsewhere")
    assert roofline.measured_rates(other).source == "estimated figures of the target elsewhere"
    known = evolve(other, rates_measured=True)
    assert roofline.measured_rates(known).source == "measured figures of the target elsewhere"

    def fails() -> Target:
        raise UnsupportedTarget("no processor")

    monkeypatch.setattr(roofline, "detect_cpu", fails)
    assert roofline.measured_rates(here).target == here
    assert len(asked) == 1


def test_outcomes_of_every_kind_are_counted(database: SQLiteDatabase) -> None:
    for trial, status in enumerate(("ok", "invalid", "timeout")):
        database.append_record(sample_record(trial, status=status))
    (task,) = collect(database).tasks
    assert dict(task.outcomes) == {"ok": 1, "invalid": 1, "timeout": 1}
    assert isinstance(task.best and task.best.outcome, Outcome)


def test_tasks_of_a_run_that_are_one_by_now_are_counted_once(database: SQLiteDatabase) -> None:
    Bench(database).run(8)
    (run,) = database.runs()
    (task,) = collect(database).tasks
    options = {**run.options, "tasks": ["former", "other"], "weights": [2.0, 3.0]}
    found = run_contents(evolve(run, options=options), lambda digest, key: task)
    assert found.tasks == ((task, 5.0),) and found.trials == 8
    assert found.total[-1].seconds == pytest.approx(5.0 * (task.after or 0.0))


def test_tasks_of_a_run_are_found_by_digests_of_before(
    database: SQLiteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    Bench(database, tasks=2).tuner(16).run()
    (run,) = database.runs()
    digest = collect(database).runs[0].tasks[0][0].workload.digest
    former = {**run.options, "tasks": ["former", run.options["tasks"][1]]}
    database.start_run(evolve(run, run_id="of before", options=former))
    asked = SQLiteDatabase.records

    def records(self: SQLiteDatabase, where: RecordFilter | None = None) -> Iterator[Record]:
        known = where is not None and where.workload == "former"
        return asked(self, RecordFilter(workload=digest) if known else where)

    monkeypatch.setattr(SQLiteDatabase, "records", records)
    now, before = collect(database).runs
    assert [task for task, _ in before.tasks] == [task for task, _ in now.tasks]
    assert before.missing == 0


def test_an_imported_program_is_called_after_its_largest_stage(database: SQLiteDatabase) -> None:
    workload = evolve(gemm(m=4, n=8, k=16), name="main", parameters={})
    database.append_record(sample_record(0, workload=workload))
    database.append_record(sample_record(0))
    titles = {task.title for task in collect(database).tasks}
    assert titles == {"main: C 4 x 8 float32", "gemm m=8 n=8 k=8 float32"}
