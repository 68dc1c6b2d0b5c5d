"""How often to time a call, as a pure function."""

from __future__ import annotations

import math
import numbers
import statistics
from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from autotune.measure.protocol import MeasureProtocol

_MOST_CALLS = 1_000_000
_TAIL = 0.025
_SHOWN_CHARACTERS = 80


class Timed(Protocol):
    """Something that can be called repeatedly, such as a ``BoundCall``."""

    def time(self, number: int) -> float:
        """Seconds per call over ``number`` calls."""


class NotALatency(Exception):
    """A program's ``time`` returned something that no call can take."""


@frozen
class CheckedCall:
    """A call whose times are latencies, or it has failed.

    Args:
        call: What to time.
    """

    call: Timed

    def time(self, number: int) -> float:
        """Seconds per call over ``number`` calls.

        Raises:
            NotALatency: the call returned no finite number above 0.
        """
        seconds: object = self.call.time(number)
        if isinstance(seconds, numbers.Real) and not isinstance(seconds, bool):
            latency = float(seconds)
            if math.isfinite(latency) and latency > 0:
                return latency
        shown = f"{type(seconds).__name__} {repr(seconds)[:_SHOWN_CHARACTERS]}"
        raise NotALatency(f"time() returned {shown}, not a finite number of seconds above 0")


class RememberingCall:
    """A call that remembers how often it was repeated the last time.

    Args:
        call: What to time.

    Attributes:
        number: How often.
    """

    def __init__(self, call: Timed) -> None:
        self._call = call
        self.number = 1

    def time(self, number: int) -> float:
        """Seconds per call over ``number`` calls."""
        self.number = number
        return self._call.time(number)


def time_call(
    call: Timed,
    protocol: MeasureProtocol,
    incumbent: float | None = None,
    checked_seconds: float = 0.0,
) -> tuple[float, ...]:
    """Timed samples of a call, in seconds per call, in order.

    One call goes first, which warms caches and tells how many calls make a sample of
    ``min_sample_seconds``. With an incumbent, ``min_samples`` samples are taken, fewer when the
    call is much slower: what more is needed is found out in turns with the incumbent. Without
    one, samples are taken until the median is known to the target precision, or the budget or
    the number of samples is used up. A call that exceeds the budget by itself is not warmed: all
    its calls count.

    Args:
        call: What to time.
        protocol: How.
        incumbent: Best latency known, in seconds.
        checked_seconds: What the call took when its results were checked. From
            ``limit_seconds`` on this is the only sample: the program is not run again.
    """
    if checked_seconds >= protocol.limit_seconds:
        return (checked_seconds,)
    estimate = call.time(1)
    samples: list[float] = []
    spent = 0.0
    number = 1
    if estimate >= protocol.budget_seconds:
        samples.append(estimate)
        spent = estimate
    else:
        number = calls_per_sample(call, estimate, protocol.min_sample_seconds)
    while not _enough(samples, spent, protocol, incumbent):
        samples.append(call.time(number))
        spent += samples[-1] * number
    return tuple(samples)


def calls_per_sample(call: Timed, estimate: float, wanted: float) -> int:
    """Calls that last about ``wanted`` seconds; short calls are estimated again in a loop.

    A single short call is mostly overhead and cold caches, so that its time says little.
    """
    number = 1
    while True:
        enough = min(_MOST_CALLS, max(1, math.ceil(wanted / max(estimate, 1e-9))))
        # Within a factor of two the next sample is long enough to be trusted as it is.
        if enough <= 2 * number or number == _MOST_CALLS:
            return enough
        number = min(enough, number * 32)
        estimate = call.time(number)


def _enough(
    samples: Sequence[float], spent: float, protocol: MeasureProtocol, incumbent: float | None
) -> bool:
    if not samples:
        return False
    if spent >= protocol.limit_seconds:
        return True
    if incumbent is not None and min(samples) > 2 * protocol.drop_factor * incumbent:
        return True
    if len(samples) < protocol.min_samples:
        return False
    if incumbent is not None or spent >= protocol.budget_seconds:
        return True
    if len(samples) >= protocol.max_samples:
        return True
    interval = median_interval(samples)
    if interval is None:
        return False
    low, high = interval
    return (high - low) / 2 <= protocol.target_half_width * statistics.median(samples)


def median_interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """A 95 % confidence interval of the median, free of assumptions on the distribution.

    Order statistics ``j`` and ``n + 1 - j`` enclose the median unless fewer than ``j`` of ``n``
    samples fall on one side of it, and how many do is binomial. Fewer than six samples give no
    such interval: None.
    """
    count = len(samples)
    rank = 0
    cumulative = 1 / 2**count
    while cumulative <= _TAIL:
        rank += 1
        cumulative += math.comb(count, rank) / 2**count
    if rank == 0:
        return None
    ordered = sorted(samples)
    return ordered[rank - 1], ordered[count - rank]
