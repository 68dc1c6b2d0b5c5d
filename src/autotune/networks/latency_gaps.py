"""Differences between the estimate of a network and the time of the built network."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

__all__ = ["OUTSIDE", "LatencyGap", "largest_gaps"]

OUTSIDE = "outside the tasks"
"""What the gap is called that no task has: calls of the virtual machine, and memory."""

_AGREES = 0.1
"""An estimate that is off by no more than this part of itself needs no explanation."""
_MOST = 3


@frozen
class LatencyGap:
    """A part of a network in seconds of one inference.

    Attributes:
        part: Name of a task, or :data:`OUTSIDE`.
        estimated: As tuning timed it.
        measured: In the built network.
    """

    part: str
    estimated: float
    measured: float


def largest_gaps(
    tasks: Iterable[LatencyGap], estimated: float, measured: float
) -> tuple[LatencyGap, ...]:
    """The parts that explain why a network takes longer than estimated, or not as long.

    Args:
        tasks: All tasks that were timed in the built network.
        estimated: Seconds of one inference, as estimated.
        measured: Seconds of one inference of the built network.

    Returns:
        Those that together make more than half of the difference, at most three, the largest
        first; () where the estimate is off by at most a tenth.
    """
    whole = measured - estimated
    if abs(whole) <= _AGREES * estimated:
        return ()
    parts = [*tasks]
    # Tasks are timed one by one, which takes longer: then nothing is left outside them.
    outside = max(0.0, measured - sum(it.measured for it in parts))
    parts.append(LatencyGap(OUTSIDE, 0.0, outside))
    sign = 1.0 if whole > 0 else -1.0

    def share(gap: LatencyGap) -> float:
        return sign * (gap.measured - gap.estimated)

    found: list[LatencyGap] = []
    for gap in sorted(parts, key=share, reverse=True)[:_MOST]:
        if share(gap) <= 0 or sum(map(share, found)) > abs(whole) / 2:
            break
        found.append(gap)
    return tuple(found)
