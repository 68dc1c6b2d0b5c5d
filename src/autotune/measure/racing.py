"""Choice of the fastest of several programs, from samples that were taken in turns.

The speed of a machine changes for seconds at a time by more than good candidates differ. Programs
that are timed in turns see the same changes, so that the *ratio* of their times within a round is
known far better than either time. Everything here is a pure function of such times.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter, methodcaller

import numpy as np
from attrs import define, field

from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing import ratio_interval
from autotune.store.records import Comparison, Confirmation, Outcome
from autotune.store.trial_log import LogEntry

__all__ = [
    "MIN_RATIO",
    "MOST_LEADERS",
    "Race",
    "challenger",
    "clearly_slower",
    "compare",
    "credible",
    "distinct_programs",
    "drift_of",
    "is_slower_for_certain",
    "judge",
    "latency_after",
    "places",
    "rounded",
]

_DIGITS = 9
_FEW_SAMPLES = 1.1
_LARGEST_SPEED_UP = 2.0
MIN_RATIO = 1 + 1e-6
"""A ratio of latencies that tells two programs apart, and no more than that."""


def rounded(latency: float) -> float:
    """A latency to nine digits, which is more than any clock gives.

    Equal times then give equal latencies, whichever program they were compared with.
    """
    return float(f"{latency:.{_DIGITS}g}")


def clearly_slower(ours: Sequence[float], best: Sequence[float]) -> bool:
    """Return whether a program is slower than the best one in every pair of samples, by a tenth.

    Few pairs give no interval of the median that deserves the name. A machine that changes its
    speed between two samples spoils one pair, seldom all of them.

    Args:
        ours: Samples of the program.
        best: Samples of the best one, each taken right before or after that of the program.
    """
    return all(own > _FEW_SAMPLES * other for own, other in zip(ours, best, strict=False))


def is_slower_for_certain(ours: Sequence[float], best: Sequence[float]) -> bool:
    """Tell if all pairs, also of those to come, say that a program is :func:`clearly_slower`.

    Args:
        ours: Samples of the program.
        best: Samples of the best one, as many, of which each is next to that of the program.
    """
    return len(best) > 1 and compare(ours, best).high * _FEW_SAMPLES < 1


def drift_of(samples: Sequence[float], latency: float) -> float:
    """Slowdown of the machine since a program's latency was set.

    Args:
        samples: What the program takes now.
        latency: Its latency.
    """
    return statistics.median(samples) / latency


def credible(latency: float, samples: Sequence[float]) -> float:
    """A latency, or less where a program has been seen to be much faster than that.

    Others only ever slow a program down, so that its samples bound what it takes. A machine that
    is faster than when the latency was set, as it may be, hardly is twice as fast: the first
    program may have been timed while others had the processors, and what is compared with it
    inherits that.

    Args:
        latency: What the program counts as taking, in seconds.
        samples: What it takes now.
    """
    return min(latency, _LARGEST_SPEED_UP * statistics.median(samples))


def latency_after(comparison: Comparison, latency: float) -> float:
    """The latency of a program that has taken turns with the best one so far.

    One that seems faster counts as faster by as much as is certain, which may be next to nothing:
    the lower end of the interval. Were it the ratio itself, each new best program would owe a part
    of its lead to luck, and since the next one is compared with it, luck would add up.

    Args:
        comparison: The program against the best one.
        latency: Latency of the best one, in seconds.
    """
    if comparison.ratio > 1:
        return latency / max(comparison.low, MIN_RATIO)
    return latency / comparison.ratio


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Comparison:
    """Compare two programs that were timed in turns, by :func:`ratio_interval`.

    Args:
        ours: Seconds of this program, round by round.
        theirs: Seconds of the other one in the same rounds; what one has more is left out.
    """
    ratios = [other / own for own, other in zip(ours, theirs, strict=False)]
    return Comparison(statistics.median(ratios), *ratio_interval(ratios), rounds=len(ratios))


@define
class Race:
    """Programs that are timed in turns until the fastest is known.

    Programs are numbers from 0; number 0 is the best one so far.

    Args:
        count: How many programs there are.
        min_rounds: Rounds before one is dropped.
        max_rounds: Rounds after which it is over.
        resolution: It is over when every ratio to the fastest is known to this share.
    """

    count: int
    min_rounds: int
    max_rounds: int
    resolution: float
    times: list[list[float]] = field(init=False)
    running: list[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.times = [[] for _ in range(self.count)]
        self.running = list(range(self.count))

    @staticmethod
    def under(protocol: MeasureProtocol, count: int) -> Race:
        """A race of so many programs, as long as a protocol says."""
        return Race(count, protocol.min_rounds, protocol.max_rounds, protocol.resolution)

    @property
    def rounds(self) -> int:
        """Complete rounds so far."""
        return min(len(self.times[number]) for number in self.running)

    @property
    def over(self) -> bool:
        """True if another round would tell nothing, or there may be none."""
        if len(self.running) < 2 or self.rounds >= self.max_rounds:
            return True
        if self.rounds < self.min_rounds:
            return False
        fastest = self.fastest
        others = [self.against(number, fastest) for number in self.running if number != fastest]
        return all(other.slower or _half_width(other) <= self.resolution for other in others)

    @property
    def fastest(self) -> int:
        """The program with the smallest :meth:`ratio`."""
        return min(self.running, key=self.ratio)

    def ratio(self, number: int) -> float:
        """Median over the rounds of a program's seconds over those of number 0."""
        return compare(self.times[0], self.times[number]).ratio

    def against(self, number: int, other: int) -> Comparison:
        """Compare a program with another, over the rounds that both took part in."""
        return compare(self.times[number], self.times[other])

    def turns(
        self,
        rng: np.random.Generator,
        *,
        is_over: Callable[[Race], bool] = attrgetter("over"),
        drop: Callable[[Race], None] = methodcaller("drop_losers"),
        needs_first: bool = True,
    ) -> Iterator[tuple[int, int]]:
        """Programs in the order of their turns until it is over; each is noted before the next.

        Each comes with the number of its round, which says where its data lie.

        Args:
            rng: Shuffles each round.
            is_over: Asked before each round.
            drop: Takes programs out after each round.
            needs_first: Whether it ends at once when number 0 fails.
        """
        while not is_over(self):
            placement = self.rounds
            for number in rng.permutation(self.running).tolist():
                yield number, placement
                if needs_first and 0 not in self.running:
                    return
            drop(self)

    def note(self, number: int, seconds: float | None) -> None:
        """Note a program's time in its next round; without one it has failed, and is withdrawn."""
        if seconds is not None:
            self.times[number].append(seconds)
        elif number in self.running:
            self.running.remove(number)

    def drop_losers(self) -> None:
        """Take out what is clearly slower than the fastest, except number 0."""
        if self.rounds < self.min_rounds:
            return
        fastest = self.fastest
        for number in list(self.running):
            if number not in (0, fastest) and self.against(number, fastest).slower:
                self.running.remove(number)


def _half_width(comparison: Comparison) -> float:
    return (comparison.high - comparison.low) / 2


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
    """Choose the program to be compared with the first: the fastest of the others.

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
