"""Many candidates in one worker: none ends it, and its memory is bounded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend

from autotune.ir.workloads import gemm
from autotune.measure import LocalMeasurer, MeasureProtocol
from autotune.spaces import SketchSpace
from autotune.targets import Target

GIBIBYTE = 1 << 30
CANDIDATES = 300


def most_bytes(pid: int) -> int:
    """Most memory that a process has occupied so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


@pytest.mark.slow
def test_hundreds_of_candidates_in_one_worker(target: Target) -> None:
    workload = gemm(m=12, n=32, k=16)
    space = SketchSpace(workload, target, MLIRBackend().limits(target))
    drawn = {it.digest: it for it in space.sample(2 * CANDIDATES, np.random.default_rng(0))}
    candidates = list(drawn.values())[:CANDIDATES]
    assert len(candidates) == CANDIDATES
    # They are to be built and run; how fast they are is not asked.
    quick = MeasureProtocol(min_samples=1, max_samples=1, min_rounds=1, max_rounds=1)
    with LocalMeasurer("mlir", target, 1, workload, protocol=quick, workers=1) as measurer:
        measurer.wait_ready()
        workers = measurer.worker_pids
        outcomes = measurer.measure(candidates)
        assert measurer.worker_pids == workers, "one of the candidates has ended the worker"
        (worker,) = workers
        assert most_bytes(worker) < GIBIBYTE
    assert [outcome.message for outcome in outcomes if not outcome.ok] == []
