"""Winners of several backends, timed in turns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from autotune.ir.converter import JsonForm, json_forms, object_form

if TYPE_CHECKING:
    from cattrs import Converter


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


__all__ = ["Contest"]


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
