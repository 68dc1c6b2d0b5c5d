"""GPU sketches without a GPU: are printed kernels as good as TVM's, and how are candidates ranked?

No device is needed. Candidates of every GPU sketch of some workloads are printed and compiled for
three architectures, 48 of each, with ``--quick`` three, and beside them what TVM writes of them,
where it is installed: times, spills, registers and PTX instructions. Where there is neither nvcc
nor NVRTC, that is said, and nothing is compiled. What becomes of candidates that break a device is
measured on a fake one (`cuda_faults`).

FILE holds candidates that were measured on an H100 (see cuda_candidates.py), by default those of
the repository. Of every timed case, each formula of the pruning model ``psa`` is held against the
latencies: rank correlation over the candidates that were drawn uniformly, and how much slower the
best of the ten that it puts first is than the best of all, the mean over orders of equal scores.

The constants of the corrected formula were fitted to these candidates. So they are also fitted
again without each case in turn (`cuda_fit`), and judged by that case, by the same bars.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from cuda_candidates import (
    FIRST,
    TARGET,
    Array,
    add_candidates,
    order_figures,
    read_cases,
    space_of,
    whole_config,
)
from cuda_faults import bars_apart
from cuda_fit import figures_left_out
from support.common import Bar, Report
from support.cuda_compile import compile_all, compile_bars, find_compiler, rates_of, table

from autotune.models.pruning.psa_gpu import FORMULAS, GpuScorer
from autotune.sketches import Sketch
from autotune.spaces import SketchSpace

JUDGED, LEFT_OUT = "corrected", "left out"
SPEARMAN, LEAST_SPEARMAN, BEST_OF_FIRST, CASES = 0.75, 0.4, 1.15, 8
RATE, SCORED, QUICK_SCORED, REPEATS = 10e6, 400_000, 100_000, 5


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    data: dict[str, Any] = {}
    bars: list[Bar] = []
    bars += rank_measured(read_cases(options.candidates), options.quick, data)
    compiler = find_compiler()
    found = compile_all(options.quick) if compiler else []
    print(f"all kernels, better/equal/worse than TVM's{table(found)}")
    data |= {"compiler": compiler, "compiled": [asdict(it) for it in found], **rates_of(found)}
    return Report(data, [*bars, *compile_bars(found, compiler), *bars_apart()])


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    add_candidates(parser)
    return parser.parse_args(arguments)


def rank_measured(
    cases: Mapping[str, Sequence[dict[str, Any]]], quick: bool, data: dict[str, Any]
) -> list[Bar]:
    """Judge every formula by measured candidates; results go into ``data``."""
    spaces = {name: space_of(rows) for name, rows in cases.items()}
    results = []
    for formula in FORMULAS:
        scorer = GpuScorer(TARGET, formula)
        for name, rows in cases.items():
            results.append(judged(formula, name, rows, spaces[name], scorer))
            print_row(results[-1])
    for name, figures in figures_left_out(cases, spaces).items():
        named = {"formula": LEFT_OUT, "case": name, "candidates": len(cases[name])}
        results.append({**named, **figures})
        print_row(results[-1])
    rates = scoring_rates(spaces, QUICK_SCORED if quick else SCORED)
    for name, rate in rates.items():
        print(f"{name}: {rate / 1e6:.1f} million scores a second and core")
    data |= {"cases": results, "rates": rates}
    return bars_of(results, rates)


def judged(
    formula: str,
    name: str,
    rows: Sequence[dict[str, Any]],
    space: SketchSpace,
    scorer: GpuScorer,
) -> dict[str, Any]:
    """Rank the candidates of a case by a formula."""
    scores = scores_of(rows, {sketch.name: sketch for sketch in space.sketches()}, scorer)
    named = {"formula": formula, "case": name, "candidates": len(rows)}
    return {**named, **order_figures(scores, rows)}


def scores_of(
    rows: Sequence[dict[str, Any]], sketches: dict[str, Sketch], scorer: GpuScorer
) -> Array:
    """The score of every candidate."""
    scores = np.empty(len(rows))
    for name, sketch in sketches.items():
        own = [at for at, row in enumerate(rows) if row["sketch"] == name]
        if own:
            configs = [whole_config(rows[at], sketch) for at in own]
            matrix = [[config[it] for it in sketch.param_names] for config in configs]
            scores[own] = scorer.score(sketch, np.array(matrix, dtype=np.int64))
    return scores


def scoring_rates(spaces: dict[str, SketchSpace], count: int) -> dict[str, float]:
    """Scores of the judged formula a second, on one thread, by the first sketch of a case."""
    scorer, rates = GpuScorer(TARGET, JUDGED), {}
    for name, space in spaces.items():
        sketch = space.sketches()[0]
        rows = space.feasible_set(sketch).uniform(count, 1)
        seconds = []
        for _ in range(REPEATS):
            began = time.process_time()
            scorer.score(sketch, rows)
            seconds.append(time.process_time() - began)
        rates[name] = count / min(seconds)
    return rates


def print_row(result: dict[str, Any]) -> None:
    """A line for a case."""
    print(
        f"{result['formula']:10} {result['case']:22} {result['candidates']:4} candidates, "
        f"rank correlation {result['spearman']:5.2f}, best of the first {FIRST}: "
        f"{result['best_of_first']:.2f}"
    )


def bars_of(results: Sequence[dict[str, Any]], rates: dict[str, float]) -> list[Bar]:
    """Promises of the default formula, also of workloads that it was not fitted to."""
    return [
        *order_bars(results, JUDGED, ""),
        *order_bars(results, LEFT_OUT, ", each left out of the fit"),
        Bar("median scores a second and core", statistics.median(rates.values()), RATE),
    ]


def order_bars(results: Sequence[dict[str, Any]], formula: str, said: str) -> list[Bar]:
    """Promises of a formula's order of the cases."""
    own = [result for result in results if result["formula"] == formula]
    correlations = [result["spearman"] for result in own]
    near = sum(result["best_of_first"] <= BEST_OF_FIRST for result in own)
    return [
        Bar(f"median rank correlation{said}", statistics.median(correlations), SPEARMAN),
        Bar(f"least rank correlation{said}", min(correlations), LEAST_SPEARMAN),
        Bar(f"cases with the best of the first {FIRST} within {BEST_OF_FIRST}{said}", near, CASES),
    ]
