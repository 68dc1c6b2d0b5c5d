"""What a rematch of the best candidates and the untuned program says."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from autotune.measure.racing import compare, rounded
from autotune.records import Confirmation, Outcome
from autotune.trial_log import LogEntry

__all__ = ["judge"]


def judge(
    leaders: Sequence[LogEntry], outcomes: Sequence[Outcome], rejected: Sequence[str]
) -> tuple[Confirmation, tuple[LogEntry, float] | None]:
    """What a rematch says.

    Args:
        leaders: The best and the second best trial, if there is one.
        outcomes: Theirs, and possibly that of the untuned program, from turns.
        rejected: Digests of candidates that failed before.

    Returns:
        The confirmation; and the second best trial with the latency that it has as the winner,
        if it turned out to be faster than the best one beyond the noise.
    """
    winner, better = 0, None
    if len(leaders) > 1:
        over = compare(outcomes[0].samples, outcomes[1].samples)
        if over.slower:
            winner = 1
            better = (leaders[1], rounded((leaders[0].latency or 0.0) * over.ratio))
    others = [number for number in range(len(leaders)) if number != winner]
    samples = outcomes[winner].samples
    baseline = outcomes[len(leaders)] if len(outcomes) > len(leaders) else None
    confirmation = Confirmation(
        winner=leaders[winner].digest,
        latency=statistics.median(samples),
        samples=samples,
        runner_up=leaders[others[0]].digest if others else "",
        over_runner_up=compare(samples, outcomes[others[0]].samples) if others else None,
        over_baseline=compare(samples, baseline.samples) if baseline and baseline.ok else None,
        rejected=tuple(rejected),
    )
    return confirmation, better
