"""What a rematch of the best candidates and the untuned program says."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from autotune.measure.racing import compare, latency_after, rounded
from autotune.records import Confirmation, Outcome
from autotune.trial_log import LogEntry

__all__ = ["judge"]


# What rounding a latency changes is no news.
_ROUNDED = 1 - 1e-6


def judge(
    leaders: Sequence[LogEntry], outcomes: Sequence[Outcome], rejected: Sequence[str]
) -> tuple[Confirmation, tuple[LogEntry, float] | None]:
    """What a rematch says.

    Args:
        leaders: The best and the second best trial, if there is one.
        outcomes: Theirs, and possibly that of the untuned program, from turns.
        rejected: Digests of candidates that failed before.

    Returns:
        The confirmation; and, if the winner turned out to be faster than recorded, its trial and
        its latency. The winner is the second best trial if that was faster beyond the noise.
    """
    winner, latency = 0, leaders[0].latency or 0.0
    if len(leaders) > 1:
        over = compare(outcomes[1].samples, outcomes[0].samples)
        if over.faster:
            winner, latency = 1, latency_after(over, latency)
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
    # Latencies of a search are never better than is certain; now there is time for the clock.
    latency = rounded(min(latency, confirmation.latency))
    better = latency < (leaders[winner].latency or 0.0) * _ROUNDED
    return confirmation, (leaders[winner], latency) if better else None
