"""Records, baselines and runs for tests of databases and of what reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import evolve

from autotune.backends import Backend
from autotune.ir.expressions import var
from autotune.ir.workloads import Workload, gemm
from autotune.sketches import AtMost, Candidate, Ordinal, Sketch, Tile
from autotune.spaces import SketchSpace
from autotune.store.records import Baseline, MeasureKey, Outcome, Record, Run, run_identity
from autotune.targets import Target

__all__ = ["KEY", "candidate_records", "sample_baseline", "sample_record", "sample_run"]

KEY = MeasureKey("fingerprint", "reference", "1", "numpy 1", 2, "warm-1")


def sample_record(
    trial: int = 0,
    latency: float | None = 1e-3,
    *,
    workload: Workload | None = None,
    tile: int | None = None,
    status: str = "ok",
    lowered: str = "",
    binary: str = "",
    duplicate_of: str = "",
    **changes: Any,
) -> Record:
    """A record for tests; ``changes`` replace its attributes."""
    workload = workload or gemm(m=8, n=8, k=8)
    sketch = Sketch(
        "toy",
        workload,
        (Ordinal("tile", (1, 2, 4, 8)), Ordinal("unroll", (0, 16))),
        (AtMost(var("tile") * var("unroll"), 64, "test"),),
        (Tile("C", "i", (var("tile"),)),),
    )
    candidate = Candidate(sketch, (trial if tile is None else tile, 16))
    outcome = Outcome(
        status,
        latency if status == "ok" else None,
        (1.5e-3, 1e-3) if status == "ok" else (),
        {"build": 0.25, "run": 0.125},
        "" if status == "ok" else f"what went wrong: {status} ünïcode \n second line",
        lowered=lowered,
        binary=binary,
        duplicate_of=duplicate_of,
    )
    target = Target("cpu", "test", cores=2).to_json()
    record = Record("run-1", trial, candidate, KEY, target, "toy-1", outcome, 1e9 + trial, 2.5)
    return evolve(record, **changes)


def candidate_records(
    workload: Workload,
    target: Target,
    backend: Backend,
    count: int,
    program: str | None = None,
    threads: int = 1,
) -> list[Record]:
    """Random candidates of a `SketchSpace` as if they had been measured: the first is the fastest.

    Args:
        workload: What they compute.
        target: What they are for.
        backend: Replays them.
        count: How many there are for each sketch, on average.
        program: The imported program's text, when they are for one.
        threads: Threads of the measurements.
    """
    space = SketchSpace(workload, target, backend.limits(target))
    drawn = space.sample(count * len(space.sketches()), np.random.default_rng(3))
    compiler = backend.compiler_version()
    key = MeasureKey(
        target.fingerprint, backend.name, backend.version, compiler, threads, "warm-1"
    )
    about = target.to_json()
    return [
        Record(
            "run",
            trial,
            candidate,
            key,
            about,
            "sketch-1",
            Outcome("ok", 1.25e-6 * (trial + 1), (1e-6,)),
            1e9,
            program=program,
        )
        for trial, candidate in enumerate(drawn)
    ]


def sample_baseline(latency: float | None = 1.0, **changes: Any) -> Baseline:
    """A baseline of the workload of :func:`sample_record`; without a latency it took too long."""
    outcome = Outcome("timeout") if latency is None else Outcome("ok", latency, (latency,))
    baseline = Baseline("run-1", gemm(m=8, n=8, k=8).digest, KEY, outcome, 1.0)
    return evolve(baseline, **changes)


def sample_run(run_id: str = "run-1", **changes: Any) -> Run:
    """A run for tests; ``changes`` replace its attributes."""
    workload = gemm(m=8, n=8, k=8).spelling
    options = {"population": 64, "nested": {"list": [1, 2]}}
    identity = run_identity(workload, KEY, "toy-1", "random", options, 0)
    run = Run(run_id, identity, workload, KEY, "toy-1", "random", options, 0, 64, "running", 1e9)
    return evolve(run, **changes)
