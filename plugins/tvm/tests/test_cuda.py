"""GPU schedules: what their steps become, and CUDA source that nvcc compiles without a device.

Nothing here runs on a device. That the schedules compute the right numbers is shown by the
interpreter of the same nest; that TVM's loops are those of the nest, by ``test_lowered.py``.
"""

from __future__ import annotations

import re

import kernel_programs
import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from autotune_tvm.nvcc import KernelResources, find_nvcc, kernel_resources, read_report
from autotune_tvm.replay import schedule
from tvm_lowered import LoweredNest, lowered_nest

from autotune.backends import (
    BuildFailed,
    BuildRequest,
    InvalidSchedule,
)
from autotune.ir.expressions import (
    Binary,
    Constant,
    IntExpr,
    Load,
    ScalarExpr,
    Unary,
    const,
    var,
)
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    conv2d,
    gemm,
    softmax,
)
from autotune.sketches import (
    Accumulate,
    Bind,
    Candidate,
    CooperativeFetch,
    Order,
    SharedLayout,
    Sketch,
    Step,
    Tile,
    UnrollLimit,
)
from autotune.spaces import SketchSpace
from autotune.targets import preset


def numbers(*values: int) -> tuple[IntExpr, ...]:
    return tuple(map(const, values))


def tiled(
    stage: str, spatial: dict[str, tuple[int, ...]], reduce: dict[str, tuple[int, ...]]
) -> tuple[Step, ...]:
    """Block, virtual thread, thread and two serial levels around reductions split in three."""

    def names(axes: dict[str, tuple[int, ...]], level: int) -> tuple[str, ...]:
        return tuple(f"{axis}.{level}" for axis in axes)

    order = (
        *(name for level in range(3) for name in names(spatial, level)),
        *names(reduce, 0),
        *names(reduce, 1),
        *names(spatial, 3),
        *names(reduce, 2),
        *names(spatial, 4),
    )
    return (
        *(Tile(stage, axis, numbers(*sizes)) for axis, sizes in {**spatial, **reduce}.items()),
        Order(stage, order),
        *(
            Bind(stage, names(spatial, level), role)
            for level, role in enumerate(("block", "vthread", "thread"))
        ),
    )


PRODUCT = gemm(m=128, n=128, k=64)
TILES = tiled("C", {"i": (4, 2, 8, 1, 2), "j": (2, 1, 16, 2, 2)}, {"k": (8, 4, 2)})
STAGED = (
    *TILES,
    CooperativeFetch("C", "A", "k.0", const(128), const(4)),
    CooperativeFetch("C", "B", "k.0", const(128), const(2)),
    Accumulate("C", "j.2", numbers(2, 2)),
    UnrollLimit("C", const(64)),
)


def candidate_of(workload: Workload, *steps: Step) -> Candidate:
    return Candidate(Sketch("made", workload, (), (), steps), ())


def lowered(workload: Workload, *steps: Step) -> LoweredNest:
    candidate = candidate_of(workload, *steps)
    return lowered_nest(schedule(module_for(workload), candidate, workload).mod)


def source_of(workload: Workload, *steps: Step) -> str:
    return kernel_programs.source_of(candidate_of(workload, *steps), preset("a100"))


DOCTORED: dict[str, tuple[tuple[Step, ...], str]] = {
    "threads of a reduction that are virtual": ((Bind("C", ("k.0",), "vthread"),), "Bind"),
    "loops that are apart": ((Bind("C", ("i.0", "k.0"), "block"),), "Bind"),
    "a role that does not exist": ((Bind("C", ("i.0",), "warp"),), "Bind"),
    "an operand that is not read": (
        (*TILES, CooperativeFetch("C", "Q", "k.0", const(128), const(1))),
        "CooperativeFetch",
    ),
    "a fetch at an unknown loop": (
        (*TILES, CooperativeFetch("C", "A", "k.9", const(128), const(1))),
        "CooperativeFetch",
    ),
    "more threads than the kernel has": (
        (*TILES, CooperativeFetch("C", "A", "k.0", const(64), const(1))),
        "threadIdx.x of 128 and of 64",
    ),
    "a layout of what is not fetched": (
        (*TILES, SharedLayout("C", "A", (1, 0), const(0))),
        "SharedLayout.*no step fetches A",
    ),
    "a layout that repeats a dimension": (
        (*STAGED, SharedLayout("C", "A", (0, 0), const(0))),
        "SharedLayout.*no order of 2 dimensions",
    ),
    "a layout with less than no padding": (
        (*STAGED, SharedLayout("C", "A", (0, 1), const(-1))),
        "SharedLayout.*cannot be padded by -1",
    ),
    "threads of nothing": (
        (*TILES, CooperativeFetch("C", "A", "k.0", const(0), const(1))),
        "CooperativeFetch",
    ),
}


@pytest.mark.parametrize("name", DOCTORED)
def test_a_step_that_cannot_be_applied_is_named(name: str) -> None:
    steps, step = DOCTORED[name]
    with pytest.raises(InvalidSchedule, match=step):
        lowered(PRODUCT, *steps)


def test_what_has_no_kernel_is_a_failed_build() -> None:
    with pytest.raises(BuildFailed, match="0 CUDA modules"):
        source_of(PRODUCT)


def test_no_stage_is_left_on_the_host() -> None:
    workload = softmax(m=4, n=8)
    bound = [Bind(stage, ("i.0",), "thread") for stage in ("M", "E", "S")]
    with pytest.raises(InvalidSchedule, match="no loop around Y is bound"):
        lowered(workload, *bound)
    assert len(lowered(workload, *bound, Bind("Y", ("i.0",), "block")).kernels) == 4


@pytest.mark.slow
@pytest.mark.needs("nvcc")
def test_what_nvcc_rejects_is_a_failed_build() -> None:
    with pytest.raises(BuildFailed, match="nvcc for sm_12"):
        kernel_resources("", "sm_12")
    with pytest.raises(BuildFailed, match="kernels.cu"):
        kernel_resources("__global__ void broken( {}", "sm_80")


def test_without_nvcc_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert find_nvcc() is None
    with pytest.raises(BuildFailed, match="nvcc is not on the PATH"):
        kernel_resources("", "sm_80")


def test_reading_the_report_of_the_assembler() -> None:
    report = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'second' for 'sm_80'
ptxas info    : Function properties for second
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size
ptxas info    : Compiling entry function 'first' for 'sm_80'
ptxas info    : Function properties for first
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 39 registers, used 1 barriers, 5760 bytes smem, 384 bytes cmem[0]
"""
    assert read_report(report) == (
        KernelResources("first", 39, 5760, 0, 0, 0),
        KernelResources("second", 255, 0, 16, 12, 20),
    )
    assert read_report("") == ()
    with pytest.raises(BuildFailed, match="report on first is not understood"):
        read_report("Compiling entry function 'first' for 'sm_80'")


def test_padded_bytes_are_fetched_in_vectors_that_cuda_has() -> None:
    workload = conv2d(h=14, w=14, ci=16, co=32, pad=1, dtype="u8s8s32")
    target = preset("h100")
    space = SketchSpace(workload, target, TVMBackend().limits(target))
    padded = {
        param.name: param.values
        for sketch in space.sketches()
        for param in sketch.params
        if param.name.endswith(".P.lanes")
    }
    assert padded
    assert all(max(domain) == 4 for domain in padded.values())
    # Without a condition, a vector may be as wide as an access.
    plain = gemm(m=64, n=64, k=64, dtype="u8s8s32")
    widest = [
        max(param.values)
        for sketch in SketchSpace(plain, target, TVMBackend().limits(target)).sketches()
        for param in sketch.params
        if param.name.endswith(".B.lanes")
    ]
    assert max(widest) == 16


@pytest.mark.slow
@pytest.mark.needs("nvcc")
def test_padded_bytes_compile() -> None:
    workload = conv2d(h=14, w=14, ci=16, co=32, pad=1, dtype="u8s8s32")
    target = preset("h100")
    space = SketchSpace(workload, target, TVMBackend().limits(target))
    rows = [
        row
        for row in space.sample(60, np.random.default_rng(0))
        if any(name.endswith(".P.lanes") and value == 4 for name, value in row.config.items())
    ]
    for row in rows[:3]:
        assert kernel_resources(kernel_programs.source_of(row, target), "sm_90")
    assert len(rows) >= 3


def of_halves(dtype: str, body: ScalarExpr) -> Workload:
    """A function of each element."""
    tensors = [Tensor(name, (64,), dtype) for name in "XY"]
    stage = Stage(tensors[1], (Axis("i", 64),), body)
    return Workload("function", tuple(tensors[:1]), (stage,), ("Y",))


def sources_of_halves(dtype: str) -> list[str]:
    element = Load("X", (var("i"),))
    bodies = [Binary("max", element, Constant(value, dtype)) for value in (-np.inf, np.nan)]
    return [
        TVMBackend().cuda_source(
            BuildRequest(of_halves(dtype, body), None, None, preset("h100"), 1)
        )
        for body in (*bodies, Unary("round", element))
    ]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_functions_and_numbers_of_halves_have_names_that_cuda_knows(dtype: str) -> None:
    """TVM writes ``inff``, ``nanf`` and ``hnearbyint``."""
    for source in sources_of_halves(dtype):
        assert not re.search(r"\b(inff|nanf|hnearbyint)\b", source)


@pytest.mark.slow
@pytest.mark.needs("nvcc")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_functions_and_numbers_of_halves_compile(dtype: str) -> None:
    for source in sources_of_halves(dtype):
        assert kernel_resources(source, "sm_90a")
