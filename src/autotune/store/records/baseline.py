"""Program without tuning, as timed: every tuned program has to beat it."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve, frozen

from autotune.sketches import UNTUNED, baseline_candidate
from autotune.store.records.outcome import Outcome
from autotune.store.records.record import MeasureKey, Record

__all__ = ["Baseline", "best_baseline", "standing"]


@frozen
class Baseline:
    """The outcome of a program that a user has without tuning.

    Attributes:
        run_id: The run that measured it.
        workload: Digest of the workload.
        key: What the measurement depends on.
        outcome: What happened.
        created: Unix time in seconds.
        name: What the program is called: ``UNTUNED``, or the name of a backend's default schedule.
        counts_as: Seconds that it counts as beside candidates: it has taken turns with the
            fastest of them, and counts as no slower unless that one was faster beyond the noise.
            None before that: its own latency tells.
    """

    run_id: str
    workload: str
    key: MeasureKey
    outcome: Outcome
    created: float
    name: str = UNTUNED
    counts_as: float | None = None

    @staticmethod
    def of(record: Record) -> Baseline:
        """The baseline that a record is of.

        Args:
            record: One with a ``baseline``.
        """
        return Baseline(
            record.run_id,
            record.candidate.sketch.workload.digest,
            record.key,
            record.outcome,
            record.created,
            record.baseline,
            record.counts_as,
        )

    def record(self, like: Record) -> Record:
        """The record of this program.

        Args:
            like: The record of any candidate of the same workload under the same key.
        """
        return evolve(
            like,
            run_id=self.run_id,
            trial=0,
            candidate=baseline_candidate(like.candidate.sketch.workload, self.name),
            outcome=self.outcome,
            created=self.created,
            elapsed=0.0,
            baseline=self.name,
            counts_as=self.counts_as,
        )

    def beats(self, latency: float) -> bool:
        """Return whether a candidate that takes so many seconds is no gain over this program."""
        own = self.outcome.latency if self.counts_as is None else self.counts_as
        return own is not None and own <= latency


def best_baseline(baselines: Iterable[Baseline]) -> Baseline | None:
    """The fastest of several that is valid; they were timed one after the other.

    Two that are one program have one latency: the one that has taken turns tells more.
    """
    valid = [it for it in baselines if it.outcome.latency is not None]
    return min(
        valid, key=lambda it: (it.outcome.latency or 0.0, it.counts_as is None), default=None
    )


def standing(fastest: Record, baselines: Iterable[Baseline]) -> Record:
    """The record of the program to use: of the fastest candidate, or of what it does not beat.

    What was timed here is held against what was timed here, and claims against claims.

    Args:
        fastest: The record of the fastest valid candidate.
        baselines: Those of its workload under its measure key.
    """
    claimed = fastest.outcome.imported
    best = best_baseline(it for it in baselines if it.outcome.imported == claimed)
    beaten = best is None or not best.beats(fastest.latency or 0.0)
    return fastest if best is None or beaten else best.record(fastest)
