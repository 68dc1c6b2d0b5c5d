"""Strategies on GPU kernels that were measured on a device once: replayed, without one.

    python research/gpu_replay.py [--tuned] [--candidates FILE] [--quick] [--strategies NAME,...]
                                  [--seeds N] [--jobs N] [--results FILE] [--report]
                                  [--json FILE] [--check]

FILE is one that the benchmark `cuda` reads, too; with ``--tuned`` it is what tuning runs on the
same device measured. Each workload with 100 measured candidates or more is a space; a strategy is
asked for eight at a time, 64 in all, with 20 seeds (three with ``--quick``). Runs are appended to
``--results``, and what is there is not done again; ``--report`` shows what is there. The table
says how many times the latency of the fastest of the space the best is that was found after so
many evaluations: geometric means with 95 % intervals, in which spaces and seeds are drawn.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence

import benchmarks_path  # noqa: F401
import numpy as np
from cuda_candidates import TUNED, add_candidates, read_cases, read_tuned, records_of
from numpy.typing import NDArray
from support.common import Bar, basic_parser, finish_with, machine

from autotune.evaluation.replay import Budget, Contestant, LeftOut, Replay, Study, load, run_study
from autotune.evaluation.replay.study import append_run, matching, read_runs
from autotune.store.records import Record
from autotune.store.sqlite import open_database

STRATEGIES = ("random", "evolutionary", "pruner", "moa-pruner", "felix", "heron")
SEEDS, QUICK_SEEDS = 20, 3
AFTER = (8, 16, 32, 64)
BUDGET = Budget(AFTER[-1], None, 8)
SAMPLES = 2000
RANDOM, DRAFTED = "random", "pruner"


def main() -> int:
    """Run; returns the exit status."""
    options = options_of()
    with tempfile.TemporaryDirectory() as folder:
        database = os.path.join(folder, "measured.db")
        with open_database(database) as opened:
            opened.append_missing(measured(options))
        runs, optima, wanted = replayed(options, database)
    regrets = regrets_of(runs, optima)
    table = {
        name: [figures(it[:, :, at]) for at in range(len(AFTER))] for name, it in regrets.items()
    }
    print_table(table, len(optima))
    data = {"machine": machine(), "after": AFTER, "spaces": len(optima), "strategies": table}
    return finish_with(options, data, bars_of(regrets, len(runs), wanted))


def measured(options: argparse.Namespace) -> list[Record]:
    """Measured candidates, or those of tuning runs."""
    if options.tuned:
        return read_tuned(TUNED)
    cases = read_cases(options.candidates)
    return [record for name, rows in cases.items() for record in records_of(name, rows)]


def options_of() -> argparse.Namespace:
    """The command line."""
    parser = basic_parser((__doc__ or "").splitlines()[0])
    add_candidates(parser)
    parser.add_argument("--tuned", action="store_true", help="what tuning runs measured")
    parser.add_argument("--strategies", default=",".join(STRATEGIES), help="by name")
    parser.add_argument("--seeds", type=int, help=f"{SEEDS}, or {QUICK_SEEDS} with --quick")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--results", help="where the runs are")
    parser.add_argument("--report", action="store_true", help="only show what is in --results")
    options = parser.parse_args()
    options.seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    if options.report and options.results is None:
        parser.error("--report needs --results")
    return options


def replayed(
    options: argparse.Namespace, database: str
) -> tuple[list[Replay], dict[str, float], int]:
    """The runs, the latency of the fastest of each space, and how many runs were asked for."""
    tables, sources = load((), database)
    contestants = tuple(map(Contestant, options.strategies.split(",")))
    study = Study(tuple(tables), contestants, tuple(range(options.seeds)), BUDGET)
    pieces = study.wanted(study.left_out())
    known = {} if options.results is None else matching(read_runs(options.results), pieces, tables)
    runs = list(known.values())
    missing = [] if options.report else [piece for piece in pieces if piece not in known]
    for made in run_study(missing, tables, sources, options.jobs):
        if isinstance(made, LeftOut):
            continue
        runs.append(made)
        if options.results is not None:
            append_run(options.results, made)
    spaces, seeds = len(tables), options.seeds
    optima = {it.name: min(o.latency for o in it.outcomes if o.latency) for it in tables}
    return runs, optima, spaces * seeds * len(contestants)


def regrets_of(
    runs: Sequence[Replay], optima: Mapping[str, float]
) -> dict[str, NDArray[np.float64]]:
    """ln(best / optimum) by strategy, ``[spaces, seeds, AFTER]``; of seeds that are whole."""
    by_run: dict[str, dict[tuple[str, int], list[float]]] = {}
    for run in runs:
        own = [
            min((s.seconds for s in run.steps if s.evaluation <= count), default=float("nan"))
            for count in AFTER
        ]
        logs = np.log(np.array(own) / optima[run.space])
        by_run.setdefault(run.strategy, {})[run.space, run.seed] = logs.tolist()
    found = {}
    for name, known in by_run.items():
        seeds = {seed for _, seed in known}
        whole = sorted(seed for seed in seeds if all((space, seed) in known for space in optima))
        if whole:
            found[name] = np.array([[known[space, seed] for seed in whole] for space in optima])
    return found


def figures(regrets: NDArray[np.float64]) -> dict[str, float]:
    """Times the optimum, ``[spaces, seeds]``: the geometric mean, and its 95 % interval."""
    rng = np.random.default_rng(0)
    spaces, seeds = regrets.shape
    means = [
        regrets[rng.integers(spaces, size=spaces)][:, rng.integers(seeds, size=seeds)].mean()
        for _ in range(SAMPLES)
    ]
    low, high = np.quantile(means, (0.025, 0.975))
    mean = regrets.mean()
    return {"value": float(np.exp(mean)), "low": float(np.exp(low)), "high": float(np.exp(high))}


def print_table(table: Mapping[str, Sequence[Mapping[str, float]]], spaces: int) -> None:
    """Print the table as Markdown, the best first."""
    print(f"Times the latency of the fastest, means over {spaces} spaces")
    print(f"| after | {' | '.join(map(str, AFTER))} |\n|---|{'---|' * len(AFTER)}")
    for name, row in sorted(table.items(), key=lambda it: it[1][-1]["value"]):
        cells = (f"{it['value']:.3f} ({it['low']:.3f} to {it['high']:.3f})" for it in row)
        print(f"| `{name}` | {' | '.join(cells)} |")


def bars_of(regrets: Mapping[str, NDArray[np.float64]], made: int, wanted: int) -> list[Bar]:
    """All runs are there, and a draft model is worth having."""
    high = None
    if {DRAFTED, RANDOM} <= regrets.keys():
        pair = regrets[DRAFTED], regrets[RANDOM]
        seeds = min(it.shape[1] for it in pair)
        high = figures(pair[0][:, :seeds, -1] - pair[1][:, :seeds, -1])["high"]
    name = f"latency after {AFTER[-1]}, {DRAFTED} over {RANDOM}, upper bound of the interval"
    return [
        Bar("share of the runs that were asked for", made / wanted if wanted else None, 1.0),
        Bar(name, high, 1.0, at_most=True),
    ]


if __name__ == "__main__":
    sys.exit(main())
