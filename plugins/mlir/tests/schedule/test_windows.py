"""Convolutions, scheduled: what they compute, and where their results are while they do."""

from __future__ import annotations

from typing import Any

import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.schedule.windows import window_axes
from mlir_schedules import candidates, scheduled
from thinning import thinned

from autotune.ir.expressions import Binary, Constant, IndexValue, Load, Select, const, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, conv2d, depthwise_conv2d, gemm
from autotune.targets import Target
from autotune.testing.programs import check_candidate

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


def rows_first(stride: int) -> Workload:
    """A convolution whose innermost axis, of the lanes, is one of the window."""
    channels, size, out = 4, 18, (18 - 3) // stride + 1
    axes = [Axis("co", 16), Axis("ho", out), Axis("wo", out)]
    axes += [
        Axis(name, extent, "reduce") for name, extent in (("ci", channels), ("kh", 3), ("kw", 3))
    ]
    row, column = (var(f"{name}o") * stride + var(f"k{name}") for name in "hw")
    product = Binary(
        "mul",
        Load("X", (var("ci"), row, column)),
        Load("W", (var("co"), var("ci"), var("kh"), var("kw"))),
    )
    inputs = (
        Tensor("X", (channels, size, size), "float32"),
        Tensor("W", (16, channels, 3, 3), "float32"),
    )
    stage = Stage(Tensor("Y", (16, out, out), "float32"), tuple(axes), product, "add")
    return Workload("rows_first", inputs, (stage,), ("Y",), {})


def pooling(combiner: str) -> Workload:
    """Windows of three by three, at every second element, without weights."""
    axes = [Axis(name, extent) for name, extent in (("h", 4), ("w", 4), ("c", 32))]
    axes += [Axis("kh", 3, "reduce"), Axis("kw", 3, "reduce")]
    body = Load("X", (var("h") * 2 + var("kh"), var("w") * 2 + var("kw"), var("c")))
    stage = Stage(Tensor("Y", (4, 4, 32), "float32"), tuple(axes), body, combiner)
    return Workload("pooling", (Tensor("X", (9, 9, 32), "float32"),), (stage,), ("Y",), {})


def outputs_first() -> Workload:
    """A convolution whose weights have the axis of the lanes first."""
    axes = [Axis("ho", 6), Axis("wo", 6), Axis("co", 32)]
    axes += [Axis("kh", 3, "reduce"), Axis("kw", 3, "reduce"), Axis("ci", 8, "reduce")]
    product = Binary(
        "mul",
        Load("X", (var("ho") + var("kh"), var("wo") + var("kw"), var("ci"))),
        Load("W", (var("co"), var("kh"), var("kw"), var("ci"))),
    )
    inputs = (Tensor("X", (8, 8, 8), "float32"), Tensor("W", (32, 3, 3, 8), "float32"))
    stage = Stage(Tensor("Y", (6, 6, 32), "float32"), tuple(axes), product, "add")
    return Workload("outputs_first", inputs, (stage,), ("Y",), {})


CONVOLUTIONS |= {
    "outputs first": outputs_first(),
    "rows first": rows_first(1),
    "rows first stride": rows_first(2),
    "largest": pooling("max"),
    "sum": pooling("add"),
}


@pytest.mark.parametrize("name", thinned(CONVOLUTIONS, 3))
def test_every_sketch_computes_it(name: str, backend: MLIRBackend, target: Target) -> None:
    workload = CONVOLUTIONS[name]
    for candidate in candidates(workload, target, 1):
        check_candidate(backend, candidate, target)


def test_on_two_threads(backend: MLIRBackend, target: Target) -> None:
    workload = CONVOLUTIONS["padded"]
    for candidate in candidates(workload, target, 1):
        check_candidate(backend, candidate, target, threads=2)


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


def pointwise(name: str, shape: tuple[int, int], body: object, *inputs: Tensor) -> Workload:
    """One stage without a reduction, on the axes i and j."""
    axes = (Axis("i", shape[0]), Axis("j", shape[1]))
    stage = Stage(Tensor("Y", shape, "float32"), axes, body)
    return Workload(name, inputs, (stage,), ("Y",), {})


i, j = var("i"), var("j")
WIDE = Tensor("X", (8, 64), "float32")
NARROW = Tensor("Z", (8, 16), "float32")


@pytest.mark.parametrize(
    "workload",
    [
        pointwise("every second", (8, 32), Load("X", (i, j * 2)), WIDE),
        pointwise("backwards", (8, 64), Load("X", (i, const(63) - j)), WIDE),
        pointwise(
            "one after the other",
            (8, 80),
            Select(
                Binary("lt", IndexValue(j), IndexValue(const(64))),
                Load("X", (i, j)),
                Load("Z", (i, j - 64)),
            ),
            WIDE,
            NARROW,
        ),
        pointwise(
            "a margin in front of the lanes",
            (8, 32),
            Select(
                Binary("ge", IndexValue(j), IndexValue(const(16))),
                Load("Z", (i, j - 16)),
                Constant(0.0, "float32"),
            ),
            NARROW,
        ),
    ],
    ids=lambda workload: workload.name,
)
def test_what_is_no_vector(workload: Workload, backend: MLIRBackend, target: Target) -> None:
    for candidate in candidates(workload, target, 2):
        check_candidate(backend, candidate, target)


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
        module = scheduled(candidate)
        sums = [str(loop) for loop in innermost_loops(module) if "arith.addf" in str(loop)]
        assert sums, candidate.sketch.name
        for loop in sums:
            assert "iter_args" in loop
            assert "transfer_write" not in loop
            assert "linalg." not in loop
