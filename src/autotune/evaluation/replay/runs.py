"""Replayed run: best latencies by number of evaluations and virtual time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from attrs import define, field, frozen
from attrs.validators import ge, gt
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.converter import JsonForm, json_forms, list_form

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = [
    "Budget",
    "Ledger",
    "POINTS",
    "Replay",
    "RunScore",
    "Step",
    "Yardstick",
    "expected_best",
    "score_curve",
    "score_run",
    "yardstick",
]


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
class Replay(JsonForm):
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
    ) -> Replay:
        """The run that was counted.

        Args:
            named: Name and digest of the space, the strategy, and the seed.
            strategy_seconds: As of :class:`Replay`.
            harness_seconds: As of :class:`Replay`.
            ended: Why, if the budget was not used up.
        """
        if self.out_of_time:
            ended = "time"
        elif self.left <= 0:
            ended = "budget"
        return Replay(
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


POINTS = 50
"""Equally spaced numbers of evaluations whose scores are averaged."""
SHARE_OF_WAY = 0.95
"""Of the way from the median to the optimum: how far random search has come where P95 ends."""
NEAR = 1.05
"""A run whose best takes at most so many times the optimum has come near it."""
REGRET_AT = 50

# Where random search expects less than this above the optimum, a score would divide by nothing.
_LEAST_ROOM = 1e-9


@frozen(eq=False)
class Yardstick:
    """Yardstick for the runs on a space, in seconds.

    Attributes:
        optimum: The fastest configuration.
        median: Of the valid ones.
        worst: The slowest valid one, which failures count as.
        random: The best that random search is expected to have after 1, 2, ... evaluations.
        cutoff: Evaluations after which it has come 95 % of the way from the median to the
            optimum; all of ``random`` where it has not.
    """

    optimum: float
    median: float
    worst: float
    random: NDArray[np.float64]
    cutoff: int


@frozen
class RunScore:
    """Score of a run.

    Attributes:
        to_cutoff: Mean score up to the cutoff of the space (P95).
        to_budget: Mean score up to the budget (P200 for 200 evaluations).
        regret_early: Natural logarithm of best over optimum after 50 evaluations.
        regret: The same after the budget.
        near: Whether the best is within 5 % of the optimum.
    """

    to_cutoff: float
    to_budget: float
    regret_early: float
    regret: float
    near: bool


def expected_best(seconds: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The expected best of random search without replacement after 1 to ``count`` draws; [count].

    With times sorted, the chance that none of n draws is among the i fastest of N is
    C(N - i, n) / C(N, n); the expectation sums the gaps between neighbours times these chances.

    Args:
        seconds: Time of every configuration; infinite ones count as the slowest finite one.
        count: How many draws; after the last configuration there is nothing new.

    Raises:
        InvalidValueError: no time is finite.
    """
    finite = seconds[np.isfinite(seconds)]
    if not len(finite):
        raise InvalidValueError("there is no valid configuration to be found")
    times = np.sort(np.where(np.isfinite(seconds), seconds, finite.max()))
    total = len(times)
    gaps = np.diff(times)
    faster = np.arange(1, total, dtype=np.float64)
    chances = np.ones(total - 1, dtype=np.float64)
    found = np.full(count, times[0])
    for drawn in range(min(count, total - 1)):
        chances *= np.maximum(total - faster - drawn, 0.0) / (total - drawn)
        found[drawn] += gaps @ chances
    return found


def yardstick(seconds: NDArray[np.float64], budget: int) -> Yardstick:
    """The yardstick of a space for runs of ``budget`` evaluations.

    Args:
        seconds: Time of every configuration, infinite where it failed.
        budget: Evaluations of a run.

    Raises:
        InvalidValueError: no time is finite.
    """
    random = expected_best(seconds, budget)
    valid = seconds[np.isfinite(seconds)]
    optimum, median = float(valid.min()), float(np.median(valid))
    reached = random <= median - SHARE_OF_WAY * (median - optimum)
    cutoff = int(np.argmax(reached)) + 1 if reached.any() else budget
    return Yardstick(optimum, median, float(valid.max()), random, cutoff)


def score_curve(found: NDArray[np.float64], by: Yardstick) -> NDArray[np.float64]:
    """The score after each number of evaluations; NaN where random search has nothing to gain.

    Args:
        found: Best times so far, [..., evaluations].
        by: The yardstick of the space, for as many evaluations.
    """
    room = by.random - by.optimum
    has_room = room > _LEAST_ROOM * by.optimum
    divisor = np.where(has_room, room, 1.0)
    return np.where(has_room, (by.random - found) / divisor, np.nan)


def mean_score(curve: NDArray[np.float64], end: int) -> float:
    """The mean of a score curve at equally spaced points up to ``end`` evaluations.

    Points where random search has nothing to gain are left out; 0 where all of them are.
    """
    places = np.rint(np.linspace(end / POINTS, end, POINTS)).astype(np.int64)
    values = curve[np.maximum(places, 1) - 1]
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else 0.0


def score_run(run: Replay, by: Yardstick) -> RunScore:
    """Score a run.

    Args:
        run: The run.
        by: The yardstick of its space, for its budget.
    """
    count = len(by.random)
    best = run.best(count, by.worst)
    curve = score_curve(best, by)
    early = float(best[min(REGRET_AT, count) - 1])
    return RunScore(
        mean_score(curve, by.cutoff),
        mean_score(curve, count),
        math.log(early / by.optimum),
        math.log(float(best[-1]) / by.optimum),
        bool(best[-1] <= NEAR * by.optimum),
    )
