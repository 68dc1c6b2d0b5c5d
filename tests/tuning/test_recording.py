"""Recording with real workers and the reference backend."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from toy_parts import REFERENCE_BACKEND, TOY_SPACE, TOY_TREES

import autotune
from autotune.errors import UnsupportedWorkload
from autotune.measure import PROTOCOLS
from autotune.models.training import ListedTask, training_groups
from autotune.process.interrupts import TuningInterrupted
from autotune.tuning import api
from autotune.tuning.api import RecordedTask, record_tasks
from autotune.tuning.events import Event, EventListener, RoundStarted
from autotune.tuning.options import TuneOptions

RUN_TASKS = api.run_tasks
TASKS = [ListedTask(f"gemm-{n}", "gemm", {"m": n, "n": n, "k": n}) for n in (8, 16, 32)]


def _record(folder: Path, tasks: Sequence[ListedTask] = TASKS, **settings: Any) -> Any:
    own = {"programs", "random_share", "watching", "clock"} & set(settings)
    arguments = {"programs": 12, **{name: settings.pop(name) for name in own}}
    defaults: dict[str, Any] = {
        "database": folder / "data.db",
        "backend": REFERENCE_BACKEND,
        "parts": {"search_space": TOY_SPACE, "cost_model": TOY_TREES},
        "round_size": 4,
        "threads": 1,
        "protocol": PROTOCOLS["quick"],
    }
    return record_tasks(tasks, TuneOptions(**{**defaults, **settings}), **arguments)


def _stored(folder: Path) -> tuple[list[autotune.Record], int]:
    with autotune.open_database(folder / "data.db") as database:
        return list(database.records()), len(database.runs())


def test_every_task_is_a_run_of_its_own(tmp_path: Path) -> None:
    done = _record(tmp_path, TASKS[:2], programs=8)
    assert [item.task for item in done] == TASKS[:2]
    assert all(item.is_complete and item.trials == 8 for item in done)
    records, runs = _stored(tmp_path)
    assert len(records) == 16 and runs == 2
    assert {record.key.protocol for record in records} == {PROTOCOLS["quick"].identity}
    assert [len(group.outcomes) for group in training_groups(records)] == [8, 8]
    again = _record(tmp_path, TASKS[:2], programs=8)
    assert all(item.result.from_records for item in again)
    assert _stored(tmp_path)[1] == 2


@pytest.mark.slow
def test_half_of_the_candidates_is_random(tmp_path: Path) -> None:
    _record(tmp_path, TASKS[:1])
    _record(tmp_path, TASKS[:1], random_share=1.0, database=tmp_path / "random.db")
    with autotune.open_database(tmp_path / "data.db") as database:
        (run,) = database.runs()
        assert run.strategy == "evolutionary"
        assert run.options["strategy_options"] == {"epsilon": 0.5}
        evolved = {record.candidate.digest for record in database.records()}
    with autotune.open_database(tmp_path / "random.db") as database:
        assert {record.candidate.digest for record in database.records()} != evolved


@pytest.mark.slow
def test_an_interrupt_loses_nothing_and_the_same_call_goes_on(tmp_path: Path) -> None:
    class Stop:
        rounds = 0

        def __call__(self, event: Event) -> None:
            self.rounds += isinstance(event, RoundStarted)
            if self.rounds == 5:
                self.rounds += 1
                raise KeyboardInterrupt

    stop = Stop()

    @contextmanager
    def watching(task: ListedTask) -> Iterator[list[Stop]]:
        yield [stop]

    with pytest.raises(TuningInterrupted):
        _record(tmp_path, watching=watching)
    records, runs = _stored(tmp_path)
    assert 12 < len(records) < 24 and runs == 2
    done = _record(tmp_path)
    assert all(item.is_complete for item in done)
    after, runs = _stored(tmp_path)
    assert len(after) == 36 and runs == 3
    kept = [record.candidate.digest for record in after[: len(records)]]
    assert kept == [record.candidate.digest for record in records]


class Clock:
    """A clock that goes on by a fixed amount at every look."""

    def __init__(self, step: float) -> None:
        self.step, self.time = step, 0.0

    def __call__(self) -> float:
        self.time += self.step
        return self.time


@pytest.mark.slow
def test_time_ends_it_between_tasks(tmp_path: Path) -> None:
    done = _record(tmp_path, time=1500.0, clock=Clock(1000.0))
    assert [item.task.name for item in done] == ["gemm-8"]
    assert [item.task.name for item in _record(tmp_path)] == ["gemm-8", "gemm-16", "gemm-32"]


class Ending:
    """A clock that shows far too many seconds once some rounds have begun."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def __call__(self) -> float:
        return time.monotonic() + (1e6 if self.rounds <= 0 else 0.0)

    def listen(self, event: Event) -> None:
        self.rounds -= isinstance(event, RoundStarted)

    @contextmanager
    def watching(self, task: ListedTask) -> Iterator[list[EventListener]]:
        yield [self.listen]


@pytest.mark.slow
def test_time_ends_it_within_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials, stored = [], []
    for _ in range(2):
        # The seconds of earlier calls do not count.
        ending = Ending(rounds=3)
        monkeypatch.setattr(api, "run_tasks", functools.partial(RUN_TASKS, clock=ending))
        settings: dict[str, Any] = {"programs": 400, "time": 1e5, "watching": ending.watching}
        (item,) = _record(tmp_path, TASKS[2:], **settings)
        assert not item.is_complete
        trials.append(item.trials)
        stored.append(_stored(tmp_path))
    assert 8 <= trials[0] < trials[1] < 400
    assert [len(records) for records, _ in stored] == trials
    assert [runs for _, runs in stored] == [1, 1]


def test_a_task_without_schedules_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(programs: Sequence[Any], options: TuneOptions) -> list[autotune.Result]:
        if programs[0].parameters["m"] == 8:
            raise UnsupportedWorkload("there is no sketch for gemm")
        return RUN_TASKS(programs, options)

    monkeypatch.setattr(api, "run_tasks", refusing)
    first, second = _record(tmp_path, TASKS[:2], programs=4)
    assert first.result is None and first.failure == "there is no sketch for gemm"
    assert first.is_complete and not first.trials
    assert second.trials == 4 and not second.failure


def test_progress_as_json(tmp_path: Path) -> None:
    (item,) = _record(tmp_path, TASKS[:1])
    found = item.to_json()
    assert found["task"] == "gemm-8" and found["programs"] == 12 and found["complete"]
    assert found["best"] == item.result.best.latency and found["run"] == item.result.run_id
    nothing = RecordedTask(TASKS[0], None, 12, "no sketch").to_json()
    assert nothing["failure"] == "no sketch" and nothing["complete"] and not nothing["programs"]
