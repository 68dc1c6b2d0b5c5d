"""Comparison of strategies on recorded spaces, Kernel Tuner's own included.

Every recorded space of the folder is searched by every strategy of the library and by Kernel
Tuner's own (its package has to be installed), with 20 seeds and 200 evaluations. Runs are appended
to ``--results``, and what is there already is not done again; ``--report`` shows what is there.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.bars import Bar
from support.common import Report

from autotune.evaluation.replay import (
    Budget,
    Contestant,
    LeftOut,
    Replay,
    Study,
    Summary,
    compare,
    load,
    run_study,
    summarize,
)
from autotune.evaluation.replay.contestants import strategy_names
from autotune.evaluation.replay.formats import ENDINGS
from autotune.evaluation.replay.kernel_tuner import COMPARED, PREFIX
from autotune.evaluation.replay.study import append_run, matching, read_runs
from autotune.evaluation.replay.summary import StrategySummary
from autotune.evaluation.replay.views import tables
from autotune.ir.converter import to_json

OURS = "auto"
SEEDS, QUICK_SEEDS, EVALUATIONS = 20, 3, 200
QUICK_THEIRS = ("adaptive_tabu_greywolf", "genetic_algorithm", "simulated_annealing")
T1_ENDING = ".t1.json"
# Without a model that knows the space, a large population is ranked by chance, at some cost.
OPTIONS: Mapping[str, Mapping[str, Any]] = {"evolutionary": {"population": 64, "generations": 1}}


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser.add_argument(
        "--spaces", type=Path, metavar="FOLDER", help="recorded spaces; there are none here"
    )
    parser.add_argument("--results", metavar="FILE", help="where the runs are")
    parser.add_argument("--report", action="store_true", help="only show what is in --results")
    parser.add_argument("--strategies", help="which; by default all of the library, and theirs")
    parser.add_argument("--seeds", type=int, help=f"{SEEDS}, or {QUICK_SEEDS} with --quick")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    options = parser.parse_args(arguments)
    options.seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    if options.spaces is None or not options.spaces.is_dir():
        parser.error("--spaces needs a folder of recorded spaces (docs/replay.md says which)")
    if options.report and options.results is None:
        parser.error("--report needs --results")
    return options


def run(options: argparse.Namespace) -> Report:
    """Make the runs that are missing, and judge them all."""
    found, sources = load(space_files(options.spaces))
    names = options.strategies.split(",") if options.strategies else contestants(options.quick)
    study = Study(
        tuple(found),
        tuple(Contestant(name, OPTIONS.get(name, {})) for name in names),
        tuple(range(options.seeds)),
        Budget(EVALUATIONS),
    )
    left_out = study.left_out()
    pieces = study.wanted(left_out)
    known = {} if options.results is None else matching(read_runs(options.results), pieces, found)
    runs = list(known.values())
    if not options.report:
        missing = [piece for piece in pieces if piece not in known]
        began = time.monotonic()
        for number, made in enumerate(run_study(missing, found, sources, options.jobs), 1):
            if isinstance(made, LeftOut):
                left_out += [made] if made not in left_out else []
                continue
            runs.append(made)
            if options.results is not None:
                append_run(options.results, made)
            if number % 100 == 0:
                took = time.monotonic() - began
                print(f"{number} of {len(missing)} runs, {took:.0f} s", flush=True)
    summary = summarize(found, runs, study.budget, left_out)
    theirs = best_of_theirs(summary)
    against = [
        compare(summary, it.strategy, theirs.strategy)
        for it in summary.strategies
        if theirs is not None and it is not theirs
    ]
    for table in tables(summary, against):
        print(table.to_text(), end="\n\n")
    kernels = by_kernel(summary)
    print_kernels(kernels)
    data = {
        **summary.to_json(),
        "differences": [to_json(it) for it in against],
        "kernels": kernels,
    }
    return Report(data, bars_of(summary, len(pieces), len(runs)))


def space_files(folder: Path) -> list[str]:
    """The recorded spaces in a folder; of one that is there in several formats, the first.

    Raises:
        SystemExit: there is none.
    """
    chosen: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        plain = path.name.removesuffix(".gz")
        ending = next((it for it in ENDINGS if plain.endswith(it)), T1_ENDING)
        if ending != T1_ENDING:
            chosen.setdefault(plain.removesuffix(ending), str(path))
    if not chosen:
        raise SystemExit(f"replay.py: {folder} has no recorded space")
    return list(chosen.values())


def contestants(quick: bool) -> list[str]:
    """Strategies of the library, then Kernel Tuner's."""
    theirs = QUICK_THEIRS if quick else COMPARED
    return [*strategy_names(), *(PREFIX + name for name in theirs)]


def is_theirs(name: str) -> bool:
    """Tell whether a strategy is one of Kernel Tuner's."""
    return name.startswith(PREFIX)


def best_of_theirs(summary: Summary) -> StrategySummary | None:
    """Kernel Tuner's strategy with the best score."""
    return next((it for it in summary.strategies if is_theirs(it.strategy)), None)


def by_kernel(summary: Summary) -> list[dict[str, Any]]:
    """Scores of each kernel alone: ours beside theirs that is best on the other kernels."""
    spaces: dict[str, list[str]] = {}
    for space in summary.spaces:
        spaces.setdefault(space.kernel, []).append(space.name)
    found = []
    for kernel, own in spaces.items():
        others = [space.name for space in summary.spaces if space.kernel != kernel]
        theirs = [it for it in summary.strategies if is_theirs(it.strategy)]
        chosen = max(theirs, key=lambda it: mean_over(it, others or own), default=None)
        there = max(theirs, key=lambda it: mean_over(it, own), default=None)
        ours = next((it for it in summary.strategies if it.strategy == OURS), None)
        found.append(
            {
                "kernel": kernel,
                "spaces": len(own),
                "ours": None if ours is None else mean_over(ours, own),
                "ours_elsewhere": None if ours is None else mean_over(ours, others or own),
                "chosen": None if chosen is None else chosen.strategy,
                "theirs": None if chosen is None else mean_over(chosen, own),
                "best": None if there is None else there.strategy,
                "best_score": None if there is None else mean_over(there, own),
            }
        )
    return found


def mean_over(strategy: StrategySummary, spaces: Sequence[str]) -> float:
    """Mean score on some spaces; minus infinity where a strategy has no run on one."""
    values = [strategy.by_space.get(space, float("-inf")) for space in spaces]
    return statistics.fmean(values)


def print_kernels(kernels: Sequence[Mapping[str, Any]]) -> None:
    """A kernel left out: what was chosen on the others, beside what is best on it."""
    print(f"One kernel left out, P{EVALUATIONS}: on it, and on the others")
    for it in kernels:
        if it["ours"] is None or it["theirs"] is None:
            continue
        print(
            f"  {it['kernel']}: {OURS} {it['ours']:.2f} (others {it['ours_elsewhere']:.2f}); "
            f"{it['chosen']}, best on the others, {it['theirs']:.2f}; "
            f"{it['best']}, best on it, {it['best_score']:.2f}"
        )


def bars_of(summary: Summary, wanted: int, made: int) -> list[Bar]:
    """Promises of the costs of runs, and of ours beside Kernel Tuner's best."""
    return [*cost_bars(summary, wanted, made), *gain_bars(summary)]


def cost_bars(summary: Summary, wanted: int, made: int) -> list[Bar]:
    """Promises of the costs of the library and a run, and that all runs ended."""
    library = [it for it in summary.strategies if not is_theirs(it.strategy)]
    harness = max((it.harness_seconds for it in summary.strategies), default=None)
    found = {it.strategy for it in summary.strategies}
    told = found | {it.strategy for it in summary.left_out}
    missing = sorted(set(strategy_names()) - {name.partition("[")[0] for name in told})
    return [
        Bar(
            f"processor milliseconds of a run outside the strategy, of {EVALUATIONS} evaluations",
            None if harness is None else 1e3 * harness,
            30.0,
            at_most=True,
            note="largest mean of a strategy",
        ),
        Bar("share of the runs that were asked for", made / wanted if wanted else None, 1.0),
        Bar(
            "minutes of processor time of 20 seeds on 8 spaces with 8 strategies of the library",
            _minutes(library),
            10.0,
            at_most=True,
            note=f"{len(library)} strategies that could run",
        ),
        Bar(
            "strategies of the library that are neither in the table nor refused",
            float(len(missing)),
            0.0,
            at_most=True,
            note=", ".join(missing),
        ),
        Bar(
            f"processor seconds of a run of {OURS}, mean on the slowest space",
            _slowest(summary, OURS) if OURS in found else None,
            1.0,
            at_most=True,
        ),
    ]


def gain_bars(summary: Summary) -> list[Bar]:
    """Promises of the gain of ours over Kernel Tuner's best strategy."""
    ours = next((it for it in summary.strategies if it.strategy == OURS), None)
    theirs = best_of_theirs(summary)
    if ours is None or theirs is None:
        return [Bar(f"{OURS} beside Kernel Tuner's best strategy", None, 0.10)]
    regret = min(it.regret_early for it in summary.strategies if is_theirs(it.strategy))
    difference = compare(summary, OURS, theirs.strategy, draw_spaces=False).to_budget
    wider = compare(summary, OURS, theirs.strategy).to_budget.interval
    of = f"{OURS} minus {theirs.strategy}"
    return [
        Bar(f"P{EVALUATIONS}, {of}", difference.interval.value, 0.10),
        Bar(
            f"lower bound of the 95 % interval of that, {difference.pairs} pairs",
            difference.interval.low,
            0.0,
            note=f"with other spaces, too: {wider.low:.3g} to {wider.high:.3g}",
        ),
        Bar(
            f"regret after 50 evaluations, {OURS} over Kernel Tuner's best",
            ours.regret_early / regret,
            0.85,
            at_most=True,
        ),
    ]


def _minutes(library: Sequence[StrategySummary]) -> float | None:
    if not library:
        return None
    each = [it.strategy_seconds + it.harness_seconds for it in library]
    return 20 * 8 * 8 * statistics.fmean(each) / 60


def _slowest(summary: Summary, strategy: str) -> float:
    """Mean processor seconds of a strategy on the space where it needs most."""
    by_space: dict[str, list[Replay]] = {}
    for run in summary.runs:
        if run.strategy == strategy:
            by_space.setdefault(run.space, []).append(run)
    return max(
        statistics.fmean(run.strategy_seconds + run.harness_seconds for run in own)
        for own in by_space.values()
    )
