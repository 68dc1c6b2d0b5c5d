"""What happens during a run, as data. Progress, logs and reports consume these and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

from attrs import frozen

from autotune.records import Outcome, Record
from autotune.sketches import Candidate


@frozen
class RunStarted:
    """A task's run begins, or continues after ``resumed_trials`` trials."""

    run_id: str
    task: str
    workload: str
    trials: int
    resumed_trials: int
    database: str
    sketches: int
    configurations: int


@frozen
class WorkersReady:
    """The measuring workers have imported the compiler."""

    workers: int
    seconds: float


@frozen
class BaselineMeasured:
    """The untuned program was built and timed."""

    outcome: Outcome


@frozen
class RoundStarted:
    """A round of ``candidates`` proposals goes to be measured; ``trial`` is the next trial."""

    round: int
    trial: int
    candidates: int


@frozen
class TrialFinished:
    """One candidate has an outcome. ``best`` is the best latency so far in seconds, if any."""

    trial: int
    candidate: Candidate
    outcome: Outcome
    best: float | None
    improved: bool
    elapsed: float


@frozen
class CheckpointSaved:
    """The run can be resumed from after ``trials`` trials."""

    run_id: str
    trials: int


@frozen
class AnsweredFromRecords:
    """The run had been finished before: nothing was searched."""

    run_id: str
    record: Record


@frozen
class RunInterrupted:
    """The run was stopped; the same call resumes it."""

    run_id: str
    trials: int


@frozen
class RunFinished:
    """The run ended: budget used up, time over, or the space exhausted (``reason``)."""

    run_id: str
    trials: int
    reason: str
    best: Record | None


Event = Union[
    RunStarted,
    WorkersReady,
    BaselineMeasured,
    RoundStarted,
    TrialFinished,
    CheckpointSaved,
    AnsweredFromRecords,
    RunInterrupted,
    RunFinished,
]
EventListener = Callable[[Event], None]
