"""Cost and bias of drawing feasible configurations: feasible sets, CP-SAT, trial and error.

CP-SAT is used in two ways: as Heron does (ASPLOS'23), with a model built anew for every point from
shuffled constraints, and with one model for all points. Trial and error draws splits of every
extent, uniformly, until all other constraints hold. Bias is the distance in total variation
between what is drawn and the uniform distribution, beside what as many uniform draws show by
chance.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from attrs import evolve
from support.common import Bar, Report
from support.cpsat import CpSatSampler

from autotune.ir.expressions import var
from autotune.ir.workloads import conv2d, gemm
from autotune.sketches import STEP_TYPES, OneOf, ProductEquals, Sketch
from autotune.sketches.candidates import Matrix
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.spaces.feasible import FeasibleSet, build_feasible_set, is_feasible
from autotune.targets import preset

# Microseconds for one feasible configuration of the largest sketch, on one core.
WANTED = 20.0
# Largest space in which bias is looked at.
SMALL = 5000
PROPOSALS = 200_000


@dataclass
class Cost:
    """Of one sketch, all times in microseconds; None where nothing was found or looked at.

    Attributes:
        count: Feasible configurations.
        exact, whole, shared, rejection: Time for one by the feasible set, by CP-SAT with
            a model for each and with one model for all, and by trial and error.
        offspring, offspring_cpsat: Time for a child between two parents, half of the parameters
            held to what these have, by restriction of the feasible set and by CP-SAT.
        accepted: Share of proposals of trial and error that are feasible.
        bias: By sampler, distance from uniform and what chance alone gives.
    """

    sketch: str
    count: int
    exact: float
    whole: float
    shared: float
    rejection: float | None
    offspring: float
    offspring_cpsat: float
    accepted: float
    bias: dict[str, tuple[float, float]]


def sketches() -> list[tuple[str, Sketch]]:
    """Of each space the sketch with the most configurations, and a small one."""
    limits = ScheduleLimits(frozenset(STEP_TYPES), 2**17, 4096, "benchmark")
    convolution = conv2d(n=1, ci=64, h=56, w=56, co=64, kh=3, kw=3, stride=1, pad=1)
    spaces = {
        "gemm 1024 CPU": SketchSpace(gemm(m=1024, n=1024, k=1024), preset("avx512"), limits),
        "conv2d CPU": SketchSpace(convolution, preset("avx512"), limits),
        "gemm 1024 GPU": SketchSpace(gemm(m=1024, n=1024, k=1024), preset("a100"), limits),
        "gemm 64 CPU": SketchSpace(gemm(m=64, n=64, k=16), preset("avx512"), limits),
    }
    return [
        (name, max(space.sketches(), key=lambda sketch: build_feasible_set(sketch).count))
        for name, space in spaces.items()
    ]


def microseconds(work: Callable[[], object], per: int, repeats: int = 5) -> float:
    """Median time of ``work`` divided by ``per``."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) / per * 1e6


def as_heron_does(sketch: Sketch, seed: int) -> Matrix:
    """A point by a model of its own, built from shuffled parts."""
    order = np.random.default_rng(seed).permutation(len(sketch.constraints))
    shuffled = evolve(sketch, constraints=tuple(sketch.constraints[i] for i in order))
    return CpSatSampler(shuffled).sample(1, seed)


def by_rejection(sketch: Sketch, proposals: int) -> tuple[Matrix, float]:
    """Feasible ones among proposals, and the seconds that they took."""
    products = [item for item in sketch.constraints if isinstance(item, ProductEquals)]
    splits = build_feasible_set(evolve(sketch, constraints=tuple(products)))
    start = time.perf_counter()
    rows = splits.uniform(proposals, 1)
    return rows[is_feasible(sketch, rows)], time.perf_counter() - start


def child(feasible: FeasibleSet, seed: int) -> Matrix:
    """A child: every other parameter has the value of a parent."""
    mother, father = feasible.uniform(2, seed).tolist()
    names = feasible.columns
    kept = {name: (mother[i], father[i]) for i, name in enumerate(names) if i % 2 == 0}
    return feasible.restrict(kept).uniform(1, seed)


def child_by_cpsat(feasible: FeasibleSet, sketch: Sketch, seed: int) -> Matrix:
    """The same by CP-SAT."""
    mother, father = feasible.uniform(2, seed).tolist()
    members = tuple(
        OneOf(var(name), (mother[i], father[i]), "parents")
        for i, name in enumerate(feasible.columns)
        if i % 2 == 0
    )
    held = evolve(sketch, constraints=(*sketch.constraints, *members))
    return as_heron_does(held, seed)


def bias(rows: Matrix, count: int) -> tuple[float, float]:
    """Distance of the rows' frequencies from uniform; and that of as many uniform draws."""

    def distance(counts: Counter[Any], draws: int) -> float:
        seen = sum(abs(number / draws - 1 / count) for number in counts.values())
        return (seen + (count - len(counts)) / count) / 2

    chance = np.random.default_rng(2).integers(count, size=len(rows)).tolist()
    found = Counter(map(tuple, rows.tolist()))
    return distance(found, len(rows)), distance(Counter(chance), len(rows))


def cost_of(name: str, sketch: Sketch, solves: int) -> Cost:
    """All samplers on one sketch."""
    feasible = build_feasible_set(sketch)
    shared = CpSatSampler(sketch)
    rows, seconds = by_rejection(sketch, PROPOSALS)
    found: dict[str, tuple[float, float]] = {}
    if feasible.count <= SMALL:
        draws = solves * 10
        found["feasible set"] = bias(feasible.uniform(draws, 1), feasible.count)
        found["cp-sat"] = bias(shared.sample(draws, 1), feasible.count)
        if len(rows):
            found["rejection"] = bias(rows[:draws], feasible.count)
    few = max(5, solves // 10)
    return Cost(
        sketch=f"{name}: {sketch.name}",
        count=feasible.count,
        exact=microseconds(lambda: feasible.uniform(20_000, 1), 20_000),
        whole=microseconds(lambda: [as_heron_does(sketch, i) for i in range(few)], few, 3),
        shared=microseconds(lambda: shared.sample(few, 1), few, 3),
        rejection=seconds / len(rows) * 1e6 if len(rows) else None,
        offspring=microseconds(lambda: [child(feasible, i) for i in range(few)], few),
        offspring_cpsat=microseconds(
            lambda: [child_by_cpsat(feasible, sketch, i) for i in range(few)], few, 3
        ),
        accepted=len(rows) / PROPOSALS,
        bias=found,
    )


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    costs = []
    for name, sketch in sketches():
        costs.append(cost_of(name, sketch, 50 if options.quick else 200))
        print_cost(costs[-1])
    largest = max(costs, key=lambda cost: cost.count)
    bars = [
        Bar(
            "microseconds for a configuration of the largest sketch",
            largest.exact,
            WANTED,
            True,
        ),
        Bar(
            "times as fast as CP-SAT used as Heron does",
            min(cost.whole / cost.exact for cost in costs),
            100.0,
        ),
    ]
    return Report({"costs": [asdict(cost) for cost in costs]}, bars)


def print_cost(cost: Cost) -> None:
    """A few lines about one sketch."""
    rejection = "none found" if cost.rejection is None else f"{cost.rejection:.2f}"
    print(f"{cost.sketch}, {cost.count} configurations; microseconds for one:")
    print(f"  exact {cost.exact:.2f}, trial and error {rejection} ({cost.accepted:.2e} accepted)")
    print(f"  CP-SAT with a model for each {cost.whole:.0f}, with one for all {cost.shared:.0f}")
    print(f"  child {cost.offspring:.0f}, by CP-SAT {cost.offspring_cpsat:.0f}")
    for sampler, (distance, chance) in cost.bias.items():
        print(f"  {sampler}: {distance:.3f} from uniform, {chance:.3f} by chance", flush=True)
