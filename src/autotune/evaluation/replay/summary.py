"""Summary of a replay: scores of every strategy with intervals, over spaces and seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.evaluation.replay.recorded import OutcomeTable
from autotune.evaluation.replay.runs import (
    Budget,
    Replay,
    RunScore,
    Yardstick,
    score_run,
    yardstick,
)
from autotune.evaluation.replay.study import LeftOut
from autotune.ir.converter import to_json
from autotune.report.bootstrap import ConfidenceInterval, PairedDifference, paired_difference

__all__ = ["Difference", "SpaceSummary", "StrategySummary", "Summary", "compare", "summarize"]

SEED = 0
"""Of the resamples, so that one table is always the same."""


@frozen
class SpaceSummary:
    """A space that was replayed; times in seconds.

    Attributes:
        name: Its name.
        kernel: Of what kernel.
        configurations: How many it has.
        failed: How many of them failed.
        optimum: The fastest.
        median: Of the valid ones.
        worst: The slowest valid one.
        cutoff: Evaluations at which P95 ends.
        notes: What a person should know of the data.
    """

    name: str
    kernel: str
    configurations: int
    failed: int
    optimum: float
    median: float
    worst: float
    cutoff: int
    notes: tuple[str, ...] = ()


@frozen
class StrategySummary:
    """Scores of a strategy's runs; means over spaces of means over seeds.

    Attributes:
        strategy: The strategy.
        runs: How many there were.
        spaces: On how many spaces.
        to_cutoff: P95, with its 95 % interval.
        to_budget: P200 (for 200 evaluations), likewise.
        regret_early: Mean logarithm of best over optimum after 50 evaluations.
        regret: After the budget.
        near: Share of the runs within 5 % of the optimum.
        evaluations: Mean number of evaluations: some strategies stop by themselves.
        elapsed: Mean virtual seconds.
        strategy_seconds: Mean processor time of the strategy.
        harness_seconds: Mean processor time of everything else.
        by_space: Mean of P200 by space.
    """

    strategy: str
    runs: int
    spaces: int
    to_cutoff: ConfidenceInterval
    to_budget: ConfidenceInterval
    regret_early: float
    regret: float
    near: float
    evaluations: float
    elapsed: float
    strategy_seconds: float
    harness_seconds: float
    by_space: Mapping[str, float] = field(hash=False)


@frozen
class Difference:
    """Advantage of a strategy over another, over the pairs of space and seed.

    Attributes:
        strategy: The one.
        against: The other.
        to_budget: Of P200, first minus second.
        regret_early: Of the logarithm of best over optimum after 50 evaluations, likewise.
    """

    strategy: str
    against: str
    to_budget: PairedDifference
    regret_early: PairedDifference


@frozen(eq=False)
class Summary:
    """Everything that is shown of a replay.

    Attributes:
        budget: Of each run.
        spaces: The spaces.
        strategies: Best P200 first.
        left_out: What was not replayed, and why.
        yardsticks: What runs are judged by, by name of the space.
        runs: All runs.
    """

    budget: Budget
    spaces: tuple[SpaceSummary, ...]
    strategies: tuple[StrategySummary, ...]
    left_out: tuple[LeftOut, ...]
    yardsticks: Mapping[str, Yardstick]
    runs: tuple[Replay, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON object with all but the runs and the yardsticks."""
        return {
            "budget": to_json(self.budget),
            "spaces": [to_json(it) for it in self.spaces],
            "strategies": [to_json(it) for it in self.strategies],
            "left_out": [to_json(it) for it in self.left_out],
        }


def summarize(
    tables: Sequence[OutcomeTable],
    runs: Sequence[Replay],
    budget: Budget,
    left_out: Sequence[LeftOut] = (),
) -> Summary:
    """Judge runs.

    Args:
        tables: The spaces.
        runs: Runs on them, all with this budget.
        budget: Of each run.
        left_out: What was not replayed, and why.
    """
    yardsticks = {table.name: yardstick(table.seconds, budget.evaluations) for table in tables}
    by_strategy: dict[str, list[Replay]] = {}
    for run in runs:
        by_strategy.setdefault(run.strategy, []).append(run)
    order = {table.name: number for number, table in enumerate(tables)}
    found = []
    for name, own in by_strategy.items():
        # Whichever process was first: the resamples are always of the same order.
        own.sort(key=lambda run: (order[run.space], run.seed))
        found.append(_strategy_summary(name, own, yardsticks))
    found.sort(key=lambda it: (-it.to_budget.value, it.strategy))
    spaces = [_space_summary(table, yardsticks[table.name]) for table in tables]
    return Summary(budget, tuple(spaces), tuple(found), tuple(left_out), yardsticks, tuple(runs))


def compare(
    summary: Summary, strategy: str, against: str, *, draw_spaces: bool = True
) -> Difference:
    """Compare two strategies, with intervals over pairs of (space, seed).

    Args:
        summary: Of runs of both.
        strategy: The one.
        against: The other.
        draw_spaces: Whether spaces are drawn as well as the pairs in them: then the interval is
            for spaces that are not there, too, else for these.

    Raises:
        UnknownNameError: there are no runs of a strategy.
        InvalidValueError: the two have no space and seed in common.
    """
    scores: dict[str, dict[tuple[str, int], RunScore]] = {}
    for run in summary.runs:
        own = scores.setdefault(run.strategy, {})
        own[run.space, run.seed] = score_run(run, summary.yardsticks[run.space])
    for name in (strategy, against):
        if name not in scores:
            raise UnknownNameError("strategy among the runs", name, scores)
    pairs = sorted(set(scores[strategy]) & set(scores[against]))
    if not pairs:
        raise InvalidValueError(f"{strategy} and {against} have no space and seed in common")

    def difference(name: str) -> PairedDifference:
        ours, theirs = (
            [float(getattr(scores[who][pair], name)) for pair in pairs]
            for who in (strategy, against)
        )
        return paired_difference(
            ours,
            theirs,
            np.random.default_rng(SEED),
            groups=[space for space, _ in pairs],
            draw_groups=draw_spaces,
        )

    return Difference(strategy, against, difference("to_budget"), difference("regret_early"))


def _strategy_summary(
    name: str, runs: Sequence[Replay], yardsticks: Mapping[str, Yardstick]
) -> StrategySummary:
    scores = [score_run(run, yardsticks[run.space]) for run in runs]
    spaces = [run.space for run in runs]

    def mean(values: Sequence[float]) -> float:
        return statistics.fmean(_means(spaces, values).values())

    to_budget = [score.to_budget for score in scores]
    return StrategySummary(
        name,
        len(runs),
        len(set(spaces)),
        _interval(spaces, [score.to_cutoff for score in scores]),
        _interval(spaces, to_budget),
        mean([score.regret_early for score in scores]),
        mean([score.regret for score in scores]),
        mean([float(score.near) for score in scores]),
        mean([float(run.evaluations) for run in runs]),
        mean([run.elapsed for run in runs]),
        statistics.fmean(run.strategy_seconds for run in runs),
        statistics.fmean(run.harness_seconds for run in runs),
        _means(spaces, to_budget),
    )


def _means(spaces: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for space, value in zip(spaces, values, strict=True):
        found.setdefault(space, []).append(value)
    return {space: statistics.fmean(own) for space, own in found.items()}


def _interval(spaces: Sequence[str], values: Sequence[float]) -> ConfidenceInterval:
    """The mean over spaces of means over seeds: both are drawn."""
    rng = np.random.default_rng(SEED)
    zeros = [0.0] * len(values)
    return paired_difference(values, zeros, rng, groups=spaces, draw_groups=True).interval


def _space_summary(table: OutcomeTable, by: Yardstick) -> SpaceSummary:
    return SpaceSummary(
        table.name,
        table.kernel,
        len(table),
        int(np.isinf(table.seconds).sum()),
        by.optimum,
        by.median,
        by.worst,
        by.cutoff,
        table.notes,
    )
