"""What the native kernels do in a second on one core; beside them TVM and CP-SAT.

    python benchmarks/native.py [--quick] [--json FILE] [--check]

For each sketch of a workload: feasible points drawn, PSA scores, and statement features (PAM) of
the same configurations; then TVM's own way to look at a candidate (replay the schedule, lower it,
extract its features), and CP-SAT under the constraints of the sketch. The largest sketch of all
built-in workloads is measured by itself. A rate of several sketches is that of the same number of
configurations of each. Seconds are those of the processor, which other processes do not lengthen.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from common import Bar, basic_parser, finish_with, machine

from autotune import Target, make_workload
from autotune.errors import UnsupportedTarget
from autotune.models import ModelContext
from autotune.models.features import pam_features
from autotune.nest import nest_tape
from autotune.plugins.parts import create_part
from autotune.sketches import STEP_TYPES, Candidate, CandidateBatch, Sketch
from autotune.sketches.candidates import Matrix
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.spaces.feasible import FeasibleSet, build_feasible_set
from autotune.targets import detect_cpu, preset

GPU = "a100"
GEMM = ("gemm", {"m": 512, "n": 512, "k": 512})
CONV2D = ("conv2d", {"h": 14, "w": 14, "ci": 256, "co": 256, "pad": 1})
EVERY_WORKLOAD: tuple[tuple[str, dict[str, int]], ...] = (
    GEMM,
    CONV2D,
    ("conv2d", {"h": 28, "w": 28, "ci": 128, "co": 128, "pad": 1, "bias": 1, "relu": 1}),
    ("depthwise_conv2d", {"h": 112, "w": 112, "c": 32, "pad": 1}),
    ("batch_matmul", {"b": 16, "m": 128, "n": 128, "k": 64}),
    ("dense", {"m": 128, "n": 768, "k": 768}),
    ("softmax", {"m": 512, "n": 512}),
    ("elementwise", {"m": 512, "n": 512}),
)

PSA_RATE = 5e6
PAM_RATE = 2e5
SAMPLER_RATE = 1e6

PSA_ROWS, PAM_ROWS, SAMPLER_ROWS = 1 << 15, 1 << 12, 1 << 16
SECONDS = 0.3
TVM_CANDIDATES, QUICK_TVM_CANDIDATES = 16, 4
SOLVES, QUICK_SOLVES = 20, 5
ENUMERATED = 1000
# Of CP-SAT's deterministic time, for one point or for all that are enumerated.
BUDGET = 10.0


@dataclass
class Rates:
    """What happens in a second, for the sketches of one workload; None where it cannot be had."""

    sketches: int
    instructions: int
    sampler: float | None = None
    psa: float | None = None
    pam: float | None = None
    tvm: float | None = None
    cpsat: float | None = None
    cpsat_distinct: float | None = None
    cpsat_enumeration: float | None = None
    missing: dict[str, str] = field(default_factory=dict)


def rate(work: Callable[[], int]) -> float:
    """How many of what ``work`` counts happen in a second: the median of at least three."""
    work()
    rates: list[float] = []
    begin = time.process_time()
    while len(rates) < 3 or time.process_time() - begin < SECONDS:
        rates.append(rate_once(work))
    return statistics.median(rates)


def rate_once(work: Callable[[], int]) -> float:
    """How many of what ``work`` counts happen in a second of the processor."""
    begin = time.process_time()
    count = work()
    return count / (time.process_time() - begin)


def together(rates: Sequence[float]) -> float:
    """The rate over several sketches, as many configurations of each."""
    return statistics.harmonic_mean(rates)


def sketches_for(workload: tuple[str, dict[str, int]], target: Target) -> tuple[Sketch, ...]:
    """The sketches of a workload, made for a target, as the TVM backend can replay them."""
    limits = ScheduleLimits(frozenset(STEP_TYPES), 1 << 20, 512, "benchmark")
    if target.kind == "cpu":
        limits = create_part("backend", "tvm").limits(target)
    return SketchSpace(make_workload(*workload), target, limits).sketches()


def largest_sketch(target: Target) -> Sketch:
    """The sketch with the longest tape among those of all built-in workloads."""
    every = [sketch for item in EVERY_WORKLOAD for sketch in sketches_for(item, target)]
    return max(every, key=lambda sketch: len(nest_tape(sketch).tape.instructions))


def measure(sketches: Sequence[Sketch], target: Target, quick: bool) -> Rates:
    """Every rate of the given sketches of one workload."""
    longest = max(len(nest_tape(sketch).tape.instructions) for sketch in sketches)
    result = Rates(len(sketches), longest)
    feasible_sets = [build_feasible_set(sketch) for sketch in sketches]
    result.sampler = together([rate_of_points(feasible) for feasible in feasible_sets])
    points = [feasible.uniform(PSA_ROWS, 1) for feasible in feasible_sets]
    try:
        model = create_part("pruning_model", "psa", ModelContext(target=target))
        result.psa = together(
            [rate_of_scores(model, *pair) for pair in zip(sketches, points, strict=True)]
        )
    except UnsupportedTarget as error:
        result.missing["psa"] = str(error)
    result.pam = together(
        [
            rate_of_features(sketch, matrix[:PAM_ROWS], target)
            for sketch, matrix in zip(sketches, points, strict=True)
        ]
    )
    count = QUICK_TVM_CANDIDATES if quick else TVM_CANDIDATES
    pairs = zip(sketches, points, strict=True)
    result.tvm = together(
        [rate_of_tvm(sketch, matrix[:count], target) for sketch, matrix in pairs]
    )
    try:
        solve_all(result, sketches, QUICK_SOLVES if quick else SOLVES)
    except ImportError as error:
        result.missing["cpsat"] = str(error)
    return result


def rate_of_points(feasible: FeasibleSet) -> float:
    """Feasible configurations drawn in a second."""
    return rate(lambda: len(feasible.uniform(SAMPLER_ROWS, 0)))


def rate_of_scores(model: Any, sketch: Sketch, matrix: Matrix) -> float:
    """Configurations scored in a second."""
    batch = CandidateBatch(((sketch, matrix),))
    return rate(lambda: len(model.score(batch)))


def rate_of_features(sketch: Sketch, matrix: Matrix, target: Target) -> float:
    """Configurations whose features are computed in a second."""
    return rate(lambda: len(pam_features(sketch, matrix, target).offsets) - 1)


def rate_of_tvm(sketch: Sketch, matrix: Matrix, target: Target) -> float:
    """Candidates that TVM replays, lowers and extracts features of in a second."""
    import tvm
    from autotune_tvm.emit import module_for
    from autotune_tvm.replay import schedule
    from store_features import store_features

    module = module_for(sketch.workload)
    described = {"kind": "llvm"} if target.kind == "cpu" else {"kind": "cuda"}
    if target.kind == "cuda":
        described["arch"] = target.processor
    candidates = [Candidate(sketch, tuple(row)) for row in matrix.tolist()]

    def work() -> int:
        schedules = [schedule(module, candidate, sketch.workload) for candidate in candidates]
        return len(store_features(schedules, module, tvm.target.Target(described)))

    return rate(work)


def solve_all(result: Rates, sketches: Sequence[Sketch], solves: int) -> None:
    """What CP-SAT reaches under the sketches' constraints.

    Raises:
        ImportError: OR-tools is not installed.
    """
    from cpsat import CpSatSampler

    samplers = [CpSatSampler(sketch, BUDGET) for sketch in sketches]
    points: list[set[tuple[int, ...]]] = [set() for _ in samplers]

    def solve(index: int) -> int:
        points[index].update(map(tuple, samplers[index].sample(solves, 0).tolist()))
        return solves

    def enumerate_some(index: int) -> int:
        return len(samplers[index].enumerate(ENUMERATED))

    every = range(len(samplers))
    result.cpsat = together([rate_once(partial(solve, index)) for index in every])
    result.cpsat_distinct = statistics.fmean(len(found) / solves for found in points)
    result.cpsat_enumeration = together(
        [rate_once(partial(enumerate_some, index)) for index in every]
    )


def show(name: str, rates: Rates) -> None:
    """Print the rates of one workload, and how they compare."""
    print(f"{name}: {rates.sketches} sketches, up to {rates.instructions} instructions on a tape")

    def line(label: str, value: float | None, note: str = "") -> None:
        text = "not measured" if value is None else f"{value:12,.0f} /s"
        print(f"  {label:<34}{text}{note}", flush=True)

    def times(value: float | None, other: float | None) -> str:
        return "" if value is None or not other else f"   {value / other:,.0f}x"

    line("points drawn", rates.sampler, times(rates.sampler, rates.cpsat) + " CP-SAT's")
    line("PSA scores", rates.psa, times(rates.psa, rates.tvm) + " TVM's")
    line("PAM features", rates.pam, times(rates.pam, rates.tvm) + " TVM's")
    line("TVM: replay, lower, extract", rates.tvm)
    share = rates.cpsat_distinct
    note = "" if share is None else f"   {share:.0%} of its points distinct"
    line("CP-SAT: a solve for each point", rates.cpsat, note)
    line("CP-SAT: the next solution", rates.cpsat_enumeration)
    for part, why in rates.missing.items():
        print(f"  {part} is missing: {why}")


def bars_of(name: str, rates: Rates) -> list[Bar]:
    """The promises for one workload."""
    return [
        Bar(f"{name}, PSA scores a second", rates.psa, PSA_RATE),
        Bar(f"{name}, configurations with PAM features a second", rates.pam, PAM_RATE),
        Bar(f"{name}, feasible points drawn a second", rates.sampler, SAMPLER_RATE),
    ]


def main() -> int:
    """Run; returns the exit status."""
    parser = basic_parser((__doc__ or "").splitlines()[0])
    parser.add_argument("--targets", default="cpu,gpu", help="kinds of targets, by commas")
    options = parser.parse_args()
    here = machine()
    print("{processor}, one of {cores} cores, load {load:.1f}".format(**here), flush=True)
    targets = {"cpu": detect_cpu(), "gpu": preset(GPU)}
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    found: dict[str, Rates] = {}
    bars: list[Bar] = []
    for kind in options.targets.split(","):
        target = targets[kind]
        cases: dict[str, Sequence[Sketch]] = {
            "gemm": sketches_for(GEMM, target),
            "conv2d": sketches_for(CONV2D, target),
        }
        largest = largest_sketch(target)
        cases[f"largest ({largest.workload.name}, {largest.name})"] = (largest,)
        for label, sketches in cases.items():
            name = f"{kind} {label}"
            found[name] = measure(sketches, target, options.quick)
            show(name, found[name])
            if not label.startswith("largest"):
                bars += bars_of(name, found[name])
    rates = {name: asdict(item) for name, item in found.items()}
    return finish_with(options, {"machine": here, "rates": rates}, bars)


if __name__ == "__main__":
    sys.exit(main())
