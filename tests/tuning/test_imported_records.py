"""Records of others: claims, which are timed here before they count."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve
from toy_parts import tune_toy

import autotune
from autotune.ir.workloads import gemm
from autotune.report import comparison_table, formats
from autotune.sketches import Candidate
from autotune.store.database import RecordFilter
from autotune.store.jsonl import import_lines
from autotune.store.records import Record
from autotune.store.sqlite import open_database
from autotune.testing.reference_backend import virtual_latency
from autotune.tuning.events import TrialFinished

WORKLOAD = gemm(m=8, n=8, k=8)
TRIALS = 12
# Neither the best nor what the toy space begins with.
MIDDLE = 4


def tune(
    path: Path, trials: int = TRIALS, seed: int = 5, **options: object
) -> tuple[autotune.Result, list[TrialFinished]]:
    events: list[object] = []
    heard = [events.append]
    result = tune_toy(path, WORKLOAD, trials=trials, seed=seed, listeners=heard, **options)
    return result, [event for event in events if isinstance(event, TrialFinished)]


def records(path: Path, **where: object) -> list[Record]:
    with open_database(path, read_only=True) as database:
        return list(database.records(RecordFilter(**where)))  # type: ignore[arg-type]


def bring_in(path: Path, *lines: Record) -> None:
    with open_database(path) as database:
        report = import_lines(lines, database, lambda bad: None)
    assert report.added == len(lines)


def with_latency(record: Record, latency: float) -> Record:
    """The record of somebody who says that it takes so long."""
    samples = (latency,) * 3
    return evolve(record, outcome=evolve(record.outcome, latency=latency, samples=samples))


def true_latency(candidate: Candidate) -> float:
    return virtual_latency(WORKLOAD, candidate)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Records of somebody else, the slowest last."""
    path = tmp_path_factory.mktemp("others") / "records.db"
    tune(path, seed=99)
    return sorted(records(path, status="ok"), key=lambda record: record.latency or 0.0)


def test_a_forged_latency_is_timed_first_and_spreads_to_nothing(
    tmp_path: Path, others: list[Record]
) -> None:
    path = tmp_path / "records.db"
    forged = with_latency(others[MIDDLE], 1e-9)
    bring_in(path, forged)
    result, trials = tune(path)
    assert trials[0].candidate == forged.candidate and not trials[0].outcome.cached
    measured = records(path, run_id=result.run_id, status="ok")
    assert len(measured) == sum(event.outcome.ok for event in trials) == result.outcomes["ok"]
    for record in measured:
        assert record.latency == pytest.approx(true_latency(record.candidate), rel=1e-6)
        assert record.outcome.drift == pytest.approx(1.0) and not record.outcome.imported
    assert result.best is not None and result.best.run_id == result.run_id
    assert result.best.candidate != forged.candidate
    with open_database(path, read_only=True) as database:
        best = database.best(RecordFilter(workload=WORKLOAD.digest))
    assert best == result.best


@pytest.mark.slow
def test_the_report_of_a_run_beside_a_forged_latency_agrees_with_its_confirmation(
    tmp_path: Path, others: list[Record]
) -> None:
    path = tmp_path / "records.db"
    bring_in(path, with_latency(others[0], 1e-9))
    result, _ = tune(path)
    assert result.best is not None and result.confirmation is not None
    over = result.confirmation.over_baseline
    assert over is not None and result.speedup == over.ratio < 1e3
    table = comparison_table(result)
    assert table.rows[-1][-1] == formats.ratio(over.ratio)
    assert any(formats.ratio(over.ratio) in note for note in table.notes)


def test_the_best_that_was_imported_wins_by_what_it_takes_here(
    tmp_path: Path, others: list[Record]
) -> None:
    path = tmp_path / "records.db"
    bring_in(path, *others)
    result, trials = tune(path, trials=1)
    assert trials[0].candidate == others[0].candidate
    assert result.cached == 0 and result.best is not None
    assert result.best.run_id == result.run_id != others[0].run_id
    assert result.best.latency == pytest.approx(true_latency(others[0].candidate), rel=1e-6)


@pytest.mark.slow
def test_imported_records_answer_no_trial(tmp_path: Path, others: list[Record]) -> None:
    path = tmp_path / "records.db"
    plain, _ = tune(tmp_path / "plain.db", seed=99)
    bring_in(path, *others)
    result, trials = tune(path, seed=99)
    assert result.cached == 0
    # The claim comes first, and then what a run without it proposes.
    proposed = [event.candidate for event in trials[1:]]
    assert [record.candidate for record in records(tmp_path / "plain.db")][:8] == proposed[:8]
    assert plain.trials == result.trials == TRIALS


@pytest.mark.slow
def test_a_claim_that_is_slower_than_what_was_timed_here_costs_no_trial(
    tmp_path: Path, others: list[Record]
) -> None:
    path = tmp_path / "records.db"
    first, _ = tune(path)
    assert first.best is not None and first.best.latency is not None
    slow = next(it for it in others if (it.latency or 0.0) > first.best.latency)
    bring_in(path, slow)
    _, trials = tune(path, seed=6)
    assert trials[0].candidate != slow.candidate


def test_a_claim_is_timed_once_and_not_by_a_fresh_run(
    tmp_path: Path, others: list[Record]
) -> None:
    path = tmp_path / "records.db"
    forged = with_latency(others[MIDDLE], 1e-9)
    bring_in(path, forged)
    _, fresh = tune(path, fresh=True)
    _, first = tune(path, seed=6)
    _, again = tune(path, seed=7)
    assert fresh[0].candidate != forged.candidate == first[0].candidate
    assert again[0].candidate != forged.candidate


def test_where_nothing_was_timed_here_a_claim_is_shown_as_one(
    tmp_path: Path, others: list[Record]
) -> None:
    path = tmp_path / "records.db"
    bring_in(path, *others)
    with open_database(path, read_only=True) as database:
        best = database.best(RecordFilter(workload=WORKLOAD.digest))
        assert database.lookup(others[0].candidate.digest, others[0].key) is None
    assert best is not None and best.outcome.imported
    assert best.candidate == others[0].candidate
