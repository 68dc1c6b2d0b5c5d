"""Printed programs compute what the reference does, and are what was meant to be printed."""

from __future__ import annotations

import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.compiler import lower_printed
from printed_workloads import ParallelSuite, PrintedSuite, drawn

from autotune.backends import BuildRequest
from autotune.ir.workloads import gemm
from autotune.sketches import Candidate, Tensorize
from autotune.targets import Target, preset
from autotune.testing.programs import request_for, sample_candidates

BACKEND = MLIRBackend()
PRODUCT = gemm(m=24, n=64, k=64)

needs_openmp = pytest.mark.needs("openmp")


class TestPrinted(PrintedSuite):
    @pytest.fixture
    def backend(self) -> MLIRBackend:
        return BACKEND


@needs_openmp
class TestParallel(ParallelSuite):
    """Loops of which some iterations do more than others are shared in turns."""

    threads = (2, 3)

    @pytest.fixture
    def backend(self) -> MLIRBackend:
        return BACKEND


def printed_text(candidate: Candidate, threads: int = 1) -> str:
    request = request_for(candidate, preset("haswell-2core"), threads)
    return BACKEND.show(request)


def test_threads_are_in_the_text_where_a_loop_is_parallel() -> None:
    for candidate in drawn(BACKEND, PRODUCT, preset("haswell-2core"), 3):
        one, two = (printed_text(candidate, threads) for threads in (1, 2))
        assert ("omp.parallel" in two) == (one != two)
        assert "omp." not in one


def test_what_packs_constants_is_an_entry(target: Target) -> None:
    constant = PRODUCT.with_constants(PRODUCT.inputs[-1].name)
    drawn = sample_candidates(BACKEND, constant, target)
    programs = [BACKEND.lower(request_for(it, target)).program for it in drawn]
    packing = [it for it in programs if it.packed]
    assert packing
    assert all([entry for entry, _, _ in it.packed] == ["pack0"] for it in packing)
    assert all("llvm.func @pack0(%arrays" in it.text for it in packing)


@pytest.mark.parametrize("dtype", ["u8s8s32", "bfloat16"])
def test_instructions_are_calls_of_intrinsics(dtype: str) -> None:
    """Programs are brought into LLVM's dialect on any machine."""
    machine, workload = preset("sapphirerapids-2core"), gemm(m=32, n=64, k=64, dtype=dtype)
    candidates = [
        candidate
        for candidate in sample_candidates(BACKEND, workload, machine)
        if any(isinstance(step, Tensorize) for step in candidate.sketch.core_steps)
    ]
    for candidate in candidates:
        text = BACKEND.show(request_for(candidate, machine))
        assert "llvm.call_intrinsic" in text
        lower_printed(text, threads=1, entries=["run"])
    assert candidates


def test_the_untuned_program_is_not_printed(target: Target) -> None:
    request = BuildRequest(PRODUCT, None, None, target, 1)
    assert "linalg.generic" in BACKEND.show(request)
