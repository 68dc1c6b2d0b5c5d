"""Matrix multiplications, scheduled: what they compute, and of which operations they are made."""

from __future__ import annotations

import pytest
from autotune_mlir.backend import MLIRBackend
from mlir_schedules import candidates, check, scheduled

from autotune.targets import Target
from autotune.workloads import Workload, batch_matmul, dense, gemm

PRODUCTS = {
    "gemm": gemm(m=24, n=64, k=12),
    "odd": gemm(m=21, n=48, k=7),
    "double": gemm(m=8, n=32, k=6, dtype="float64"),
    "batch": batch_matmul(b=3, m=8, n=32, k=6),
    "dense": dense(m=12, n=32, k=16),
    "epilogue": dense(m=12, n=32, k=16, bias=1, relu=1),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_sketch_computes_it(name: str, backend: MLIRBackend, target: Target) -> None:
    workload = PRODUCTS[name]
    for candidate in candidates(workload, target, 2):
        check(backend, workload, candidate, target)


def test_on_two_threads(backend: MLIRBackend, target: Target) -> None:
    workload = PRODUCTS["gemm"]
    for candidate in candidates(workload, target, 1):
        check(backend, workload, candidate, target, threads=2)


@pytest.mark.parametrize("workload", [PRODUCTS["gemm"], PRODUCTS["batch"]])
def test_nothing_but_vectors_is_left(workload: Workload, target: Target) -> None:
    for candidate in candidates(workload, target, 1):
        text = str(scheduled(workload, candidate))
        assert "vector.fma" in text
        assert "linalg." not in text


def test_every_packed_operand_has_a_buffer(target: Target) -> None:
    workload = PRODUCTS["gemm"]
    for candidate in candidates(workload, target, 1):
        text = str(scheduled(workload, candidate))
        packed = [step for step in candidate.sketch.steps if type(step).__name__ == "Pack"]
        assert text.count("memref.alloc()") == len(packed), candidate.sketch.name
