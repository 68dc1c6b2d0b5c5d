"""How the draft models of GPUs rank candidates that were measured on one.

    python benchmarks/cuda.py --candidates FILE [--quick] [--json FILE] [--check]

No device is needed. FILE holds candidates of this project's spaces that were measured on an H100,
one JSON object a line, perhaps compressed: ``case``, ``workload``, ``parameters`` of its builder,
``sketch``, ``config``, ``drawn_by``, ``outcome``, ``latency`` in seconds, ``small`` where it was
not timed. Of every timed case, each formula of the pruning model ``psa`` is held against the
latencies: rank correlation over the candidates that were drawn uniformly, and how much slower the
best of the ten that it puts first is than the best of all, the mean over orders of equal scores.

The constants of the corrected formula were rounded by hand from a fit to these candidates; fitted
again without each case in turn, the median correlation was 0.77 and the least 0.58.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import Bar, basic_parser, finish_with, machine
from draft import spearman
from numpy.typing import NDArray

from autotune.ir.workloads import Workload, builders
from autotune.models.pruning.psa_gpu import FORMULAS, GpuScorer
from autotune.plugins.parts import create_part
from autotune.sketches import Sketch
from autotune.spaces import SketchSpace
from autotune.targets import preset

Array = NDArray[np.float64]

TARGET = preset("h100")
JUDGED = "corrected"
UNIFORM = frozenset({"R", "R2", "ALL"})
FIRST, ORDERS = 10, 50
SPEARMAN, LEAST_SPEARMAN, BEST_OF_FIRST, CASES = 0.75, 0.4, 1.15, 8
RATE, SCORED, QUICK_SCORED, REPEATS = 10e6, 400_000, 100_000, 5


def main() -> int:
    """Run; returns the exit status."""
    options = options_of()
    cases = read_cases(options.candidates)
    spaces = {name: space_of(rows) for name, rows in cases.items()}
    results = []
    for formula in FORMULAS:
        scorer = GpuScorer(TARGET, formula)
        for name, rows in cases.items():
            results.append(judged(formula, name, rows, spaces[name], scorer))
            print_row(results[-1])
    rates = scoring_rates(spaces, QUICK_SCORED if options.quick else SCORED)
    for name, rate in rates.items():
        print(f"{name}: {rate / 1e6:.1f} million scores a second and core")
    data = {"machine": machine(), "cases": results, "rates": rates}
    return finish_with(options, data, bars_of(results, rates))


def options_of() -> argparse.Namespace:
    """What the command line asks for."""
    parser = basic_parser("How draft models of GPUs rank candidates that were measured on one.")
    parser.add_argument(
        "--candidates", metavar="FILE", type=Path, required=True, help="the measured candidates"
    )
    return parser.parse_args()


def read_cases(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The timed candidates by case."""
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    cases: dict[str, list[dict[str, Any]]] = {}
    with opened(path, "rt") as file:
        for line in file:
            row = json.loads(line)
            if not row["small"] and row["outcome"] == "ok":
                cases.setdefault(row["case"], []).append(row)
    return cases


def space_of(rows: Sequence[dict[str, Any]]) -> SketchSpace:
    """The space that the candidates of a case are from."""
    backend = create_part("backend", "tvm")
    name = rows[0]["workload"]
    if name == "layernorm":
        centred = rows[0]["case"].startswith("layernorm4096")
        workload: Workload = backend.import_program(layer_norm(centred)).workload
    else:
        workload = getattr(builders, name)(**rows[0]["parameters"])
    return SketchSpace(workload, TARGET, backend.limits(TARGET))


def layer_norm(centred: bool, m: int = 4096, n: int = 1024) -> Any:
    """Layer norm as a PrimFunc: with a centred variance, or from sums of squares."""
    from tvm import te

    x = te.placeholder((m, n), name="X")
    gamma, beta = (te.placeholder((n,), name=name) for name in ("G", "B"))
    k, k2 = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "k2")
    total = te.compute((m,), lambda i: te.sum(x[i, k], k), name="S")

    def mean(i: Any) -> Any:
        return total[i] * (1 / n)

    def spread(i: Any) -> Any:
        moved = x[i, k2] - mean(i) if centred else x[i, k2]
        return te.sum(moved * moved, k2)

    squares = te.compute((m,), spread, name="V")

    def variance(i: Any) -> Any:
        return squares[i] * (1 / n) - (0 if centred else mean(i) * mean(i))

    y = te.compute(
        (m, n),
        lambda i, j: (x[i, j] - mean(i)) * te.rsqrt(variance(i) + 1e-5) * gamma[j] + beta[j],
        name="Y",
    )
    return te.create_prim_func([x, gamma, beta, y])


def judged(
    formula: str,
    name: str,
    rows: Sequence[dict[str, Any]],
    space: SketchSpace,
    scorer: GpuScorer,
) -> dict[str, Any]:
    """How a formula ranks the candidates of a case."""
    scores = scores_of(rows, {sketch.name: sketch for sketch in space.sketches()}, scorer)
    latencies = np.array([row["latency"] for row in rows])
    uniform = np.array([not UNIFORM.isdisjoint(row["drawn_by"]) for row in rows])
    rng = np.random.default_rng(0)
    best = [
        latencies[np.lexsort((rng.random(len(rows)), -scores))[:FIRST]].min()
        for _ in range(ORDERS)
    ]
    return {
        "formula": formula,
        "case": name,
        "candidates": len(rows),
        "spearman": spearman(scores[uniform], -latencies[uniform]),
        "best_of_first": float(np.mean(best) / latencies.min()),
    }


def scores_of(
    rows: Sequence[dict[str, Any]], sketches: dict[str, Sketch], scorer: GpuScorer
) -> Array:
    """The score of every candidate."""
    scores = np.empty(len(rows))
    for name, sketch in sketches.items():
        own = [at for at, row in enumerate(rows) if row["sketch"] == name]
        if own:
            # Without a padding where rows of shared memory could not be padded yet.
            absent = {it: 0 for it in sketch.param_names if it.endswith(".pad")}
            configs = [absent | rows[at]["config"] for at in own]
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
    """One line for a case."""
    print(
        f"{result['formula']:10} {result['case']:22} {result['candidates']:4} candidates, "
        f"rank correlation {result['spearman']:5.2f}, best of the first {FIRST}: "
        f"{result['best_of_first']:.2f}"
    )


def bars_of(results: Sequence[dict[str, Any]], rates: dict[str, float]) -> list[Bar]:
    """What the default formula promises."""
    own = [result for result in results if result["formula"] == JUDGED]
    correlations = [result["spearman"] for result in own]
    near = sum(result["best_of_first"] <= BEST_OF_FIRST for result in own)
    return [
        Bar("median rank correlation", statistics.median(correlations), SPEARMAN),
        Bar("least rank correlation", min(correlations), LEAST_SPEARMAN),
        Bar(f"cases with the best of the first {FIRST} within {BEST_OF_FIRST}", near, CASES),
        Bar("median scores a second and core", statistics.median(rates.values()), RATE),
    ]


if __name__ == "__main__":
    sys.exit(main())
