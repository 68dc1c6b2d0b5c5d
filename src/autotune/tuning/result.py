"""The result of tuning, its versioned JSON form, and the function that it is compiled to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from autotune.backends import Backend, CudaExecutable
from autotune.errors import NoValidCandidate, one_line
from autotune.ir.converter import to_json
from autotune.ir.workloads import Workload
from autotune.plugins.parts import recorded_part
from autotune.process.stopwatch import ACTIVITIES
from autotune.runtime.function import DeviceFunction, TunedFunction
from autotune.sketches import UNTUNED, baseline_label
from autotune.store.records import (
    Baseline,
    Comparison,
    Confirmation,
    MeasureKey,
    Outcome,
    Record,
    WarmSource,
)
from autotune.store.rejections import Rejection
from autotune.store.trial_log import describe_counts
from autotune.targets import Target
from autotune.tuning.foreign_programs import build_request, check_build

__all__ = [
    "RESULT_SCHEMA",
    "RESULT_VERSION",
    "HistoryPoint",
    "Result",
    "Rival",
    "compile_record",
]

RESULT_SCHEMA = "autotune.result"
RESULT_VERSION = 1
"""Grows when a field of the JSON form changes its meaning or goes away."""
_MOST_REASONS = 8


def compile_record(
    record: Record, program: str | None = None, backend: str | None = None
) -> TunedFunction:
    """Compile a record's candidate in this process; for a CUDA device a :class:`DeviceFunction`.

    A program that the record itself holds was perhaps written by somebody else: it is compiled in
    another process first, which may die of it, and here only if that went well.

    Args:
        record: A record, such as the best of a result or of a database query.
        program: The imported program that the schedule is replayed on, for a record that does not
            have it itself.
        backend: The record's backend, where no plugin registers it: an import string is followed
            only if it is given here, since a record is data.

    Raises:
        UnknownNameError: no plugin registers the backend that the record names.
        InvalidValueError: the record is of another backend than ``backend``.
        UnsupportedTarget: it was made for a CPU with what this one lacks, such as wider vectors.
        InvalidSchedule: the backend refuses the candidate.
        BuildFailed: the compiler rejects it.
        InvalidValueError: the compiler dies of the record's program, or does not end.
    """
    compiler: Backend = recorded_part("backend", record.key.backend, backend)
    target = Target.from_json(record.target)
    if target.kind == "cpu":
        # An instruction that this one does not know would end the process of the caller.
        compiler.check_measuring(target, record.key.threads)
    # A compiler's runtime reads its thread count when it is first imported; what the user has
    # set is left alone.
    for name, value in compiler.worker_environment(record.key.threads).items():
        os.environ.setdefault(name, value)
    workload = record.candidate.sketch.workload
    if program is None and record.program is not None:
        check_build(record, backend)
        program = record.program
    request = build_request(record, program)
    executable = compiler.build(request)
    if isinstance(executable, CudaExecutable):
        return DeviceFunction(workload, executable, request.target)
    return TunedFunction(workload, executable)


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
        baselines: What there is without tuning, the fastest first. Without the untuned program
            where that is slower than the fastest candidate for certain, and was not run.
        least_untuned: Seconds that a call of the untuned program takes at least; 0.0 where that
            is not known.
        fastest: Record of the fastest valid candidate; None when there is none.
        best: Record of the program to use: of the fastest candidate, or of the baseline that it
            is no gain over. None when no candidate is valid.
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
        warm_start: What the run began with, the nearest first.
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
    baselines: tuple[Baseline, ...]
    fastest: Record | None
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
    least_untuned: float = 0.0
    warm_start: tuple[WarmSource, ...] = ()

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return self.key.backend

    @property
    def threads(self) -> int:
        """Threads that the program runs on."""
        return self.key.threads

    @property
    def baseline(self) -> Outcome | None:
        """Outcome of the fastest program without tuning; of one that failed where all have.

        None where none was measured.
        """
        return self.baselines[0].outcome if self.baselines else None

    @property
    def baseline_name(self) -> str:
        """Name of that program; "" where none was measured."""
        return baseline_label(self.workload, self.baselines[0].name) if self.baselines else ""

    @property
    def keeps_baseline(self) -> bool:
        """True if no candidate is a gain over the baseline, which is therefore the best."""
        return self.best is not None and bool(self.best.baseline)

    @property
    def confirmed_latency(self) -> float | None:
        """Seconds per call of the fastest candidate, as it was timed at the end.

        As recorded where it was not timed again; None where no candidate is valid.
        """
        if self.fastest is None:
            return None
        confirmation = self.confirmation
        if confirmation is not None and confirmation.winner == self.fastest.candidate.digest:
            return confirmation.latency
        return self.fastest.outcome.latency

    @property
    def speedup(self) -> float | None:
        """Speed of the best program relative to the baseline, if both are known.

        From the turns that they took at the end, where there were any; else by its confirmed
        latency. 1 where the best program is the baseline.
        """
        if self.keeps_baseline:
            return 1.0
        if self.confirmation is not None and self.confirmation.over_baseline is not None:
            return self.confirmation.over_baseline.ratio
        latency = self.confirmed_latency
        if not latency or self.baseline is None or self.baseline.latency is None:
            return None
        return self.baseline.latency / latency

    @property
    def least_speedup(self) -> float | None:
        """At least how much faster the best program is than an untuned one that was not run."""
        latency = self.confirmed_latency
        is_known = any(it.name == UNTUNED or it.outcome.ok for it in self.baselines)
        if not latency or not self.least_untuned or is_known:
            return None
        return self.least_untuned / latency

    def build(self) -> TunedFunction:
        """Compile the best program in this process; returns a callable on numpy arrays.

        Where no candidate is a gain over the baseline, that is the baseline's.

        The callable takes the workload's inputs in order and returns its output, or a tuple of
        outputs when there are several.

        Raises:
            NoValidCandidate: no candidate was valid; says what happened to them.
            BuildFailed: the compiler rejects here what it accepted in a worker.
        """
        return compile_record(self.require_best(), self.program, self.key.backend)

    def require_best(self) -> Record:
        """The record of the program to use.

        Raises:
            NoValidCandidate: there is none; says what happened to the candidates.
        """
        if self.best is None:
            raise NoValidCandidate(self.failure_text())
        return self.best

    def failure_text(self) -> str:
        """Write a line on why there is no valid candidate: each reason with its first message."""
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
            "baselines": [self._program_json(item) for item in self.baselines],
            "least_untuned": self.least_untuned or None,
            "fastest": self._fastest_json(),
            "best": self._best_json(),
            "confirmation": to_json(self.confirmation),
            "rivals": [rival.to_json() for rival in self.rivals],
            "loosened": to_json(self.loosened),
            "warm_start": to_json(self.warm_start),
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
        return self._program_json(self.baselines[0]) if self.baselines else None

    def _program_json(self, baseline: Baseline) -> dict[str, Any]:
        outcome = baseline.outcome
        return {
            "name": baseline_label(self.workload, baseline.name),
            "status": outcome.status,
            "latency": outcome.latency,
            "flop_per_second": self._rate(outcome.latency),
            "message": outcome.message,
        }

    def _fastest_json(self) -> dict[str, Any] | None:
        """The fastest candidate, which is the best program or was no gain over the baseline."""
        if self.fastest is None:
            return None
        return {
            "latency": self.fastest.latency,
            "digest": self.fastest.candidate.digest,
            "record": self.fastest.name,
            "is_best": not self.keeps_baseline,
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
            "record": {"run": self.best.run_id, "trial": self.best.trial, "name": self.best.name},
            "baseline": self.best.baseline,
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
