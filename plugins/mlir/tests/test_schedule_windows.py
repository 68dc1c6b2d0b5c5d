"""Convolutions, scheduled: what they compute, and where their results are while they do."""

from __future__ import annotations

from typing import Any

import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.schedule.windows import window_axes
from mlir_schedules import candidates, check, scheduled

from autotune.targets import Target
from autotune.workloads import Workload, conv2d, depthwise_conv2d, gemm

CONVOLUTIONS = {
    "plain": conv2d(h=10, w=10, ci=4, co=32),
    "stride": conv2d(h=9, w=9, ci=4, co=32, stride=2),
    "dilation": conv2d(h=10, w=10, ci=4, co=32, dilation=2),
    "padded": conv2d(h=8, w=8, ci=16, co=32, pad=1),
    "padded stride": conv2d(h=8, w=8, ci=16, co=32, pad=1, stride=2),
    "wide margin": conv2d(h=4, w=4, ci=16, co=16, pad=3),
    "epilogue": conv2d(h=8, w=8, ci=16, co=32, pad=1, bias=1, relu=1),
    "pointwise": conv2d(h=6, w=6, ci=16, co=32, kh=1, kw=1),
    "depthwise": depthwise_conv2d(h=8, w=8, c=32),
    "depthwise stride": depthwise_conv2d(h=8, w=8, c=32, pad=1, stride=2),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_every_sketch_computes_it(name: str, backend: MLIRBackend, target: Target) -> None:
    workload = CONVOLUTIONS[name]
    for candidate in candidates(workload, target, 2):
        check(backend, workload, candidate, target)


def test_on_two_threads(backend: MLIRBackend, target: Target) -> None:
    workload = CONVOLUTIONS["padded"]
    for candidate in candidates(workload, target, 1):
        check(backend, workload, candidate, target, threads=2)


@pytest.mark.parametrize(
    ("workload", "axes"),
    [
        (gemm(m=4, n=4, k=4), ()),
        (conv2d(h=8, w=8, ci=4, co=4), ("ho", "wo")),
        (conv2d(h=8, w=8, ci=4, co=4, kh=1, kw=3, stride=1), ("ho", "wo")),
    ],
)
def test_axes_of_windows(workload: Workload, axes: tuple[str, ...]) -> None:
    assert window_axes(workload.stages[-1]) == axes


def innermost_loops(module: Any) -> list[Any]:
    """Loops over a reduction that have no other loop inside."""
    found: list[Any] = []

    def visit(operation: Any) -> bool:
        """Whether there is a loop in it; ends of the recursion are noted."""
        inside = False
        for region in operation.regions:
            for block in region:
                for inner in block:
                    inside |= visit(inner.operation)
        if operation.name == "scf.for" and not inside:
            found.append(operation)
        return inside or operation.name == "scf.for"

    visit(module.operation)
    return found


@pytest.mark.parametrize("name", ["plain", "stride", "dilation", "padded", "depthwise stride"])
def test_results_stay_in_registers(name: str, target: Target) -> None:
    workload = CONVOLUTIONS[name]
    for candidate in candidates(workload, target, 1):
        module = scheduled(workload, candidate)
        sums = [str(loop) for loop in innermost_loops(module) if "arith.addf" in str(loop)]
        assert sums, candidate.sketch.name
        for loop in sums:
            assert "iter_args" in loop
            assert "transfer_write" not in loop
            assert "linalg." not in loop
