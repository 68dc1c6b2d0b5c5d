"""The result of tuning, and its versioned JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from autotune.errors import NoValidCandidate, one_line
from autotune.ir.converter import to_json
from autotune.ir.workloads import Workload
from autotune.process.stopwatch import ACTIVITIES
from autotune.store.records import Comparison, Confirmation, MeasureKey, Outcome, Record
from autotune.store.rejections import Rejection
from autotune.store.trial_log import describe_counts
from autotune.targets import Target
from autotune.tuning.tuned_function import TunedFunction, compile_record

__all__ = ["RESULT_SCHEMA", "RESULT_VERSION", "HistoryPoint", "Result", "Rival"]

RESULT_SCHEMA = "autotune.result"
RESULT_VERSION = 1
"""Grows when a field of the JSON form changes its meaning or goes away."""
_MOST_REASONS = 8


@frozen
class HistoryPoint:
    """State after one trial: seconds since the run began and best latency so far (or None)."""

    trial: int
    elapsed: float
    best: float | None


@frozen(eq=False)
class Result:
    """The outcome of tuning one task.

    Attributes:
        run_id: The run, as stored in the database.
        task: What a person calls the task.
        workload: What was tuned.
        target: What it was tuned for.
        key: What the measurements depend on: backend, compiler, threads, protocol.
        space: Name and version of the search space.
        strategy: Name of the strategy.
        cost_model: Name of the cost model.
        seed: Seed of the run.
        trials: Number of trials, cached ones included.
        outcomes: Number of trials by outcome status.
        failures: First message of each kind of failure that occurred.
        rejections: Rejected candidates, by class; see ``autotune.store.rejections``.
        cached: How many trials were answered from records.
        seconds: Wall seconds of the run by activity, the keys of ``ACTIVITIES``; a resumed run
            counts its earlier sessions.
        baseline: Outcome of the untuned program, if it was measured.
        best: Record of the fastest valid candidate; None when there is none.
        history: One point per trial.
        database: Where the records are.
        program: The imported program's text, when one was imported.
        from_records: True when nothing was searched.
        reason: Why the run ended.
        confirmation: The best candidate timed again at the end; None
            when nothing was measured.
        loosened: Soft constraints that the space dropped, by sketch: ``SearchSpace.loosened``.
        rivals: Where several backends competed and this is the winner's result: those of the
            others, the fastest first.
    """

    run_id: str
    task: str
    workload: Workload
    target: Target
    key: MeasureKey
    space: str
    strategy: str
    cost_model: str
    seed: int
    trials: int
    outcomes: Mapping[str, int]
    failures: Mapping[str, str]
    cached: int
    seconds: Mapping[str, float]
    baseline: Outcome | None
    best: Record | None
    history: tuple[HistoryPoint, ...]
    database: str
    program: str | None = field(default=None, repr=False)
    from_records: bool = False
    reason: str = ""
    rejections: Mapping[str, Rejection] = field(factory=dict)
    confirmation: Confirmation | None = None
    loosened: Mapping[str, tuple[str, ...]] = field(factory=dict)
    rivals: tuple[Rival, ...] = ()

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return self.key.backend

    @property
    def threads(self) -> int:
        """Threads that the program runs on."""
        return self.key.threads

    @property
    def speedup(self) -> float | None:
        """How much faster the best candidate is than the untuned program, if both are known.

        From the turns that they took at the end, where there were any.
        """
        if self.confirmation is not None and self.confirmation.over_baseline is not None:
            return self.confirmation.over_baseline.ratio
        if self.best is None or self.baseline is None or self.baseline.latency is None:
            return None
        return self.baseline.latency / (self.best.outcome.latency or self.baseline.latency)

    def build(self) -> TunedFunction:
        """Compile the best schedule in this process; returns a callable on numpy arrays.

        The callable takes the workload's inputs in order and returns its output, or a tuple of
        outputs when there are several.

        Raises:
            NoValidCandidate: no candidate was valid; says what happened to them.
            BuildFailed: the compiler rejects here what it accepted in a worker.
        """
        return compile_record(self.require_best(), self.program, self.key.backend)

    def require_best(self) -> Record:
        """The record of the fastest valid candidate.

        Raises:
            NoValidCandidate: there is none; says what happened to the candidates.
        """
        if self.best is None:
            raise NoValidCandidate(self.failure_text())
        return self.best

    def failure_text(self) -> str:
        """One line on why there is no valid candidate: each reason with its first message."""
        text = (
            f"{self.task}: none of {self.trials} candidates was valid "
            f"({describe_counts(self.outcomes)})"
        )
        frequent = list(self.rejections.items())[:_MOST_REASONS]
        reasons = [_describe_rejection(reason, found) for reason, found in frequent]
        rest = len(self.rejections) - len(frequent)
        return "; ".join([text, *reasons, *([f"and {rest} more reasons"] if rest else [])])

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``docs`` describe the schema, ``schema`` and ``version`` name it."""
        return {
            "schema": RESULT_SCHEMA,
            "version": RESULT_VERSION,
            "task": {
                "name": self.task,
                "digest": self.workload.digest,
                "flop": self.workload.flop,
                "workload": self.workload.to_json(),
            },
            "target": {"fingerprint": self.target.fingerprint, **self.target.to_json()},
            "backend": {
                "name": self.key.backend,
                "version": self.key.backend_version,
                "compiler": self.key.compiler_version,
            },
            "threads": self.key.threads,
            "protocol": self.key.protocol,
            "space": self.space,
            "strategy": self.strategy,
            "cost_model": self.cost_model,
            "seed": self.seed,
            "trials": self.trials,
            "cached": self.cached,
            "outcomes": dict(self.outcomes),
            "failures": dict(self.failures),
            "rejections": to_json(self.rejections),
            "seconds": self._seconds_json(),
            "baseline": self._baseline_json(),
            "best": self._best_json(),
            "confirmation": to_json(self.confirmation),
            "rivals": [rival.to_json() for rival in self.rivals],
            "loosened": to_json(self.loosened),
            "history": [[point.trial, point.elapsed, point.best] for point in self.history],
            "run": {
                "id": self.run_id,
                "database": self.database,
                "from_records": self.from_records,
                "reason": self.reason,
            },
        }

    def _seconds_json(self) -> dict[str, float]:
        parts = {name: float(self.seconds.get(name, 0.0)) for name in ACTIVITIES}
        return {**parts, "total": sum(parts.values())}

    def _baseline_json(self) -> dict[str, Any] | None:
        if self.baseline is None:
            return None
        return {
            "status": self.baseline.status,
            "latency": self.baseline.latency,
            "flop_per_second": self._rate(self.baseline.latency),
            "message": self.baseline.message,
        }

    def _best_json(self) -> dict[str, Any] | None:
        if self.best is None:
            return None
        candidate, outcome = self.best.candidate, self.best.outcome
        return {
            "latency": outcome.latency,
            "flop_per_second": self._rate(outcome.latency),
            "speedup": self.speedup,
            "samples": list(outcome.samples),
            "readings": dict(outcome.readings),
            "digest": candidate.digest,
            "sketch": candidate.sketch.to_json(),
            "config": dict(candidate.config),
            "record": {"run": self.best.run_id, "trial": self.best.trial},
        }

    def _rate(self, latency: float | None) -> float | None:
        return self.workload.flop / latency if latency else None


@frozen(eq=False)
class Rival:
    """The result of a backend that competed and did not win.

    Attributes:
        result: Its own result.
        comparison: The winner's best candidate against its own, timed in turns at the end; None
            where one of them could not be timed.
    """

    result: Result
    comparison: Comparison | None

    def to_json(self) -> dict[str, Any]:
        """A JSON object with both."""
        return {"comparison": to_json(self.comparison), "result": self.result.to_json()}


def _describe_rejection(reason: str, found: Rejection) -> str:
    """``"3 crash: SIGSEGV in run, the first: ..."``, without a message that says no more."""
    text = f"{found.count} {reason}"
    message = one_line(found.message, 160)
    return f"{text}, the first: {message}" if message and message not in reason else text
