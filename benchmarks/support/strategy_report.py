"""Tables and bars of `strategies.py`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from attrs import asdict

from autotune.evaluation.compare import Course, geometric_mean, read_run, true_latencies
from autotune.report import Table
from autotune.report.bootstrap import ConfidenceInterval
from support.common import Bar
from support.search_quality import (
    Figure,
    Runs,
    area_over,
    curve_at,
    interval_of,
    knowing,
    seconds_over,
    shared_seconds,
    target_of,
    trials_to_target,
)

METASCHEDULE = "metaschedule"
BASELINE, REFERENCE = "random", "evolutionary"
# The workload whose rounds are looked at.
ROUNDS_OF = "gmm"

# Candidates of a round.
ROUND_SIZE = 16
# A run reaches what another reached at most this much slower.
TOLERANCE = 0.02
# Candidates that the reference takes until what random candidates reach: a weak reference would
# make the other bars easy.
REFERENCE_TRIALS = 80
# Candidates until what the reference reaches.
MOST_TRIALS = {"pruner": 100, "moa-pruner": 60, "heron": 120, "felix": 100}
# Those of them that promise something about time.
TIMED = ("pruner", "moa-pruner")
# Whose median curve has less area under it than those of its ablations.
ABLATIONS = {"heron": ("heron-random", "heron-ga")}
# Candidates that they propose before they know a latency: two rounds, as the second is proposed
# while the first is built.
UNTOLD = 2 * ROUND_SIZE
# Of what it measured, for strategies that say beforehand what is feasible.
MOST_FAILED = 0.01
# Of MetaSchedule's wall seconds, until what it reaches.
WALL_SHARE = 0.1
# Draft, verify and train, as far as a run waits for them.
ROUND_SECONDS = 0.15

# Workload and contender.
Cell = tuple[str, str]


@dataclass
class Study:
    """All runs of one budget.

    Attributes:
        runs: Runs by workload and contender, calibrated where their winners took turns.
        rounds: Of each run of a strategy: seconds of search and of the model, a round.
        uncalibrated: Workloads whose winners did not take turns yet.
        failures: Of the runs of a strategy: candidates that failed, and all that were measured.
    """

    runs: dict[Cell, list[Course]]
    rounds: dict[Cell, list[tuple[float, float]]]
    uncalibrated: tuple[str, ...] = ()
    failures: dict[Cell, tuple[int, int]] = field(default_factory=dict)

    @staticmethod
    def read(lines: Iterable[Mapping[str, Any]], trials: int) -> Study:
        """Results of a budget."""
        lines = [line for line in lines if line["trials"] == trials]
        latest = {
            line["workload"]: true_latencies(line["turns"])
            for line in lines
            if line["kind"] == "turns" and line["turns"]
        }
        study = Study({}, {})
        plain = set()
        runs = {
            (line["workload"], line["contender"], line["seed"]): line
            for line in lines
            if line["kind"] == "run"
        }
        for line in runs.values():
            cell = line["workload"], line["contender"]
            run = read_run(line)
            latency = latest.get(run.workload, {}).get(f"{run.contender}/{run.seed}")
            if latency is not None:
                run = run.calibrated(latency)
            elif run.points:
                plain.add(run.workload)
            study.runs.setdefault(cell, []).append(run)
            if "rounds" in line:
                split = tuple(line["seconds"][name] / line["rounds"] for name in _SPLIT)
                study.rounds.setdefault(cell, []).append((split[0], split[1]))
            if "outcomes" in line:
                failed, measured = study.failures.get(cell, (0, 0))
                done = sum(line["outcomes"].values())
                failed += done - line["outcomes"].get("ok", 0)
                study.failures[cell] = failed, measured + done
        study.uncalibrated = tuple(sorted(plain))
        return study

    def only(self, wanted: set[tuple[str, str, int]]) -> Study:
        """Runs that are wanted: workload, contender and seed."""
        kept: dict[Cell, list[Course]] = {}
        rounds: dict[Cell, list[tuple[float, float]]] = {}
        for cell, found in self.runs.items():
            numbers = [n for n, run in enumerate(found) if (*cell, run.seed) in wanted]
            if numbers:
                kept[cell] = [found[number] for number in numbers]
                if cell in self.rounds:
                    rounds[cell] = [self.rounds[cell][number] for number in numbers]
        names = {workload for workload, _ in kept}
        uncalibrated = tuple(name for name in self.uncalibrated if name in names)
        failures = {cell: found for cell, found in self.failures.items() if cell in kept}
        return Study(kept, rounds, uncalibrated, failures)

    def by_workload(self) -> dict[str, dict[str, list[Course]]]:
        """Runs by workload, then by contender."""
        found: dict[str, dict[str, list[Course]]] = {}
        for (workload, contender), runs in self.runs.items():
            found.setdefault(workload, {})[contender] = runs
        return found

    def of(self, contender: str, workloads: Iterable[str]) -> dict[str, list[Course]]:
        """Runs of a contender on those workloads."""
        return {name: self.runs.get((name, contender), []) for name in workloads}

    def to_json(self) -> dict[str, Any]:
        """Every run, and what was taken from it."""
        return {
            "uncalibrated": self.uncalibrated,
            "failures": {"/".join(cell): found for cell, found in self.failures.items()},
            "runs": [
                {
                    "workload": run.workload,
                    "contender": run.contender,
                    "seed": run.seed,
                    "budget": run.budget,
                    "seconds": run.seconds,
                    "points": [asdict(point) for point in run.points],
                }
                for found in self.runs.values()
                for run in found
            ],
            "round_seconds": {"/".join(cell): found for cell, found in self.rounds.items()},
        }


_SPLIT = ("search", "model")


def print_report(study: Study, measured: bool = True) -> None:
    """All tables; those of runs that measured nothing tell no seconds."""
    for workload, runs in study.by_workload().items():
        print(f"\n{workload_table(workload, runs, measured).to_text()}", flush=True)
    if study.uncalibrated:
        print(f"\nby what runs measured themselves, without turns: {study.uncalibrated}")
    if study.rounds:
        print(f"\n{rounds_table(study).to_text()}", flush=True)


def workload_table(
    workload: str, runs: Mapping[str, Sequence[Course]], measured: bool = True
) -> Table:
    """A line for each contender: what it had found when, and how soon it reached the target."""
    every = [run for found in runs.values() for run in found]
    budget = every[0].budget
    marks = [max(1, round(budget * share)) for share in (0.1, 0.25, 0.5, 1)]
    ours = [run for run in every if run.contender != METASCHEDULE]
    seconds = shared_seconds(ours) if ours else math.inf
    target = target_of(runs[REFERENCE], TOLERANCE) if REFERENCE in runs else None
    rows = []
    for contender, found in runs.items():
        whole = contender != METASCHEDULE
        cells = [contender, str(len(found))]
        for mark in marks:
            known = whole or mark == budget
            latency: Callable[[Course], float] = partial(_after_trials, trials=mark)
            cells.append(_cell(curve_at(found, latency), 1e3) if known else "")
        if measured:
            timed = curve_at(found, partial(_after_seconds, seconds=seconds)) if whole else None
            cells.append(_cell(timed, 1e3) if whole else "")
            cells.append(f"{statistics.median(run.seconds for run in found):.0f}")
        if target is None:
            cells += ["", ""]
        else:
            cells.append(" ".join(_reached(run, target) for run in found) if whole else "")
            trials = geometric_mean([run.trials_to(target) for run in found])
            cells.append(f"{trials:.0f}" if whole else "")
        rows.append(tuple(cells))
    heads = ["contender", "runs>", *(f"{mark} trials>" for mark in marks)]
    heads += [f"{seconds:.0f} s>", "wall s>"] if measured else []
    heads += ["trials to target>", "mean>"]
    title = f"{workload}: ms, geometric mean of the seeds with its 95 % interval"
    notes = () if target is None else (f"target {target * 1e3:.4g} ms",)
    return Table(title, tuple(heads), tuple(rows), notes)


def _after_trials(run: Course, trials: int) -> float:
    return run.after_trials(trials)


def _after_seconds(run: Course, seconds: float) -> float:
    return run.after_seconds(seconds)


def _reached(run: Course, target: float) -> str:
    point = run.reached(target)
    return "-" if point is None else str(point.trials)


def _cell(interval: ConfidenceInterval | None, scale: float) -> str:
    if interval is None:
        return "-"
    value, low, high = (x * scale for x in (interval.value, interval.low, interval.high))
    return f"{value:.4g} [{low:.4g}, {high:.4g}]"


def rounds_table(study: Study) -> Table:
    """Seconds of a round beside building and running."""
    rows = []
    for (workload, contender), found in study.rounds.items():
        split = [statistics.median(column) * 1e3 for column in zip(*found, strict=True)]
        rows.append((workload, contender, *(f"{value:.0f}" for value in (*split, sum(split)))))
    heads = ("workload", "contender", "draft and verify>", "train>", "together>")
    return Table("ms of a round, as far as nothing is built meanwhile", heads, tuple(rows))


def bars_of(
    study: Study,
    expected: Mapping[Cell, int],
    compute_bound: Sequence[str],
    measured: bool = True,
) -> list[Bar]:
    """The promises, of the contenders that are there.

    Args:
        study: The runs.
        expected: How many runs there should be.
        compute_bound: Workloads that arithmetic limits.
        measured: Whether programs were built and run: else nothing took time, or could fail.
    """
    workloads = list(dict.fromkeys(name for name, _ in expected))
    there = {contender for _, contender in expected}
    bars = []
    if {BASELINE, REFERENCE} <= there:
        name = f"{REFERENCE}, trials to {BASELINE}'s result"
        bar = partial(_bar, study, expected, REFERENCE, BASELINE, workloads)
        bars.append(bar(name, trials_to_target, REFERENCE_TRIALS))
    for contender, trials in MOST_TRIALS.items():
        if {contender, REFERENCE} <= there:
            name = f"{contender}, trials to {REFERENCE}'s result + {TOLERANCE:.0%}"
            figure = partial(trials_to_target, tolerance=TOLERANCE)
            bar = partial(_bar, study, expected, contender, REFERENCE, workloads)
            bars.append(bar(name, figure, trials))
        if measured and contender in there and contender in TIMED:
            bars += _time_bars(study, expected, contender, workloads, compute_bound)
    for contender, ablations in ABLATIONS.items():
        for ablation in ablations:
            if {contender, ablation} <= there:
                name = f"{contender}, median curve over that of {ablation}"
                bar = partial(_bar, study, expected, contender, ablation, workloads)
                bars.append(_with_room(bar(name, area_over, 1.0), study, ablation, workloads))
        if measured and contender in there:
            counts = [it for (_, who), it in study.failures.items() if who == contender]
            failed, done = (sum(it[column] for it in counts) for column in (0, 1))
            name = f"{contender}, share of measured candidates that failed"
            value = failed / done if done else None
            bars.append(Bar(name, value, MOST_FAILED, at_most=True))
    return bars


def _time_bars(
    study: Study,
    expected: Mapping[Cell, int],
    contender: str,
    workloads: Sequence[str],
    compute_bound: Sequence[str],
) -> list[Bar]:
    """Promises of a contender about time, beside MetaSchedule and in a round."""
    bars = []
    limited = [workload for workload in workloads if workload in compute_bound]
    if limited and any(it == METASCHEDULE for _, it in expected):
        name = f"{contender}, share of MetaSchedule's wall time to its result + {TOLERANCE:.0%}"
        share = partial(seconds_over, tolerance=TOLERANCE)
        bar = partial(_bar, study, expected, contender, METASCHEDULE, limited)
        bars.append(bar(name, share, WALL_SHARE))
    if ROUNDS_OF in workloads:
        found = study.rounds.get((ROUNDS_OF, contender), [])
        value = statistics.median(map(sum, found)) if found else None
        name = f"{contender}, seconds of draft, verify and train a round of {ROUNDS_OF}"
        bars.append(Bar(name, value, ROUND_SECONDS, at_most=True))
    return bars


def _bar(
    study: Study,
    expected: Mapping[Cell, int],
    contender: str,
    reference: str,
    workloads: Sequence[str],
    name: str,
    figure: Figure,
    wanted: float,
) -> Bar:
    """A bar with its interval; without a value until all runs are there and took turns."""
    cells = [(workload, it) for workload in workloads for it in (contender, reference)]
    runs, beside = study.of(contender, workloads), study.of(reference, workloads)
    there = [name for name in workloads if runs[name] and beside[name]]
    if not there:
        return Bar(name, None, wanted, at_most=True)
    interval = interval_of(figure, _picked(runs, there), _picked(beside, there))
    bounds = f"95 % interval {interval.low:.3g} to {interval.high:.3g}"
    done = sum(len(study.runs.get(cell, [])) for cell in cells)
    asked = sum(expected[cell] for cell in cells)
    if done < asked:
        note = f"{done} of {asked} runs so far: {interval.value:.3g}, {bounds}"
        return Bar(name, None, wanted, at_most=True, note=note)
    if any(workload in study.uncalibrated for workload in workloads):
        note = f"before the winners' turns: {interval.value:.3g}, {bounds}"
        return Bar(name, None, wanted, at_most=True, note=note)
    return Bar(name, interval.value, wanted, at_most=True, note=bounds)


def _with_room(bar: Bar, study: Study, ablation: str, workloads: Sequence[str]) -> Bar:
    """A bar on median curves, and what an all-knowing search would come to, in its note."""
    if bar.value is None:
        return bar
    runs = study.of(ablation, workloads)
    every = study.by_workload()
    fastest = {
        name: min(run.latency for found in every[name].values() for run in found) for name in runs
    }
    least = area_over(knowing(runs, fastest, UNTOLD), runs)
    note = f"{bar.note}; {least:.3g} had it known the fastest after {UNTOLD} candidates"
    return replace(bar, note=note)


def _picked(runs: Runs, names: Sequence[str]) -> Runs:
    return {name: runs[name] for name in names}
