"""Number of times to repeat a call, and what its samples say of the median."""

from __future__ import annotations

import math
import numbers
import statistics
from collections.abc import Sequence
from typing import Protocol

from attrs import define, field, frozen

from autotune.measure.protocol import MeasureProtocol

LONG_SECONDS = 0.02
"""A call that takes as long as this is not repeated to make it warm, and is a sample by itself."""

_MOST_CALLS = 1_000_000
_SHOWN_CHARACTERS = 80


class Timed(Protocol):
    """Something that can be called repeatedly, such as a ``BoundCall``."""

    def time(self, number: int) -> float:
        """Seconds per call over ``number`` calls."""


class NotALatency(Exception):
    """A program's ``time`` returned something that no call can take."""


@define
class CheckedCall:
    """A call whose times are latencies, or it has failed.

    Args:
        call: What to time.

    Attributes:
        number: How often it was repeated the last time.
    """

    call: Timed
    number: int = field(default=1, init=False)

    def time(self, number: int) -> float:
        """Seconds per call over ``number`` calls.

        Raises:
            NotALatency: the call returned no finite number above 0.
        """
        self.number = number
        seconds: object = self.call.time(number)
        if isinstance(seconds, numbers.Real) and not isinstance(seconds, bool):
            latency = float(seconds)
            if math.isfinite(latency) and latency > 0:
                return latency
        shown = f"{type(seconds).__name__} {repr(seconds)[:_SHOWN_CHARACTERS]}"
        raise NotALatency(f"time() returned {shown}, not a finite number of seconds above 0")


@frozen
class FirstCall:
    """The call of a program whose results were checked, before any that is timed.

    Attributes:
        seconds: What it took. It may have taken several times as long as later calls: memory that
            is touched for the first time has to be granted and cleared.
        user_seconds: Seconds in user mode for each thread, which that is not in, nor what other
            processes took: no call of the program takes less. 0.0 where that is not known.
    """

    seconds: float
    user_seconds: float = 0.0


def time_call(
    call: Timed,
    protocol: MeasureProtocol,
    incumbent: float | None = None,
    first: FirstCall | None = None,
) -> tuple[float, ...]:
    """Timed samples of a call, in seconds per call, in order.

    One call goes before, which warms caches and tells how many calls make a sample of
    ``min_sample_seconds``. Without an incumbent, samples are taken until the median is known to
    the target precision, or the budget or the number of samples is used up. Beside one, it is
    ``min_samples`` samples: what more is needed is found out in turns with the incumbent.

    A long call is warm once it has been checked, and one that exceeds the budget by itself is not
    warmed: all its calls count. Beside an incumbent it is called only until that tells whether it
    is to be timed in turns.

    Args:
        call: What to time.
        protocol: How.
        incumbent: Best latency known, in seconds.
        first: What the call took when its results were checked, if that was done. From
            ``limit_seconds`` on, or where it has lost already, this is the only sample: the
            program is not run again.
    """
    if first is not None and _was_enough(first, protocol, incumbent):
        return (first.seconds,)
    estimate = call.time(1)
    samples: list[float] = []
    number = 1
    if estimate >= (protocol.budget_seconds if first is None else LONG_SECONDS):
        samples.append(estimate)
        if incumbent is not None:
            before = () if first is None else (first.seconds,)
            while not _is_placed(samples, before, protocol, incumbent):
                samples.append(call.time(1))
            return tuple(samples)
    else:
        number = calls_per_sample(call, estimate, protocol.min_sample_seconds)
    while not _enough(samples, number, protocol, incumbent):
        samples.append(call.time(number))
    return tuple(samples)


def _was_enough(first: FirstCall, protocol: MeasureProtocol, incumbent: float | None) -> bool:
    """Return whether a program need not be called again after it was checked."""
    if first.seconds >= protocol.limit_seconds:
        return True
    least = first.user_seconds
    if incumbent is None or least < protocol.budget_seconds:
        return False
    return least > 2 * protocol.drop_factor * incumbent


def _is_placed(
    samples: Sequence[float],
    before: Sequence[float],
    protocol: MeasureProtocol,
    incumbent: float,
) -> bool:
    """Return whether it is known if a long call is slower than the incumbent by ``drop_factor``.

    One sample that is not tells that it may be no slower. Calls that agree on more, of which two
    are enough, that of the check among them, tell that it is.
    """
    if len(samples) >= protocol.min_samples or sum(samples) >= protocol.limit_seconds:
        return True
    slowest = protocol.drop_factor * incumbent
    if min(samples) <= slowest or min(samples) > 2 * slowest:
        return True
    _, high = ratio_interval([slowest / seconds for seconds in (*before, *samples)])
    return high < 1


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
    samples: Sequence[float], number: int, protocol: MeasureProtocol, incumbent: float | None
) -> bool:
    if not samples:
        return False
    spent = sum(samples) * number
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


_TAIL = 0.025
# Two-sided 95 % points of Student's distribution with 1 to 4 degrees of freedom.
_STUDENT = (12.706, 4.303, 3.182, 2.776)


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


def ratio_interval(ratios: Sequence[float]) -> tuple[float, float]:
    """A 95 % confidence interval of the median of ratios.

    It comes from order statistics, which assume nothing about the distribution, and with fewer
    than six ratios from Student's distribution of the logarithms. A single ratio tells nothing:
    its interval is without bounds.
    """
    interval = median_interval(ratios)
    if interval is not None:
        return interval
    count = len(ratios)
    if count < 2:
        return 0.0, math.inf
    logs = [math.log(ratio) for ratio in ratios]
    half = _STUDENT[count - 2] * statistics.stdev(logs) / math.sqrt(count)
    middle = statistics.fmean(logs)
    return math.exp(middle - half), math.exp(middle + half)
