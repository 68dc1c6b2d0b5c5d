"""Events of a run, as data: the only input of progress, logs and reports.

Events of a task name it: tasks that are tuned together are one run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from attrs import field, frozen

from autotune.sketches import UNTUNED, Candidate
from autotune.store.records import Comparison, Confirmation, Contest, Outcome, Record, WarmSource
from autotune.store.rejections import reject_reason

__all__ = [
    "LATER",
    "AnsweredFromRecords",
    "BackendsCompared",
    "BaselineMeasured",
    "CheckpointSaved",
    "Event",
    "EventListener",
    "LeadersCompared",
    "NetworkLoaded",
    "NetworkTaskFacts",
    "PassFinished",
    "RoundStarted",
    "RunFailed",
    "RunFinished",
    "RunInterrupted",
    "RunStarted",
    "TrialFinished",
    "WarmStarted",
    "WarningRaised",
    "WinnerConfirmed",
    "WorkersReady",
]

LATER = "later"
"""Marks fields that came with a later version: they are written unless they have the default."""


@frozen
class PassFinished:
    """A pass over the graph of a network is done.

    Attributes:
        network: What a person calls the network.
        name: The pass.
        seconds: How long it took.
        note: What it changed; "" where nothing.
    """

    network: str
    name: str
    seconds: float
    note: str


@frozen
class NetworkTaskFacts:
    """Tasks of a network that compute the same.

    Attributes:
        name: Of the first of them, and of the task that is tuned.
        occurrences: Calls in one inference.
        flop: Of one call.
        tunable: Whether it is to be tuned; the search space may still refuse it.
    """

    name: str
    occurrences: int
    flop: float
    tunable: bool


@frozen
class NetworkLoaded:
    """A network was read and cut into tasks; the events of its tasks follow."""

    network: str
    tasks: tuple[NetworkTaskFacts, ...]


@frozen
class RunStarted:
    """A task's run begins, or continues after ``resumed_trials`` of its trials.

    Attributes:
        run_id: The run, as stored in the database.
        task: What a person calls the task, such as ``gemm m=512 n=512 k=512 float32``.
        workload: Digest of the workload.
        flop: Arithmetic operations of one execution.
        trials: The budget in trials, of all tasks of the run together, if there is one.
        seconds: The budget in seconds, if there is one.
        resumed_trials: Trials of this run that were done before.
        resumed_outcomes: How they ended: trials by outcome status.
        resumed_rejections: Rejected trials, by class: ``rejections.reject_reason``.
        resumed_best: Best latency among them in seconds, if any.
        resumed_seconds: Seconds that this run had taken before.
        database: Where the records go.
        sketches: Number of sketches in the space.
        configurations: Number of feasible configurations in the space.
    """

    run_id: str
    task: str
    workload: str
    flop: int
    trials: int | None
    seconds: float | None
    resumed_trials: int
    resumed_outcomes: Mapping[str, int]
    resumed_rejections: Mapping[str, int]
    resumed_best: float | None
    resumed_seconds: float
    database: str
    sketches: int
    configurations: int


@frozen
class WorkersReady:
    """The measuring workers have imported the compiler, ``seconds`` after the session began."""

    task: str
    seconds: float


@frozen
class WarmStarted:
    """A new run begins with what is recorded of equal and similar programs."""

    task: str
    sources: tuple[WarmSource, ...]


@frozen
class BaselineMeasured:
    """A baseline was built and timed, or found in the records.

    Attributes:
        task: The task.
        outcome: Its outcome.
        name: What it is called: that it is untuned, or the backend's default schedule.
    """

    task: str
    outcome: Outcome
    name: str = field(default=UNTUNED, metadata={LATER: True})


@frozen
class RoundStarted:
    """A round of ``candidates`` proposals goes to be measured; ``trial`` is the next trial."""

    task: str
    round: int
    trial: int
    candidates: int


@frozen
class TrialFinished:
    """Event of a candidate that has an outcome.

    Attributes:
        task: The task.
        trial: Position among the task's trials, from 0.
        candidate: What was measured.
        outcome: Its outcome.
        best: Best latency of the task so far in seconds, if any.
        improved: Whether this trial is that best one.
        elapsed: Seconds since the run began, earlier sessions of it included.
        reason: Why it was rejected, as a class: ``rejections.reject_reason`` of the outcome.
    """

    task: str
    trial: int
    candidate: Candidate
    outcome: Outcome
    best: float | None
    improved: bool
    elapsed: float
    reason: str = field(init=False)

    @reason.default
    def _reason_of_outcome(self) -> str:
        return reject_reason(self.outcome)


@frozen
class LeadersCompared:
    """A candidate that may be the best was timed in turns with the one that was.

    Attributes:
        task: The task.
        leader: Digest of the best candidate so far.
        challenger: Digest of the candidate that was compared with it.
        comparison: The challenger against the leader.
        replaced: Whether the challenger is the best candidate now.
    """

    task: str
    leader: str
    challenger: str
    comparison: Comparison
    replaced: bool


@frozen
class WinnerConfirmed:
    """The best candidate was timed again on other inputs, beside those it has beaten."""

    task: str
    confirmation: Confirmation


@frozen
class BackendsCompared:
    """The best candidates of several backends for one program were timed in turns.

    Attributes:
        program: What a person calls the program; the tasks are called ``PROGRAM on BACKEND``.
        contest: What came of it.
    """

    program: str
    contest: Contest


@frozen
class WarningRaised:
    """Something the user should know; the run continues."""

    task: str
    message: str


@frozen
class CheckpointSaved:
    """The run can be resumed from after ``trials`` trials.

    Attributes:
        run_id: The run.
        trials: Trials of all tasks.
        seconds: Wall seconds of the run so far, by activity.
    """

    run_id: str
    trials: int
    seconds: Mapping[str, float]


@frozen
class AnsweredFromRecords:
    """The run had been finished before: nothing was searched."""

    run_id: str
    task: str
    trials: int
    best: Record | None


@frozen
class RunInterrupted:
    """The run was stopped after ``trials`` trials; the same call resumes it."""

    run_id: str
    trials: int


@frozen
class RunFailed:
    """An error ended the run after ``trials`` trials; the caller gets it as an exception.

    The same call resumes the run.

    Attributes:
        run_id: The run.
        trials: Trials of all tasks.
        message: Kind of the error, and what it says.
    """

    run_id: str
    trials: int
    message: str


@frozen
class RunFinished:
    """A task's run ended; ``reason`` says why: budget used up, time over, space exhausted."""

    run_id: str
    task: str
    trials: int
    reason: str
    best: Record | None


Event: TypeAlias = (
    PassFinished
    | NetworkLoaded
    | RunStarted
    | WarmStarted
    | WorkersReady
    | BaselineMeasured
    | RoundStarted
    | TrialFinished
    | LeadersCompared
    | WinnerConfirmed
    | BackendsCompared
    | WarningRaised
    | CheckpointSaved
    | AnsweredFromRecords
    | RunInterrupted
    | RunFailed
    | RunFinished
)
EventListener = Callable[[Event], None]
