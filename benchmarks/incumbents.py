"""The best programs so far of a tuning run, timed in turns after it.

While it runs, a tuner knows its candidates from a few samples each, and counts what seems faster
only by as much as is certain: its own figures show progress long after it was made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from search_quality import improvements
from turns import long_protocol

from autotune.measure import LocalMeasurer
from autotune.store.records import Record
from autotune.targets import Target

__all__ = ["steps_of", "time_steps"]

# Many short turns: a machine that others use changes its speed within a long one.
TURNS, TURN_SECONDS = 30, 1e-3
_DIGITS = 5

Step = tuple[int, float, Record]
"""A best program so far: its trial, counted from 0, the run's seconds by then, and its record."""


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


def time_steps(steps: Sequence[Step]) -> list[Mapping[str, Any]]:
    """Time the programs in turns, as the run that found them measured them.

    Returns:
        Of every step its ``trial``, its ``elapsed`` seconds, and the ``seconds`` per call in each
        turn; without those whose program failed by then.
    """
    first = steps[0][2]
    protocol = long_protocol(TURNS, TURN_SECONDS)
    workload, key = first.candidate.sketch.workload, first.key
    target = Target.from_json(first.target)
    with LocalMeasurer(key.backend, target, key.threads, workload, protocol=protocol) as measurer:
        outcomes = measurer.rematch([record.candidate for _, _, record in steps])
    return [
        {"trial": trial, "elapsed": elapsed, "seconds": [_rounded(it) for it in outcome.samples]}
        for (trial, elapsed, _), outcome in zip(steps, outcomes, strict=True)
        if outcome.ok and len(outcome.samples) == TURNS
    ]


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.{_DIGITS}g}")
