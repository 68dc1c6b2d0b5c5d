"""Matrix multiplications, scheduled: what they compute, and of which operations they are made."""

from __future__ import annotations

import pytest
from autotune_mlir.backend import MLIRBackend
from mlir_schedules import candidates, check, scheduled

from autotune.expressions import Binary, Constant, Load, var
from autotune.targets import Target
from autotune.workloads import Axis, Stage, Tensor, Workload, batch_matmul, dense, gemm

PRODUCTS = {
    "gemm": gemm(m=24, n=64, k=12),
    "odd": gemm(m=21, n=48, k=7),
    "double": gemm(m=8, n=32, k=6, dtype="float64"),
    "batch": batch_matmul(b=3, m=8, n=32, k=6),
    "dense": dense(m=12, n=32, k=16),
    "no epilogue": dense(m=12, n=32, k=16, bias=0, relu=0),
    "integers": gemm(m=16, n=32, k=8, dtype="int8"),
}


def behind_relu() -> Workload:
    """A product of what is computed from one of its operands, at once in the copy of it."""
    zero = Constant(0.0, "float32")
    axes = (Axis("a", 16), Axis("b", 12))
    relu = Stage(
        Tensor("R", (16, 12), "float32"),
        axes,
        Binary("max", Load("A", (var("a"), var("b"))), zero),
    )
    body = Binary("mul", Load("R", (var("i"), var("k"))), Load("B", (var("k"), var("j"))))
    product = Stage(
        Tensor("C", (16, 32), "float32"),
        (Axis("i", 16), Axis("j", 32), Axis("k", 12, "reduce")),
        body,
        "add",
    )
    inputs = (Tensor("A", (16, 12), "float32"), Tensor("B", (12, 32), "float32"))
    return Workload("behind_relu", inputs, (relu, product), ("C",), {})


PRODUCTS["behind relu"] = behind_relu()


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


def test_lanes_are_next_to_each_other_in_a_copy(target: Target) -> None:
    """Where they are not in the operand: rows of weights are copied as columns."""
    workload = PRODUCTS["no epilogue"]
    for candidate in candidates(workload, target, 2):
        if any(type(step).__name__ == "Pack" for step in candidate.sketch.steps):
            text = str(scheduled(workload, candidate))
            assert text.count("linalg.transpose") == 1
