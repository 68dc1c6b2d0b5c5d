"""Two programs timed in turns, and what that says about the winner of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
from attrs import frozen

from autotune.errors import InvalidValueError

__all__ = ["Comparison", "Confirmation", "comparison_from_json", "comparison_to_json"]


@frozen
class Comparison:
    """How two programs compare that were timed in turns, round by round.

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
        """Whether this one is faster beyond the noise."""
        return self.low > 1

    @property
    def slower(self) -> bool:
        """Whether this one is slower beyond the noise."""
        return self.high < 1


@frozen
class Confirmation:
    """The winner of a task timed again at the end, on other inputs, beside those it has beaten.

    Attributes:
        winner: Digest of the winning candidate.
        latency: Median of its samples in seconds.
        samples: Seconds per call of every round.
        runner_up: Digest of the fastest of the other leaders; "" when there is none.
        over_runner_up: The winner against the runner-up.
        over_baseline: The winner against the untuned program, when that could be run.
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
        """Whether the winner is faster than the untuned program beyond the noise."""
        return self.over_baseline is not None and self.over_baseline.faster

    def to_json(self) -> dict[str, Any]:
        """A JSON object that :meth:`from_json` reads back."""
        return {
            **attrs.asdict(self),
            "samples": list(self.samples),
            "over_runner_up": self.over_runner_up and comparison_to_json(self.over_runner_up),
            "over_baseline": self.over_baseline and comparison_to_json(self.over_baseline),
            "rejected": list(self.rejected),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Confirmation:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidValueError: the object is not a confirmation.
        """
        try:
            given = dict(data)
            for name in ("over_runner_up", "over_baseline"):
                given[name] = given[name] and comparison_from_json(given[name])
            for name in ("samples", "rejected"):
                given[name] = tuple(given[name])
            return Confirmation(**given)
        except (KeyError, TypeError) as error:
            raise InvalidValueError(f"not a confirmation: {error!r}") from error


def comparison_to_json(comparison: Comparison) -> dict[str, Any]:
    """A JSON object; a few rounds bound nothing, and JSON has no infinity: null stands for it."""
    high = comparison.high if math.isfinite(comparison.high) else None
    return {**attrs.asdict(comparison), "high": high}


def comparison_from_json(data: Mapping[str, Any]) -> Comparison:
    """Read what :func:`comparison_to_json` wrote."""
    return Comparison(**{**data, "high": math.inf if data["high"] is None else data["high"]})
