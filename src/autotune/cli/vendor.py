"""The vendor's library beside a result, and whether the two can be compared at all.

On CPUs that is numpy's BLAS for matrix products, and torch with oneDNN for what else it has where
it is installed; on CUDA devices torch, with cuBLAS and cuDNN.

BLAS libraries wait for their threads at barriers: where another program wants the same cores,
a call of one millisecond takes a whole scheduler quantum, and every sample of a process agrees
on that. So the library is timed in several processes, the fastest of which counts, and the
machine is looked at before each of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import numpy as np
from attrs import evolve, frozen

from autotune.cli.machine import MOST_BUSY_CORES, busy_cores
from autotune.measure import MeasureProtocol
from autotune.measure.vendor import matrix_product, torch_latency, vendor_latency
from autotune.store.database import RecordFilter
from autotune.store.records import Baseline, MeasureKey, Outcome
from autotune.store.sqlite import open_database
from autotune.tuning.result import Result

__all__ = ["ONEDNN_NAME", "TORCH_NAME", "VENDOR_NAME", "VendorTiming", "compare", "time_vendor"]

VENDOR_NAME = "numpy (BLAS)"
TORCH_NAME = "torch (cuBLAS, cuDNN)"
ONEDNN_NAME = "torch (oneDNN)"
REPEATS = 3
MOST_REPEATS = 9
"""Most repetitions, of which there are more where the fastest ones do not agree."""
MOST_SPREAD = 1.2


@frozen
class VendorTiming:
    """The latency of the vendor library.

    Attributes:
        outcome: The fastest repetition.
        caveat: Why a ratio to it would mislead; "" when nothing speaks against it.
        name: What the library is called.
    """

    outcome: Outcome
    caveat: str = ""
    name: str = VENDOR_NAME

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "name": self.name,
            "status": self.outcome.status,
            "latency": self.outcome.latency,
            "caveat": self.caveat,
        }


def _library(result: Result) -> str:
    """Name of the library that a result is compared with."""
    if result.target.kind == "cuda":
        return TORCH_NAME
    is_product = matrix_product(result.workload) is not None
    return VENDOR_NAME if is_product or find_spec("torch") is None else ONEDNN_NAME


def time_vendor(result: Result) -> VendorTiming | None:
    """Time the vendor's library on a result's workload and threads; None if it has no routine.

    The timing is kept beside the baselines. A result that comes from records is compared
    with what was timed then.
    """
    name = _library(result)
    key = _vendor_key(result, name)
    if key is not None and result.from_records:
        with closing(open_database(result.database, read_only=True)) as database:
            alike = RecordFilter(workload=result.workload.digest, key=key)
            for known in database.baselines(alike):
                return VendorTiming(known.outcome, known.outcome.message, name)
    on_cpu = result.target.kind != "cuda"
    outcomes: list[Outcome] = []
    busy: list[float] = []
    while len(outcomes) < REPEATS or (
        len(outcomes) < MOST_REPEATS and _spread(outcomes) > MOST_SPREAD
    ):
        busy.append(busy_cores() if on_cpu else 0.0)
        outcome = _timed(result, name)
        if outcome is None:
            return None
        outcomes.append(outcome)
        if outcome.latency is None and name != VENDOR_NAME:
            # Torch without the device, or the routine, is so in every process.
            break
    timing = evolve(compare(outcomes, busy, result.from_records), name=name)
    if key is not None and timing.outcome.latency is not None:
        kept = evolve(timing.outcome, message=timing.caveat or timing.outcome.message)
        with closing(open_database(result.database)) as database:
            timed = (result.workload.digest, key, kept, time.time(), name)
            database.append_baseline(Baseline(result.run_id, *timed))
    return timing


def _timed(result: Result, name: str) -> Outcome | None:
    protocol = MeasureProtocol()
    if name != VENDOR_NAME:
        return torch_latency(result.workload, result.target, protocol)
    return vendor_latency(result.workload, result.threads, protocol)


def _vendor_key(result: Result, name: str) -> MeasureKey | None:
    """The key of the library's timing; None where the result is incomplete."""
    if result.best is None or result.database == ":memory:":
        return None
    if name != VENDOR_NAME:
        version = _torch_version()
        return evolve(
            result.best.key,
            backend="torch",
            backend_version=version,
            compiler_version=f"torch {version}",
        )
    return evolve(
        result.best.key,
        backend="numpy",
        backend_version=np.__version__,
        compiler_version=f"numpy {np.__version__}",
    )


def _torch_version() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "not installed"


def _fastest(outcomes: Sequence[Outcome]) -> list[tuple[float, int]]:
    """Latencies and places of the fastest repetitions, as many as there are at least.

    Others were disturbed; the fastest is what the library can do where two more confirm it.
    """
    found = [(it.latency, place) for place, it in enumerate(outcomes) if it.latency is not None]
    return sorted(found)[:REPEATS]


def _spread(outcomes: Sequence[Outcome]) -> float:
    """By which factor the fastest repetitions differ; 1 if all failed."""
    fastest = _fastest(outcomes)
    return fastest[-1][0] / fastest[0][0] if fastest else 1.0


def compare(
    outcomes: Sequence[Outcome], busy: Sequence[float], from_records: bool
) -> VendorTiming:
    """Judge repetitions.

    Args:
        outcomes: One per process.
        busy: Cores that other programs kept busy before each of them.
        from_records: Whether the result was measured at another time.
    """
    fastest = _fastest(outcomes)
    if not fastest:
        return VendorTiming(outcomes[0], f"the library failed: {outcomes[0].message}")
    best = outcomes[fastest[0][1]]
    busiest = max(busy[place] for _, place in fastest)
    caveats = []
    if busiest > MOST_BUSY_CORES:
        caveats.append(f"other programs kept {busiest:.1f} cores busy")
    if (spread := _spread(outcomes)) > MOST_SPREAD:
        caveats.append(f"its {len(outcomes)} repetitions differ by a factor of {spread:.1f}")
    if from_records and caveats:
        caveats.append("the schedule was timed earlier")
    return VendorTiming(best, "; ".join(caveats))
