"""Figures of a comparison: pure functions of its runs.

Latencies are those of the winners' turns. Intervals are bootstrap intervals over seeds: they tell
what other seeds would give on these workloads, and nothing of other workloads.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from attrs import asdict, frozen

from autotune.evaluation.compare.plan import BASELINE, Piece, Plan
from autotune.evaluation.compare.runs import Course, read_run, true_latencies
from autotune.evaluation.compare.session import done_runs
from autotune.report.bootstrap import (
    ConfidenceInterval,
    PairedDifference,
    bootstrap_interval,
    paired_difference,
)

__all__ = [
    "NEAR",
    "Cell",
    "Pair",
    "ComparedRuns",
    "cell_of",
    "curve_of",
    "pairs_of",
    "read_study",
    "speedup_over",
    "verdict",
]

NEAR = 0.05
"""A run is near the best known once its program takes at most this much longer."""

_FEWEST = 2
"""Seeds of which an interval says anything."""


@frozen
class ComparedRuns:
    """The runs of a comparison.

    Attributes:
        workloads: Labels, in order.
        contenders: Names, in order.
        seeds: How many seeds were asked for.
        runs: Runs by workload and contender, with the latencies of the winners' turns.
        failures: Runs that have no figures, with the reason.
    """

    workloads: tuple[str, ...]
    contenders: tuple[str, ...]
    seeds: int
    runs: Mapping[tuple[str, str], tuple[Course, ...]]
    failures: Mapping[Piece, str]

    def of(self, workload: str, contender: str) -> tuple[Course, ...]:
        """The runs of a contender on a workload, by seed."""
        return self.runs.get((workload, contender), ())

    def best_known(self, workload: str) -> float:
        """The least latency of all runs of a workload, in seconds; infinite where none has one."""
        found = [run.latency for name in self.contenders for run in self.of(workload, name)]
        return min(found, default=math.inf)


def read_study(plan: Plan, lines: Sequence[Mapping[str, Any]]) -> ComparedRuns:
    """Read the part of a results file that belongs to a plan.

    A winner that could not be timed in turns with the others is a failure: what its run measured
    compares with nothing.
    """
    turns: dict[str, dict[str, float]] = {}
    errors: dict[str, dict[str, str]] = {}
    for line in lines:
        if line["kind"] == "turns":
            turns[line["workload"]] = true_latencies(line["turns"]) if line["turns"] else {}
            errors[line["workload"]] = line["errors"]
    done = done_runs(lines)
    runs: dict[tuple[str, str], list[Course]] = {}
    failures: dict[Piece, str] = {}
    for piece in sorted(plan.pieces(), key=lambda it: it.seed):
        told = done.get(piece)
        if told is None:
            failures[piece] = "it was not done yet"
        elif told.get("error"):
            failures[piece] = told["error"]
        else:
            run = read_run(told)
            latency = turns.get(piece.workload, {}).get(piece.label)
            if told["schedule"] is None:
                runs.setdefault((piece.workload, piece.contender), []).append(run)
            elif latency is None:
                why = errors.get(piece.workload, {}).get(piece.label, "it had no turns yet")
                failures[piece] = f"its winner was not timed: {why}"
            elif not run.points:
                failures[piece] = "none of its best programs could be timed after it"
            else:
                calibrated = run.calibrated(latency)
                runs.setdefault((piece.workload, piece.contender), []).append(calibrated)
    return ComparedRuns(
        tuple(it.label for it in plan.workloads),
        tuple(it.name for it in plan.contenders),
        plan.seeds,
        {key: tuple(found) for key, found in runs.items()},
        failures,
    )


@frozen
class Cell:
    """A contender on a workload.

    Attributes:
        workload: Label.
        contender: Name.
        runs: How many runs have figures.
        empty: How many of them found nothing valid.
        latency: Median latency over seeds in seconds, infinite where most found nothing.
        speedup: Geometric mean over seeds of the baseline's latency over its own, seed by seed;
            None without a baseline, or where a run of either found nothing valid.
        near: Candidates until within :data:`NEAR` of the best known, the median over seeds;
            infinite where most runs never came there.
        near_runs: How many came there.
        seconds: Wall seconds of a run, the median over seeds.
    """

    workload: str
    contender: str
    runs: int
    empty: int
    latency: ConfidenceInterval | None
    speedup: PairedDifference | None
    near: float
    near_runs: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """A JSON object; infinite numbers are null."""
        finite: dict[str, Any] = _finite(asdict(self))
        return finite


def cell_of(study: ComparedRuns, workload: str, contender: str) -> Cell:
    """The figures of a contender on a workload."""
    runs = study.of(workload, contender)
    target = study.best_known(workload) * (1 + NEAR)
    reached = [run.reached(target) for run in runs]
    latencies = [run.latency for run in runs]
    trials = [math.inf if point is None else float(point.trials) for point in reached]
    return Cell(
        workload,
        contender,
        len(runs),
        latencies.count(math.inf),
        bootstrap_interval(latencies, np.median, _rng()) if runs else None,
        speedup_over(study, contender, BASELINE, [workload]),
        statistics.median(trials) if runs else math.inf,
        len(runs) - reached.count(None),
        statistics.median(run.seconds for run in runs) if runs else math.inf,
    )


def speedup_over(
    study: ComparedRuns, contender: str, other: str, workloads: Sequence[str]
) -> PairedDifference | None:
    """Speed of a contender's programs relative to another's: 2 is twice as fast.

    The geometric mean of the ratios of latencies of equal seeds, over seeds and then over
    workloads, with its bootstrap interval over seeds. None where they have no seed in common on a
    workload, or one of these runs found nothing valid.
    """
    if contender == other or {contender, other} - set(study.contenders):
        return None
    ours, theirs, groups = [], [], []
    for workload in workloads:
        of_other = {run.seed: run.latency for run in study.of(workload, other)}
        shared = [run for run in study.of(workload, contender) if run.seed in of_other]
        if not shared:
            return None
        ours += [run.latency for run in shared]
        theirs += [of_other[run.seed] for run in shared]
        groups += [workload] * len(shared)
    if math.inf in ours or math.inf in theirs:
        return None
    logs = paired_difference(np.log(theirs), np.log(ours), _rng(), groups=groups)
    bounds = (logs.interval.value, logs.interval.low, logs.interval.high)
    return PairedDifference(ConfidenceInterval(*map(math.exp, bounds)), logs.above, logs.pairs)


@frozen
class Pair:
    """Two contenders over all workloads.

    Attributes:
        first: Name.
        second: Name.
        speedup: Of the first over the second; ``above`` is the share of the resamples in which it
            is faster. None as of :func:`speedup_over`.
    """

    first: str
    second: str
    speedup: PairedDifference | None

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)


def pairs_of(study: ComparedRuns) -> list[Pair]:
    """Every contender beside every other one."""
    return [
        Pair(one, other, speedup_over(study, one, other, study.workloads))
        for one, other in combinations(study.contenders, 2)
    ]


def verdict(study: ComparedRuns, contender: str) -> str:
    """Verdict on a contender beside the baseline, over all workloads, in words."""
    found = speedup_over(study, contender, BASELINE, study.workloads)
    if found is None:
        return ""
    at = f"{found.interval.value:.3f}x its speed"
    if found.pairs < _FEWEST * len(study.workloads):
        return f"{contender} does not beat {BASELINE} for certain: {at}, by too few seeds"
    at += f" [{found.interval.low:.3f}, {found.interval.high:.3f}]"
    if found.interval.low > 1:
        return f"{contender} beats {BASELINE}: {at}"
    if found.interval.high < 1:
        return f"{contender} does not beat {BASELINE}, it is slower: {at}"
    return f"{contender} does not beat {BASELINE}: {at}"


def curve_of(
    runs: Sequence[Course], latency: Callable[[Course], float]
) -> ConfidenceInterval | None:
    """Median over seeds of a latency, with its interval; None while any run has none.

    Args:
        runs: Of one contender on one workload.
        latency: Which latency of a run, in seconds.
    """
    found = [latency(run) for run in runs]
    if not found or math.inf in found:
        return None
    return bootstrap_interval(found, np.median, _rng())


def _rng() -> np.random.Generator:
    """The same draws for every figure: the figures of a study are the same in every call."""
    return np.random.default_rng(0)


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    return None if isinstance(data, float) and not math.isfinite(data) else data
