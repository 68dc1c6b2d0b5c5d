"""Winners of several backends, timed in turns, and the programs without tuning beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from autotune.ir.converter import JsonForm, json_forms, object_form
from autotune.sketches import UNTUNED, baseline_candidate
from autotune.store.records.outcome import Outcome
from autotune.store.records.record import MeasureKey, Record

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["Baseline", "Contest", "best_baseline", "standing"]


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


@frozen
class Comparison:
    """Comparison of two programs that were timed in turns, round by round.

    Attributes:
        ratio: Median over the rounds of the other's seconds over this one's: above 1 when this
            one is faster.
        low: Lower end of the 95 % confidence interval of that median.
        high: Upper end.
        rounds: How often each was timed.
    """

    ratio: float
    low: float
    high: float
    rounds: int

    @property
    def faster(self) -> bool:
        """True if this one is faster beyond the noise."""
        return self.low > 1

    @property
    def slower(self) -> bool:
        """True if this one is slower beyond the noise."""
        return self.high < 1


@frozen
class Confirmation(JsonForm):
    """The winner of a task timed again at the end, on other inputs, beside those it has beaten.

    Attributes:
        winner: Digest of the winning candidate.
        latency: Median of its samples in seconds.
        samples: Seconds per call of every round.
        runner_up: Digest of the fastest of the other leaders; "" when there is none.
        over_runner_up: The winner against the runner-up.
        over_baseline: The winner against the fastest baseline, when that could be run.
        rejected: Digests of leaders that failed, or computed wrong numbers on these inputs.
    """

    winner: str
    latency: float
    samples: tuple[float, ...] = ()
    runner_up: str = ""
    over_runner_up: Comparison | None = None
    over_baseline: Comparison | None = None
    rejected: tuple[str, ...] = ()

    @property
    def gain(self) -> bool:
        """True if the winner is faster than the baseline beyond the noise."""
        return self.over_baseline is not None and self.over_baseline.faster


@json_forms
def _forms(converter: Converter) -> None:
    write, read = object_form(converter, Comparison)

    # A few rounds bound nothing, and JSON has no infinity: null stands for it.
    def write_finite(comparison: Comparison) -> dict[str, Any]:
        high = comparison.high if math.isfinite(comparison.high) else None
        return {**write(comparison), "high": high}

    def read_infinite(data: Any, _: Any) -> Any:
        if isinstance(data, Mapping) and data.get("high", 0) is None:
            data = {**data, "high": math.inf}
        return read(data, Comparison)

    converter.register_unstructure_hook(Comparison, write_finite)
    converter.register_structure_hook(Comparison, read_infinite)
    late = ("over_runner_up", "over_baseline", "samples", "rejected")
    object_form(converter, Confirmation, required=late)


@frozen
class Contest(JsonForm):
    """The winners of several backends for one program, timed in turns at the end of a run.

    Attributes:
        winner: Name of the backend that won.
        finalists: Digest of each backend's best candidate, by name of the backend.
        over: The winner against the others, by backend; those that failed now are not there.
    """

    winner: str
    finalists: Mapping[str, str] = field(hash=False)
    over: Mapping[str, Comparison] = field(hash=False)
