from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve
from numpy.typing import NDArray
from oracles import psa_cpu as oracle
from row_norms import rms_norm, with_small_cache
from thinning import thinned

from autotune import Target
from autotune.errors import InvalidValueError
from autotune.ir.workloads import (
    batch_matmul,
    conv2d,
    cumsum,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.models import ModelContext
from autotune.models.pruning import PSA
from autotune.models.pruning.psa_cpu import CpuMachine, CpuScorer, cpu_machine, sketch_symbols
from autotune.sketches import CandidateBatch, Sketch
from autotune.sketches.steps import STEP_TYPES
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset
from autotune.targets.target import Cache
from autotune.testing.pruning_model_suite import PruningModelFactory, PruningModelSuite

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1 << 20, 512, "test")
TARGET = preset("sapphirerapids-4core")
WORKLOADS = {
    "gemm": gemm(m=96, n=128, k=64),
    "odd": gemm(m=31, n=37, k=41),
    "batch": batch_matmul(b=4, m=24, n=32, k=16),
    "dense": dense(m=32, n=48, k=64),
    "conv2d": conv2d(h=14, w=14, ci=16, co=32, pad=1),
    "strided": conv2d(h=15, w=15, ci=8, co=16, pad=1, stride=2),
    "depthwise": depthwise_conv2d(h=14, w=14, c=32, pad=1),
    "softmax": softmax(m=48, n=64),
    "elementwise": elementwise(m=48, n=64),
    "cumsum": cumsum(m=48, n=64, axis=0),
}
SMALL = with_small_cache(TARGET)
SPACES = {
    **{name: SketchSpace(workload, TARGET, LIMITS) for name, workload in WORKLOADS.items()},
    "softmax in memory": SketchSpace(softmax(m=48, n=64), SMALL, LIMITS),
    "norm in memory": SketchSpace(rms_norm(32, 96), SMALL, LIMITS),
}


def batch_of(name: str, n: int = 40) -> CandidateBatch:
    return SPACES[name].sample(n, np.random.default_rng(7))


class TestPSA(PruningModelSuite):
    @pytest.fixture
    def pruning_model_factory(self) -> PruningModelFactory:
        return lambda: PSA(ModelContext(target=TARGET))

    @pytest.fixture
    def batch(self) -> CandidateBatch:
        return batch_of("conv2d")


@pytest.mark.parametrize("name", SPACES)
def test_native_scores_equal_those_of_the_slow_oracle(name: str) -> None:
    machine = cpu_machine(TARGET)
    scorer = CpuScorer(TARGET)
    for sketch, matrix in batch_of(name).parts:
        check(sketch, matrix, machine, scorer.cycles)


@pytest.mark.parametrize("name", ["gemm", "depthwise"])
def test_other_machines(name: str) -> None:
    """Small caches, few registers and one core reach every branch of the model."""
    machine = evolve(
        cpu_machine(TARGET),
        cores=1.0,
        vector_registers=6.0,
        capacity=(1024.0, 8192.0, 65536.0),
        way_bytes=(512.0, 4096.0, 0.0),
        unrolled=8.0,
    )
    scorer = CpuScorer(TARGET, machine)
    for sketch, matrix in batch_of(name).parts:
        check(sketch, matrix, machine, scorer.cycles)


def check(
    sketch: Sketch,
    matrix: NDArray[np.int64],
    machine: CpuMachine,
    cycles: Callable[[Sketch, NDArray[np.int64]], NDArray[np.float64]],
) -> None:
    symbols = sketch_symbols(sketch, TARGET.vector_bytes)
    found = cycles(sketch, matrix)
    for row, estimate in zip(symbols.tape.evaluate(matrix).tolist(), found, strict=True):
        expected = oracle.cycles(symbols, machine, dict(enumerate(row)))
        assert estimate == pytest.approx(expected, rel=1e-12)


def test_threads_make_no_difference() -> None:
    scorer = CpuScorer(TARGET)
    for sketch, matrix in batch_of("gemm", 1000).parts:
        alone = scorer.cycles(sketch, matrix)
        for threads in (2, 7):
            np.testing.assert_array_equal(scorer.cycles(sketch, matrix, threads), alone)


@pytest.mark.parametrize("name", thinned(WORKLOADS, 3))
def test_more_of_a_machine_is_never_slower(name: str) -> None:
    machine = cpu_machine(TARGET)
    faster = [
        evolve(machine, bandwidth=(128.0, 64.0, 10.0)),
        evolve(machine, loads_per_cycle=4.0, stores_per_cycle=4.0),
        evolve(machine, latency=2.0, iteration=0.5, entry=10.0),
        evolve(machine, foreign=50.0, launch=100.0, row=0.0, spill=0.1),
        evolve(machine, overlap=0.0, contention=0.0),
    ]
    for sketch, matrix in batch_of(name).parts:
        before = CpuScorer(TARGET, machine).cycles(sketch, matrix)
        assert (before > 0).all()
        for better in faster:
            after = CpuScorer(TARGET, better).cycles(sketch, matrix)
            assert (after <= before * (1 + 1e-12)).all()


def test_rows_of_a_program_in_memory_overlap() -> None:
    """Computing along a row hides early requests and late writes.

    A softmax has more time for it than a norm, which waits for memory in both of its stages.
    """
    caches = (Cache(1, 32 << 10, False), Cache(2, 512 << 10, False), Cache(3, 16 << 20, True))
    target = evolve(TARGET, caches=caches).with_cores(1)
    scorer = CpuScorer(target)
    cycles = {}
    for workload in (softmax(m=16384, n=2048), rms_norm(16384, 2048)):
        space = SketchSpace(workload, target, LIMITS)
        for sketch in space.sketches():
            matrix = space.feasible_set(sketch).uniform(100, 0)
            for choice in (0, 1):
                if "Y.prefetch" in sketch.param_names:
                    matrix[:, sketch.param_names.index("Y.prefetch")] = choice
                found = scorer.cycles(sketch, matrix).min()
                cycles[workload.name, sketch.name, choice] = found
    plain = cycles["softmax", "row-fusion", 0]
    early, late = cycles["softmax", "row-fusion", 1], cycles["softmax", "row-fusion-pipelined", 0]
    both = cycles["softmax", "row-fusion-pipelined", 1]
    assert both <= early * (1 + 1e-12)
    assert 1.03 * early < late and 1.03 * late < plain
    norm = [cycles["rms_norm", "row-fusion", choice] for choice in (0, 1)]
    assert plain / early > norm[0] / norm[1]


def test_a_machine_without_caches_is_all_of_one_speed() -> None:
    bare = Target(kind="cpu", name="bare", cores=2, vector_bytes=16)
    machine = cpu_machine(bare)
    assert machine.capacity == (float("inf"),) * 3
    for sketch, matrix in batch_of("gemm").parts:
        assert np.isfinite(CpuScorer(bare).cycles(sketch, matrix)).all()


def test_a_matrix_that_does_not_fit_is_refused() -> None:
    sketch = SPACES["gemm"].sketches()[0]
    scorer = CpuScorer(TARGET)
    with pytest.raises(InvalidValueError, match="got a matrix with 2 columns"):
        scorer.cycles(sketch, np.ones((3, 2), dtype=np.int64))
    with pytest.raises(InvalidValueError, match="of int64, not of float64"):
        scorer.cycles(sketch, np.ones((3, len(sketch.params))))  # type: ignore[arg-type]
    nothing = np.zeros((1, len(sketch.params)), dtype=np.int64)
    assert np.isnan(scorer.cycles(sketch, nothing)).all()
    with pytest.raises(InvalidValueError, match="passes"):
        scorer.cycles(sketch, np.full((1, len(sketch.params)), 2**30, dtype=np.int64))
