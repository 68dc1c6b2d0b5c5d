"""Rematch of the leaders at the end of a run: selection and verdict."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from autotune.measure.racing import compare
from autotune.store.records import Confirmation, Outcome
from autotune.store.trial_log import LogEntry

__all__ = ["MOST_LEADERS", "challenger", "distinct_programs", "judge", "places"]

MOST_LEADERS = 8
"""Programs that may yet turn out to be the fastest, at most."""

# Seconds that may be spent on finding out which of them is, how often each is called in its turns
# at most, and what a call counts for at least, as short ones are repeated.
_SECONDS, _CALLS, _SHORTEST = 2.0, 24, 1e-3
# Of so many trials one is built again for it.
_TRIALS = 32


def places(latency: float, trials: int) -> int:
    """Number of leaders of a run that are timed again, from 2 to :data:`MOST_LEADERS`.

    The shorter a program is, the less it costs to time it again, and the less is its recorded
    latency worth: what slows a machine down for a minute slows two programs of ten microseconds
    down by different shares, and the better one may have been timed in such a minute.

    Args:
        latency: Of the best one, in seconds.
        trials: How many the run has had: few take less time than eight leaders would.
    """
    affordable = _SECONDS / (_CALLS * max(latency, _SHORTEST))
    return max(2, min(MOST_LEADERS, int(affordable), 2 + trials // _TRIALS))


def distinct_programs(found: Sequence[tuple[LogEntry, Outcome]], count: int) -> list[LogEntry]:
    """The first trials that have programs of their own.

    Args:
        found: Trials with their outcomes, the best first.
        count: How many at most.
    """
    seen: set[str] = set()
    chosen: list[LogEntry] = []
    for entry, outcome in found:
        programs = {entry.digest, outcome.duplicate_of, outcome.lowered, outcome.binary} - {""}
        if len(chosen) < count and seen.isdisjoint(programs):
            chosen.append(entry)
        seen |= programs
    return chosen


def challenger(outcomes: Sequence[Outcome]) -> int:
    """Which of several programs is to be compared with the first: the fastest of the others.

    Args:
        outcomes: Of two or more, from the same turns.
    """
    best = outcomes[0].samples
    return max(
        range(1, len(outcomes)), key=lambda number: compare(outcomes[number].samples, best).ratio
    )


def judge(
    leaders: Sequence[LogEntry], outcomes: Sequence[Outcome], rejected: Sequence[str]
) -> Confirmation:
    """The verdict of a rematch: the winner is the challenger if that was faster beyond the noise.

    Args:
        leaders: The best trial and its :func:`challenger`, if there is one.
        outcomes: Theirs, and possibly that of a baseline, from turns.
        rejected: Digests of candidates that failed before.
    """
    winner = 0
    if len(leaders) > 1 and compare(outcomes[1].samples, outcomes[0].samples).faster:
        winner = 1
    others = [number for number in range(len(leaders)) if number != winner]
    samples = outcomes[winner].samples
    baseline = outcomes[len(leaders)] if len(outcomes) > len(leaders) else None
    return Confirmation(
        winner=leaders[winner].digest,
        latency=statistics.median(samples),
        samples=samples,
        runner_up=leaders[others[0]].digest if others else "",
        over_runner_up=compare(samples, outcomes[others[0]].samples) if others else None,
        over_baseline=compare(samples, baseline.samples) if baseline and baseline.ok else None,
        rejected=tuple(rejected),
    )
