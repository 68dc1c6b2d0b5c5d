"""Scripts that never end, or that MLIR refuses: they cost an outcome and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend
from scripted_schedules import NAME, scripted

from autotune.ir.workloads import gemm
from autotune.measure import LocalMeasurer, MeasureProtocol
from autotune.spaces import SketchSpace
from autotune.store.records import Outcome
from autotune.targets import Target

WORKLOAD = gemm(m=16, n=16, k=16)


@contextmanager
def measuring(target: Target, protocol: MeasureProtocol) -> Iterator[LocalMeasurer]:
    with LocalMeasurer(NAME, target, 1, WORKLOAD, protocol=protocol, workers=1) as measurer:
        yield measurer


def measured(measurer: LocalMeasurer, names: Sequence[str]) -> list[Outcome]:
    return list(measurer.measure([scripted(WORKLOAD, name) for name in names]))


@pytest.mark.slow
def test_patterns_that_undo_each_other_end_at_the_deadline(target: Target) -> None:
    # Many times as long as any other build takes on a slow machine.
    protocol = MeasureProtocol(deadlines={"build": 10.0})
    with measuring(target, protocol) as measurer:
        (first,) = measured(measurer, ["tile 2"])
        outcomes = measured(measurer, ["endless", "refused", "tile 4"])
    assert first.status == "ok", first.message
    assert [outcome.status for outcome in outcomes] == ["timeout", "invalid", "ok"]
    assert outcomes[0].message == "build took more than 10 s"
    assert "Attempted to vectorize, but failed" in outcomes[1].message


@pytest.mark.slow
def test_patterns_that_eat_all_memory_are_a_failure(target: Target) -> None:
    """LLVM ends the process when it gets no memory."""
    protocol = MeasureProtocol(memory_bytes=256 << 20, deadlines={"build": 60.0})
    with measuring(target, protocol) as measurer:
        outcomes = measured(measurer, ["endless", "tile 4"])
    assert [outcome.status for outcome in outcomes] == ["crash", "ok"]


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
