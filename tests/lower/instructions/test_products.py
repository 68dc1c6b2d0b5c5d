"""Sketches with instructions, printed for processors that have them and run on this one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve
from emulated_instructions import assembly, emulated
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import skip_here
from numpy.typing import NDArray
from tile_machine import TileMachine

from autotune.backends import InvalidSchedule
from autotune.backends.native import NativeBackend
from autotune.errors import UnsupportedTarget
from autotune.ir.workloads import Workload, batch_matmul, conv2d, gemm, random_inputs
from autotune.lower import LLVMEmitter, print_candidate
from autotune.sketches import Candidate, Interleave, Tensorize
from autotune.spaces import SketchSpace
from autotune.targets import Target, check_runs_here, preset
from autotune.testing.programs import check_candidate, check_executable, request_for

BACKEND = NativeBackend()

# What a processor has instructions for.
PRODUCTS = {
    "cascadelake-1core": ("int8", "u8s8s32"),
    "alderlake-1core": ("int8", "u8s8s32"),
    "haswell-1core": ("int8", "u8s8s32", "u8u8s32"),
    "skylake-avx512-1core": ("int8", "u8s8s32", "u8u8s32"),
    "sapphirerapids-1core": ("int8", "u8s8s32", "bfloat16"),
}

# Rows and depths that calls fill, and others.
ROWS = st.sampled_from((1, 7, 9, 14, 28, 32, 33))
COLUMNS = st.sampled_from((8, 16, 21, 32, 40))
DEPTH = st.sampled_from((6, 32, 64, 67, 128))
FLAG = st.integers(0, 1)


def of_bytes(build: Callable[..., Workload], *, dtype: str, **extents: int) -> Workload:
    """A product, also of two unsigned factors (``u8u8s32``)."""
    made = build(**extents, dtype=dtype.replace("u8u8", "u8s8"))
    if dtype != "u8u8s32":
        return made
    first, second, *others = made.inputs
    return evolve(made, inputs=(first, evolve(second, dtype="uint8"), *others))


def models(dtypes: tuple[str, ...]) -> st.SearchStrategy[Workload]:
    """Products, some of them of constants, which are packed before the first call."""
    dtype = st.sampled_from(dtypes)
    workloads = st.one_of(
        st.builds(of_bytes, st.just(gemm), m=ROWS, n=COLUMNS, k=DEPTH, dtype=dtype),
        st.builds(
            of_bytes, st.just(batch_matmul), b=st.just(2), m=ROWS, n=COLUMNS, k=DEPTH, dtype=dtype
        ),
        st.builds(
            of_bytes,
            st.just(conv2d),
            h=st.integers(3, 7),
            w=st.sampled_from((7, 14, 16)),
            ci=st.sampled_from((4, 32, 64)),
            co=COLUMNS,
            pad=FLAG,
            stride=st.integers(1, 2),
            bias=FLAG,
            relu=FLAG,
            dtype=dtype,
        ),
    )
    return st.builds(
        lambda workload, constant: (
            workload.with_constants(workload.inputs[1].name) if constant else workload
        ),
        workloads,
        FLAG,
    )


def candidates_of(workload: Workload, target: Target, seed: int = 0) -> list[Candidate]:
    """A candidate of each sketch, whatever this machine is."""
    space = SketchSpace(workload, target, BACKEND.limits(target))
    found = space.sample(2 * len(space.sketches()), np.random.default_rng(seed))
    return list({it.sketch.digest: it for it in found}.values())


def calls_of(candidate: Candidate) -> list[str]:
    """Names of the instructions that its steps call."""
    return [step.intrinsic for step in candidate.sketch.steps if isinstance(step, Tensorize)]


def printed(candidate: Candidate, target: Target) -> str:
    """Its program as LLVM IR."""
    return str(print_candidate(candidate, LLVMEmitter(), target.vector_bytes // 4).text)


def check(candidate: Candidate, target: Target, threads: int = 1) -> TileMachine:
    """Check what a candidate computes between guarded pages; returns what its tiles did."""
    machine = TileMachine()
    machine.functions["syscall"](0, 0, 0)
    made = emulated(candidate, target, machine, threads)
    check_executable(made, candidate.sketch.workload, about=str(candidate.config))
    assert machine.faults == []
    assert machine.counts["ldtilecfg"] == machine.counts["tilerelease"]
    return machine


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_sketch_computes_what_the_reference_does(name: str) -> None:
    target, called = preset(name), set()

    @settings(max_examples=max(2, settings().max_examples // 12))
    @given(models(PRODUCTS[name]), st.integers(1, 2), st.integers(0, 2**16))
    def run(workload: Workload, threads: int, seed: int) -> None:
        for candidate in candidates_of(workload, target, seed):
            check(candidate, target, threads)
            called.update(calls_of(candidate))

    run()
    assert called


def extremes(workload: Workload) -> dict[str, NDArray[np.generic]]:
    """Bytes whose products are the largest, of both signs, among random ones."""
    inputs = random_inputs(workload, np.random.default_rng(1))
    for array in inputs.values():
        bounds = np.iinfo(array.dtype)
        array[: len(array) // 2] = bounds.max
        array[len(array) // 2] = bounds.min
    return inputs


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(("cascadelake-1core", it) for it in ("int8", "u8s8s32")),
        *(("haswell-1core", it) for it in ("int8", "u8s8s32", "u8u8s32")),
    ],
)
def test_sums_are_exact_for_all_bytes(name: str, dtype: str) -> None:
    target, workload = preset(name), of_bytes(gemm, m=16, n=20, k=52, dtype=dtype)
    inputs, machine = extremes(workload), TileMachine()
    for candidate in candidates_of(workload, target):
        check_executable(emulated(candidate, target, machine), workload, inputs)


@pytest.mark.parametrize("name", PRODUCTS)
def test_instructions_of_this_processor_do_what_is_put_in_their_place(name: str) -> None:
    target = preset(name)
    try:
        check_runs_here(target, BACKEND.name)
    except UnsupportedTarget as error:
        skip_here(str(error))
    for dtype in PRODUCTS[name]:
        workload = of_bytes(gemm, m=32, n=64, k=128, dtype=dtype)
        for candidate in candidates_of(workload, target):
            check_candidate(BACKEND, candidate, target)


SINGLE = (
    ("cascadelake-1core", gemm(m=32, n=64, k=64, dtype="u8s8s32"), "vpdpbusd"),
    ("alderlake-1core", gemm(m=32, n=64, k=64, dtype="u8s8s32"), "vpdpbusd"),
    ("sapphirerapids-1core", gemm(m=40, n=64, k=64, dtype="bfloat16"), "vdpbf16ps"),
    ("haswell-1core", gemm(m=32, n=64, k=64, dtype="u8s8s32"), "vpmaddwd"),
    ("skylake-avx512-1core", gemm(m=32, n=64, k=64, dtype="int8"), "vpmaddwd"),
)


@pytest.mark.parametrize(("machine", "workload", "instruction"), SINGLE)
def test_a_vector_of_sums_is_one_instruction_in_each_step(
    machine: str, workload: Workload, instruction: str
) -> None:
    target = preset(machine)
    for candidate in candidates_of(workload, target):
        step = math.prod(n for it, n in candidate.config.items() if it in ("C.i.2", "C.j.2"))
        text = printed(candidate, target)
        calls = len(re.findall(rf"= call .*{instruction[1:]}", text.replace(".", "")))
        assert calls >= step and calls % step == 0
        assert len(re.findall(rf"\b{instruction}\b", assembly(text, target))) >= step


def test_groups_are_broadcast_from_memory() -> None:
    """Not from registers, by the unit that moves lanes, after their signs are changed."""
    target, workload = preset("cascadelake-1core"), gemm(m=32, n=64, k=64, dtype="int8")
    for candidate in candidates_of(workload, target):
        found = assembly(printed(candidate, target), target)
        assert re.search(r"vpbroadcastd\s[^%]*\(%", found)
        assert not re.search(r"vpbroadcastd\s+%[xyze]\w+, %zmm", found)


@pytest.mark.parametrize(
    ("dtype", "product", "depth"),
    [("u8s8s32", "tdpbusd", 64), ("int8", "tdpbssd", 64), ("bfloat16", "tdpbf16ps", 32)],
)
def test_sums_stay_in_tile_registers_over_a_whole_reduction(
    dtype: str, product: str, depth: int
) -> None:
    target, workload = preset("sapphirerapids-1core"), gemm(m=32, n=32, k=8 * depth, dtype=dtype)
    loops = 0
    for candidate in candidates_of(workload, target):
        config, machine = candidate.config, check(candidate, target)
        if config["C.i.2"] == config["C.j.2"] == 1:
            assert machine.counts[product] == 8 * machine.counts["tilestored64"] > 0
            loops += config["C.k.0"] * config["C.k.1"] > 1
    assert loops


def test_operands_that_lie_otherwise_are_refused() -> None:
    """The instruction would read other elements, and nothing would fail."""
    target, workload = preset("cascadelake-1core"), gemm(m=32, n=64, k=64, dtype="u8s8s32")
    candidate = candidates_of(workload, target)[0]
    steps = tuple(it for it in candidate.sketch.steps if not isinstance(it, Interleave))
    wrong = evolve(candidate, sketch=evolve(candidate.sketch, steps=steps))
    with pytest.raises(InvalidSchedule, match="'B.pack' has elements .* apart along 'k'"):
        BACKEND.lower(request_for(wrong, target))


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        (gemm(m=64, n=64, k=512, dtype="u8s8s32"), "amx-32x32x256"),
        (gemm(m=64, n=64, k=384, dtype="int8"), "amx-32x32x128-signed"),
        (gemm(m=64, n=21, k=192, dtype="u8s8s32"), "amx-32x32x64"),
        (gemm(m=125, n=64, k=64, dtype="u8s8s32"), "amx-32x32x64"),
        (gemm(m=56, n=64, k=64, dtype="int8"), "amx-28x32x64-signed"),
        (conv2d(h=28, w=28, ci=128, co=32, pad=1, dtype="u8s8s32"), "amx-28x32x128"),
        (conv2d(h=14, w=14, ci=256, co=32, kh=1, kw=1, dtype="u8s8s32"), "amx-14x32x256"),
        (conv2d(h=28, w=28, ci=64, co=32, pad=1, stride=2, dtype="u8s8s32"), "amx-14x32x64"),
        (conv2d(h=7, w=7, ci=64, co=32, pad=1, dtype="int8"), "amx-7x32x64-signed"),
        (gemm(m=48, n=64, k=64, dtype="u8s8s32"), "amx-16x32x64"),
        (gemm(m=64, n=64, k=256, dtype="bfloat16"), "amx-32x32x128-bf16"),
        (gemm(m=28, n=21, k=96, dtype="bfloat16"), "amx-28x32x32-bf16"),
        (gemm(m=40, n=64, k=64, dtype="u8s8s32"), "vnni-16x4"),
        (gemm(m=40, n=64, k=64, dtype="bfloat16"), "bf16-16x2"),
        (gemm(m=64, n=64, k=96, dtype="int8"), "vnni-16x4-signed"),
        (of_bytes(gemm, m=64, n=64, k=96, dtype="u8u8s32"), "madd-16x4-unsigned"),
    ],
    ids=str,
)
def test_the_longest_call_that_fits(workload: Workload, name: str) -> None:
    candidates = candidates_of(workload, preset("sapphirerapids-1core"))
    assert {call for candidate in candidates for call in calls_of(candidate)} == {name}
