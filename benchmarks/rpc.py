"""Costs of measuring on RPC servers beyond measuring here, and agreement on the best.

The servers are to be on this machine, started with one thread (see docs/fleet.md), so that both
ways time the same programs on the same processor. Random candidates of two operators are measured
both ways, and what each way found best is then timed in turns here.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from draft import draw
from support.common import Bar, Report

from autotune.ir.workloads import Workload
from autotune.measure import LocalMeasurer, MeasureProtocol, SharedWorkers
from autotune.measure.engines import RunnerContext
from autotune.measure.workers import EngineWorkers, WorkerSetup
from autotune.plugins.parts import create_part
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.targets import Target

OPERATORS = ("gemm", "conv2d")
CANDIDATES, QUICK_CANDIDATES = 96, 32
ROUND = 16
OVERHEAD_MS = 20.0
SAME_BEST = 1.05
# What a candidate costs besides its build: the samples are the same ones.
_PHASES = ("load", "verify")


def measure(
    workload: Workload, target: Target, candidates: Sequence[Candidate], options: dict[str, Any]
) -> list[Outcome]:
    """Outcomes, on the servers of these options; without any, in processes of this machine."""

    def make(setup: WorkerSetup, *, is_late: Callable[[], bool]) -> EngineWorkers:
        context = RunnerContext(
            backend="tvm", target=target, threads=1, protocol=setup.protocol, options=options
        )
        return EngineWorkers(create_part("runner", "rpc", context), setup, is_late=is_late)

    shared, one = SharedWorkers(), target.with_cores(1)
    if options:
        # The measurer takes those that are made for its setup.
        shared.get(WorkerSetup("tvm", one, 1, MeasureProtocol()), make)
    with LocalMeasurer("tvm", one, 1, workload, shared=shared) as measurer:
        measurer.wait_ready()
        found = [
            outcome
            for begin in range(0, len(candidates), ROUND)
            for outcome in measurer.measure(candidates[begin : begin + ROUND])
        ]
    shared.close()
    return found


def spent(outcome: Outcome) -> float:
    """Milliseconds of a candidate between its build and its samples, and around these."""
    calls = sum(outcome.timings.get(phase, 0.0) for phase in _PHASES)
    return 1e3 * calls


def compare(name: str, count: int, options: dict[str, Any]) -> dict[str, Any]:
    """Measure an operator both ways."""
    workload, target, candidates = draw(name, count, seed=0)
    here = measure(workload, target, candidates, {})
    there = measure(workload, target, candidates, options)
    both = [(one, other) for one, other in zip(here, there, strict=True) if one.ok and other.ok]
    overhead = [spent(other) - spent(one) for one, other in both]
    bests = [
        min((it for it in outcomes if it.ok), key=lambda it: it.latency)
        for outcomes in (here, there)
    ]
    chosen = [
        candidates[outcomes.index(best)]
        for outcomes, best in zip((here, there), bests, strict=True)
    ]
    with LocalMeasurer("tvm", target.with_cores(1), 1, workload) as measurer:
        turns = measurer.rematch(chosen) if chosen[0] != chosen[1] else []
    ratio = turns[1].latency / turns[0].latency if turns else 1.0
    for outcomes, where in ((here, "here"), (there, "there")):
        for outcome in outcomes:
            if not outcome.ok:
                print(f"{where}: {outcome.status}: {outcome.message}", flush=True)
    row = {
        "operator": name,
        "candidates": len(candidates),
        "failed": [sum(not it.ok for it in outcomes) for outcomes in (here, there)],
        "overhead_ms": statistics.median(overhead),
        "least_overheads_ms": statistics.quantiles(overhead, n=10)[0],
        "latency_ratio": statistics.median(other.latency / one.latency for one, other in both),
        "best_ratio": ratio,
        "best": [best.latency for best in bests],
    }
    print(row, flush=True)
    return row


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser.add_argument("--tracker", required=True, metavar="HOST:PORT")
    parser.add_argument("--key", required=True)
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    count = QUICK_CANDIDATES if options.quick else CANDIDATES
    servers = {"tracker": options.tracker, "key": options.key}
    rows = [compare(name, count, servers) for name in OPERATORS]
    bars = []
    for row in rows:
        name = row["operator"]
        bars += [
            Bar(f"{name}: overhead, ms", row["overhead_ms"], OVERHEAD_MS, at_most=True),
            Bar(f"{name}: best there over best here", row["best_ratio"], SAME_BEST, at_most=True),
        ]
    return Report({"rows": rows}, bars)
