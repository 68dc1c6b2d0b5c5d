"""Replayed run: best latencies by number of evaluations and virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import define, field, frozen
from attrs.validators import ge, gt
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.converter import JsonForm, json_forms, list_form

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["Budget", "Ledger", "Run", "Step"]


@frozen
class Budget(JsonForm):
    """Limits of a run.

    Attributes:
        evaluations: Configurations that may be evaluated.
        seconds: Virtual seconds, after which nothing ends any more; None for any number.
        round_size: Configurations that a strategy is asked for at once.
    """

    evaluations: int = 200
    seconds: float | None = None
    round_size: int = 1

    def __attrs_post_init__(self) -> None:
        if self.evaluations < 1 or self.round_size < 1:
            raise InvalidValueError(
                f"a budget and a round have at least 1 evaluation, not {self.evaluations} and "
                f"{self.round_size}"
            )
        if self.seconds is not None and not self.seconds > 0:
            raise InvalidValueError(f"the virtual time must be above 0 s, not {self.seconds}")


@frozen
class Step:
    """An evaluation that was better than all before it.

    Attributes:
        evaluation: Its number, from 1.
        elapsed: Virtual seconds when it ended.
        seconds: What the configuration takes.
    """

    evaluation: int = field(validator=gt(0))
    elapsed: float = field(validator=ge(0))
    seconds: float = field(validator=gt(0))


@frozen
class Run(JsonForm):
    """A strategy on a space with a seed.

    Attributes:
        space: Name of the space.
        digest: Of the space.
        strategy: What was replayed.
        seed: Of its generator.
        budget: What it might use.
        steps: The evaluations that improved.
        evaluations: How many there were.
        failures: How many of them failed.
        elapsed: Virtual seconds of the whole run.
        strategy_seconds: Processor time of the strategy and its models.
        harness_seconds: Processor time of everything else.
        ended: Why it ended: ``budget``, ``time``, ``exhausted`` (the strategy had no more
            candidates) or ``stopped`` (it ends by a rule of its own).
    """

    space: str
    digest: str
    strategy: str
    seed: int
    budget: Budget
    steps: tuple[Step, ...]
    evaluations: int
    failures: int
    elapsed: float
    strategy_seconds: float
    harness_seconds: float
    ended: str

    def __attrs_post_init__(self) -> None:
        numbers = [step.evaluation for step in self.steps]
        times = [step.seconds for step in self.steps]
        if numbers != sorted(set(numbers)) or times != sorted(set(times), reverse=True):
            raise InvalidValueError("the steps of a run go from later to faster ones")
        if numbers and numbers[-1] > self.evaluations:
            raise InvalidValueError("a run has a step after its last evaluation")

    def best(self, count: int, worst: float) -> NDArray[np.float64]:
        """The best time after 1 to ``count`` evaluations, in seconds; [count].

        Args:
            count: How many; after the end of the run its best stays.
            worst: What counts before the first valid configuration.
        """
        found = np.full(count, worst, dtype=np.float64)
        for step in self.steps:
            found[step.evaluation - 1 :] = step.seconds
        return found


@json_forms
def _forms(converter: Converter) -> None:
    list_form(converter, Step)


@define
class Ledger:
    """Counts the evaluations of a run while it goes on.

    Attributes:
        budget: What may be used.
        evaluations: How many there were.
        failures: How many of them failed.
        elapsed: Virtual seconds so far.
        steps: Those that improved.
        out_of_time: Whether an evaluation would have ended after the virtual time.
    """

    budget: Budget
    evaluations: int = 0
    failures: int = 0
    elapsed: float = 0.0
    steps: list[Step] = field(factory=list)
    out_of_time: bool = False

    @property
    def left(self) -> int:
        """Evaluations that may still be made."""
        return 0 if self.out_of_time else self.budget.evaluations - self.evaluations

    def take(self, seconds: float, cost: float) -> bool:
        """Count an evaluation; False where it would end after the virtual time, or is too many.

        Args:
            seconds: What the configuration takes; infinite where it failed.
            cost: What evaluating it takes on the virtual clock.
        """
        limit = self.budget.seconds
        if self.left <= 0:
            return False
        if limit is not None and self.elapsed + cost > limit:
            self.out_of_time = True
            return False
        self.evaluations += 1
        self.elapsed += cost
        if not np.isfinite(seconds):
            self.failures += 1
        elif not self.steps or seconds < self.steps[-1].seconds:
            self.steps.append(Step(self.evaluations, self.elapsed, seconds))
        return True

    def run(
        self,
        named: tuple[str, str, str, int],
        strategy_seconds: float,
        harness_seconds: float,
        ended: str,
    ) -> Run:
        """The run that was counted.

        Args:
            named: Name and digest of the space, the strategy, and the seed.
            strategy_seconds: As of :class:`Run`.
            harness_seconds: As of :class:`Run`.
            ended: Why, if the budget was not used up.
        """
        if self.out_of_time:
            ended = "time"
        elif self.left <= 0:
            ended = "budget"
        return Run(
            *named,
            self.budget,
            tuple(self.steps),
            self.evaluations,
            self.failures,
            self.elapsed,
            strategy_seconds,
            harness_seconds,
            ended,
        )
