"""Programs of tuning runs, timed in turns after them.

While it runs, a tuner knows its candidates from a few samples each, and counts what seems faster
only by as much as is certain: its own figures show progress long after it was made. And the
machine is as fast in one run as in another only by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from autotune.errors import AutotuneError
from autotune.evaluation.compare.runs import improvements
from autotune.measure import MeasureProtocol, Measurer, MeasurerContext
from autotune.measure.workers import WorkerSetup
from autotune.plugins.parts import check_recorded, create_part
from autotune.store.records import Record
from autotune.targets import Target
from autotune.tuning.choices import KINDS, Choice

__all__ = [
    "AFTER_A_RUN",
    "Arena",
    "Step",
    "long_protocol",
    "steps_of",
    "time_programs",
    "time_steps",
]

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
"""How the best programs of one run take turns after it."""


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
