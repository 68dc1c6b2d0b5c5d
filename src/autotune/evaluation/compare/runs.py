"""Best latencies over a tuning run: pure functions of its results.

Latencies of different runs compare only after their winners took turns on one machine: see
:func:`true_latencies` and :meth:`Course.calibrated`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from autotune.errors import AutotuneError
from autotune.measure import MeasureProtocol, Measurer, MeasurerContext
from autotune.measure.workers import WorkerSetup
from autotune.plugins.parts import check_recorded, create_part
from autotune.store.records import Record
from autotune.targets import Target
from autotune.tuning.options import KINDS, Choice

__all__ = [
    "AFTER_A_RUN",
    "Arena",
    "MISSED",
    "Point",
    "Course",
    "geometric_mean",
    "improvements",
    "long_protocol",
    "read_run",
    "steps_of",
    "time_programs",
    "time_steps",
    "true_latencies",
]

MISSED = 2
"""A run that misses its target counts as this many times its budget."""


@frozen
class Point:
    """State of a run: candidates that it has measured, its seconds, its best program's latency."""

    trials: int
    seconds: float
    latency: float


@frozen
class Course:
    """Improvements of a tuning run, with the trial and time of each.

    Attributes:
        workload: What it tuned.
        contender: What tuned it.
        seed: Its seed.
        budget: Candidates that it was allowed, or, where time was the budget, that it had.
        seconds: Wall seconds of the whole run.
        points: Where another program became its best one, in order.
    """

    workload: str
    contender: str
    seed: int
    budget: int
    seconds: float
    points: tuple[Point, ...]

    @property
    def latency(self) -> float:
        """Latency of what it ended with, in seconds; infinite where nothing was valid."""
        return _last([point.latency for point in self.points])

    def reached(self, target: float) -> Point | None:
        """Point at which its best program first took ``target`` seconds at most; else None."""
        return next((point for point in self.points if point.latency <= target), None)

    def trials_to(self, target: float) -> int:
        """Candidates until ``target``; a run that misses it counts as twice its budget."""
        point = self.reached(target)
        return MISSED * self.budget if point is None else point.trials

    def seconds_to(self, target: float) -> float:
        """Wall seconds until ``target``; a run that misses it counts as twice its own."""
        point = self.reached(target)
        return MISSED * self.seconds if point is None else point.seconds

    def after_trials(self, trials: float) -> float:
        """Best latency after so many candidates, in seconds."""
        return _last([p.latency for p in self.points if p.trials <= trials])

    def after_seconds(self, seconds: float) -> float:
        """Best latency after these wall seconds, in seconds."""
        return _last([p.latency for p in self.points if p.seconds <= seconds])

    def calibrated(self, latency: float) -> Course:
        """The run as it were if its winner's latency had been this.

        The machine may have been faster or slower for the whole of a run; what a run says of its
        own candidates has such drift taken out already.
        """
        scale = latency / self.latency
        points = tuple(evolve(point, latency=point.latency * scale) for point in self.points)
        return evolve(self, points=points)


def read_run(line: Mapping[str, Any]) -> Course:
    """A run as :func:`autotune.evaluation.compare.session.tune_once` told it.

    Its seconds count from the start of the command.

    Args:
        line: With ``workload``, ``contender``, ``seed`` and ``trials`` besides; the last is None
            where time was the budget.
    """
    before = 0.0
    if "seconds" in line:
        before = max(0.0, line["wall"] - line["seconds"]["total"])
    if "steps" in line:
        points = _timed_steps(line["steps"], before)
    else:
        points = improvements(line["history"], before)
    budget = len(line["history"]) if line["trials"] is None else line["trials"]
    return Course(line["workload"], line["contender"], line["seed"], budget, line["wall"], points)


def improvements(
    history: Sequence[tuple[int, float, float | None]], before: float
) -> tuple[Point, ...]:
    """Trials at which the best latency became less.

    Args:
        history: ``[trial, elapsed seconds, best latency so far or null]`` of a result file, whose
            trials count from 0.
        before: Seconds between the start of the command and that of the clock of the history.
    """
    points: list[Point] = []
    for trial, elapsed, best in history:
        if best is not None and (not points or best < points[-1].latency):
            points.append(Point(trial + 1, before + elapsed, best))
    return tuple(points)


def _timed_steps(steps: Sequence[Mapping[str, Any]], before: float) -> tuple[Point, ...]:
    """The best programs of a run by the turns that they took after it.

    One that was slower than the one before it, although the run took it for faster, is what the
    run would have ended with all the same.

    Args:
        steps: Of each program its ``trial``, counted from 0, the ``elapsed`` seconds of the run by
            then, and its ``seconds`` per call in each turn.
        before: As of :func:`improvements`.
    """
    if not steps:
        return ()
    latencies = true_latencies({str(number): it["seconds"] for number, it in enumerate(steps)})
    return tuple(
        Point(step["trial"] + 1, before + step["elapsed"], latencies[str(number)])
        for number, step in enumerate(steps)
    )


def true_latencies(turns: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Latencies of programs that took turns.

    The machine may be slower in one round than in another, for all of them. A program's latency is
    the median over the rounds of its share of the round's level, times the median of the levels.

    Args:
        turns: Seconds of every program, one for each round.
    """
    levels = [statistics.median(round_) for round_ in zip(*turns.values(), strict=True)]
    level = statistics.median(levels)
    return {
        name: level * statistics.median(s / it for s, it in zip(seconds, levels, strict=True))
        for name, seconds in turns.items()
    }


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive values; infinite where one of them is."""
    return math.exp(statistics.fmean(map(math.log, values)))


def _last(latencies: Sequence[float]) -> float:
    return latencies[-1] if latencies else math.inf


_DIGITS = 5

Step = tuple[int, float, Record]
"""A best program so far: its trial, counted from 0, the run's seconds by then, and its record."""


@frozen
class Arena:
    """Place in which programs take turns.

    Attributes:
        turns: How many each of them has. They are many and short: a machine that others use
            changes its speed within a long one.
        seconds: How long one of them is.
        backend: What builds the programs, where no plugin registers it: an import string in a
            file is not followed.
        measurer: What times them.
    """

    turns: int = 30
    seconds: float = 1e-3
    backend: str | None = None
    measurer: Choice = Choice(KINDS["measurer"])


AFTER_A_RUN = Arena()
"""Turns that the best programs of one run take after it."""


def long_protocol(turns: int, turn_seconds: float) -> MeasureProtocol:
    """Turns until they are all over, whatever is known before; each of one sample.

    Args:
        turns: How many.
        turn_seconds: How long a program runs in each.
    """
    return MeasureProtocol(
        min_sample_seconds=turn_seconds,
        samples_per_turn=1,
        min_rounds=turns,
        max_rounds=turns,
        resolution=1e-9,
    )


def steps_of(
    history: Sequence[tuple[int, float, float | None]], records: Sequence[Record], winner: Record
) -> list[Step]:
    """The best programs so far of a run, in order, and at last the one that it ended with.

    Args:
        history: ``[trial, elapsed seconds, best latency so far or null]`` of its result file.
        records: All records of the run.
        winner: What it ended with, which need not be what seemed the fastest before.
    """
    by_trial = {record.trial: record for record in records}
    steps = [
        (point.trials - 1, point.seconds, by_trial[point.trials - 1])
        for point in improvements(history, 0.0)
    ]
    if steps[-1][2].candidate.digest != winner.candidate.digest:
        trial, elapsed, _ = history[-1]
        steps.append((trial, elapsed, winner))
    return steps


def time_steps(steps: Sequence[Step], arena: Arena = AFTER_A_RUN) -> list[Mapping[str, Any]]:
    """Time the best programs of a run in turns, as the run that found them measured them.

    Returns:
        Of every step its ``trial``, its ``elapsed`` seconds, and the ``seconds`` per call in each
        turn; without those whose program failed by then.

    Raises:
        AutotuneError: nothing can be measured here.
    """
    timed, _ = time_programs([record for _, _, record in steps], arena)
    return [
        {"trial": trial, "elapsed": elapsed, "seconds": timed[record.candidate.digest]}
        for trial, elapsed, record in steps
        if record.candidate.digest in timed
    ]


def time_programs(
    records: Sequence[Record], arena: Arena
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Time the programs of records of one workload in turns, each candidate once.

    Returns:
        By the digest of the candidate: seconds per call in each turn, and why others have none.

    Raises:
        AutotuneError: nothing can be measured here, or the records are not of one task.
    """
    unique = list({record.candidate.digest: record for record in records}.values())
    tasks = {(it.candidate.sketch.workload.digest, it.key.backend, it.program) for it in unique}
    if len(tasks) != 1:
        raise AutotuneError("only programs of one workload and one backend can take turns")
    with _measurer(unique[0], arena) as measurer:
        outcomes = measurer.rematch([record.candidate for record in unique])
    turns = max((len(outcome.samples) for outcome in outcomes if outcome.ok), default=0)
    timed: dict[str, list[float]] = {}
    failed: dict[str, str] = {}
    for record, outcome in zip(unique, outcomes, strict=True):
        digest = record.candidate.digest
        if outcome.ok and len(outcome.samples) == turns:
            timed[digest] = [_rounded(seconds) for seconds in outcome.samples]
        else:
            failed[digest] = f"{outcome.status}: {outcome.message}".removesuffix(": ")
    return timed, failed


def _measurer(record: Record, arena: Arena) -> Measurer:
    backend = record.key.backend
    check_recorded("backend", backend, arena.backend)
    protocol = long_protocol(arena.turns, arena.seconds)
    context = MeasurerContext(
        setup=WorkerSetup(backend, Target.from_json(record.target), record.key.threads, protocol),
        workload=record.candidate.sketch.workload,
        program=record.program,
        options=arena.measurer.options,
    )
    measurer: Measurer = create_part("measurer", arena.measurer.name, context)
    return measurer


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.{_DIGITS}g}")
