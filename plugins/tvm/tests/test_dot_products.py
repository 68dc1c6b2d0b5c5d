"""Dot products: int8, exact for all bytes, and bfloat16; and nothing else than planned."""

from __future__ import annotations

import re

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from thinning import thinned
from tvm_programs import BACKEND, check_exact, machine_code, need, one_of_each, samples

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import Binary, Cast, Load, const, var
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    batch_matmul,
    conv1d,
    conv2d,
    conv3d,
    dense,
    gemm,
)
from autotune.sketches import (
    Accumulate,
    Candidate,
    Order,
    Sketch,
    Tensorize,
    Tile,
    Vectorize,
)
from autotune.targets import preset
from autotune.testing.programs import check_candidate, request_for, run_executable

TARGET = preset("cascadelake").with_cores(1)


def weights_in_rows(m: int, n: int, k: int) -> Workload:
    """A product whose right factor is transposed: neighbours along the reduction lie together."""
    axes = (Axis("i", m), Axis("j", n), Axis("k", k, "reduce"))
    left = Cast("int32", Load("X", (var("i"), var("k"))))
    right = Cast("int32", Load("W", (var("j"), var("k"))))
    inputs = (Tensor("X", (m, k), "uint8"), Tensor("W", (n, k), "int8"))
    stage = Stage(Tensor("Y", (m, n), "int32"), axes, Binary("mul", left, right), "add")
    return Workload("rows", inputs, (stage,), ("Y",))


WORKLOADS = (
    gemm(m=24, n=64, k=32, dtype="u8s8s32"),
    gemm(m=37, n=53, k=29, dtype="u8s8s32"),
    gemm(m=13, n=48, k=20, dtype="int8"),
    gemm(m=1, n=7, k=4, dtype="u8s8s32"),
    weights_in_rows(9, 32, 24),
    batch_matmul(b=3, m=17, n=40, k=24, dtype="u8s8s32"),
    conv2d(h=14, w=14, ci=16, co=32, pad=1, dtype="u8s8s32"),
    conv2d(h=13, w=11, ci=3, co=17, pad=1, stride=2, bias=1, relu=1, dtype="u8s8s32"),
    gemm(m=10, n=32, k=24, requantize=9, dtype="u8s8s32"),
    conv1d(w=20, ci=8, co=24, pad=1, stride=2, dtype="u8s8s32"),
    conv3d(d=3, h=4, w=5, ci=4, co=16, pad=1, kd=2, dtype="u8s8s32"),
    conv2d(h=9, w=9, ci=8, co=16, kh=3, kw=2, dilation=2, stride=3, dtype="int8"),
)

HALVES = (
    gemm(m=24, n=64, k=32, dtype="bfloat16"),
    gemm(m=37, n=53, k=29, dtype="bfloat16"),
    gemm(m=1, n=7, k=2, dtype="bfloat16"),
    batch_matmul(b=3, m=17, n=40, k=24, dtype="bfloat16"),
    dense(m=9, n=32, k=31, dtype="bfloat16"),
    conv2d(h=13, w=11, ci=3, co=17, pad=1, stride=2, bias=1, relu=1, dtype="bfloat16"),
)
ZEN4 = preset("znver4").with_cores(1)


@pytest.mark.parametrize("workload", thinned(WORKLOADS, 3))
def test_exact_for_all_bytes(workload: Workload) -> None:
    need(TARGET)
    check_exact(samples(workload, TARGET), TARGET)


@pytest.mark.parametrize("workload", thinned(HALVES, 3))
def test_halves_are_summed_in_float32(workload: Workload) -> None:
    need(ZEN4)
    for candidate in one_of_each(samples(workload, ZEN4)):
        check_candidate(BACKEND, candidate, ZEN4, threads=1)


@settings(max_examples=3, deadline=None)
@given(st.sampled_from([1, 5, 16]), st.sampled_from([1, 13, 32, 37]), st.sampled_from([1, 2, 7]))
def test_halves_of_any_extents(m: int, n: int, k: int) -> None:
    need(ZEN4)
    for candidate in samples(gemm(m=m, n=n, k=k, dtype="bfloat16"), ZEN4)[:2]:
        check_candidate(BACKEND, candidate, ZEN4, threads=1)


@pytest.mark.parametrize(("vector_bytes", "register"), [(64, "zmm"), (32, "ymm")])
def test_the_machine_code_has_the_instruction_for_halves(vector_bytes: int, register: str) -> None:
    target = evolve(ZEN4, vector_bytes=vector_bytes)
    for candidate in one_of_each(samples(HALVES[0], target)):
        config = candidate.config
        tile = config["C.i.2"] * config["C.j.2"] * config["C.k.1"]
        text = machine_code(candidate, target)
        assert len(re.findall(rf"vdpbf16ps\s.*%{register}\d+", text)) >= tile > 0
        # No factor is widened, and the function that makes the call is inlined.
        assert not re.search(r"vfmadd|call.*autotune|^autotune", text)


def test_special_numbers_of_halves() -> None:
    """Infinities and NaN come through; denormals are zeros to the instruction."""
    need(ZEN4)
    workload = gemm(m=4, n=16, k=2, dtype="bfloat16")
    a = np.zeros((4, 2), np.uint16)
    a[:, 0] = (0x7F80, 0x7FC0, 0x0001, 0x3F80)
    b = np.full((2, 16), 0x3F80, np.uint16)
    for candidate in samples(workload, ZEN4):
        executable = BACKEND.build(request_for(candidate, ZEN4))
        (result,) = run_executable(executable, workload, {"A": a, "B": b})
        assert result[0].tolist() == [0x7F80] * 16 and result[3].tolist() == [0x3F80] * 16
        assert (result[1] & 0x7FFF > 0x7F80).all()
        assert result[2].tolist() == [0] * 16


@pytest.mark.parametrize(
    ("target", "register"),
    [("cascadelake", "zmm"), ("icelake-server", "zmm"), ("alderlake", "ymm")],
)
def test_the_machine_code_has_the_instruction(target: str, register: str) -> None:
    made_for = preset(target).with_cores(1)
    candidate = samples(WORKLOADS[0], made_for)[0]
    config = candidate.config
    tile = config["C.i.2"] * config["C.j.2"] * config["C.k.1"]
    text = machine_code(candidate, made_for)
    calls = re.findall(rf"vpdpbusd\s.*%{register}\d+", text)
    assert len(calls) >= tile > 0
    assert not re.search(r"vpmulld|vpmaddubsw", text)


def hand_made(steps: tuple[object, ...], workload: Workload) -> Candidate:
    return Candidate(Sketch("by hand", workload, (), (), steps), ())  # type: ignore[arg-type]


def unpacked(k: int) -> tuple[object, ...]:
    """Steps that call the instruction on a right factor where it lies."""
    return (
        Tile("Y", "j", (const(1), const(16))),
        Tile("Y", "k", (const(k // 4), const(4))),
        Order("Y", ("i.0", "j.0", "k.0", "k.1", "j.1")),
        Accumulate("Y", "i.0", (const(1), const(16))),
        Tensorize("Y", ("k.1", "j.1"), "vnni-16x4"),
    )


@pytest.mark.parametrize("k", [8, 12])
def test_factors_that_do_not_lie_together_are_refused(k: int) -> None:
    """The mistake of calling the instruction on a matrix that is not packed: wrong weights."""
    candidate = hand_made(unpacked(k), weights_in_rows(2, 16, k))
    with pytest.raises(InvalidSchedule, match=f"'W' has elements {k} apart along 'j'"):
        BACKEND.lower(request_for(candidate, TARGET))


def test_a_step_that_names_no_intrinsic_is_refused() -> None:
    candidate = samples(WORKLOADS[0], TARGET)[0]
    steps = tuple(
        evolve(step, intrinsic="vta-1x16x16") if isinstance(step, Tensorize) else step
        for step in candidate.sketch.steps
    )
    wrong = evolve(candidate, sketch=evolve(candidate.sketch, steps=steps))
    with pytest.raises(InvalidSchedule, match="vta-1x16x16"):
        BACKEND.lower(request_for(wrong, TARGET))


def test_the_ordinary_sketches_have_other_vectors() -> None:
    plain = samples(gemm(m=24, n=64, k=32), TARGET)[0]
    assert any(isinstance(step, Vectorize) for step in plain.sketch.steps)
    assert "vpdpbusd" not in machine_code(plain, TARGET)
