"""Dot products of bytes and of bfloat16, and the instructions that TVM makes of them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from attrs import evolve
from tvm_programs import BACKEND, machine_code, need, one_of_each, samples

from autotune.backends import InvalidSchedule
from autotune.ir.workloads import (
    gemm,
)
from autotune.sketches import (
    Tensorize,
)
from autotune.targets import preset
from autotune.testing.programs import request_for, run_executable

TARGET = preset("cascadelake").with_cores(1)


PRODUCT = gemm(m=24, n=64, k=32, dtype="u8s8s32")
HALVES = gemm(m=24, n=64, k=32, dtype="bfloat16")
ZEN4 = preset("znver4").with_cores(1)


@pytest.mark.parametrize(("vector_bytes", "register"), [(64, "zmm"), (32, "ymm")])
def test_the_machine_code_has_the_instruction_for_halves(vector_bytes: int, register: str) -> None:
    target = evolve(ZEN4, vector_bytes=vector_bytes)
    for candidate in one_of_each(samples(HALVES, target)):
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
    candidate = samples(PRODUCT, made_for)[0]
    config = candidate.config
    tile = config["C.i.2"] * config["C.j.2"] * config["C.k.1"]
    text = machine_code(candidate, made_for)
    calls = re.findall(rf"vpdpbusd\s.*%{register}\d+", text)
    assert len(calls) >= tile > 0
    assert not re.search(r"vpmulld|vpmaddubsw", text)


def test_a_step_that_names_no_intrinsic_is_refused() -> None:
    candidate = samples(PRODUCT, TARGET)[0]
    steps = tuple(
        evolve(step, intrinsic="vta-1x16x16") if isinstance(step, Tensorize) else step
        for step in candidate.sketch.steps
    )
    wrong = evolve(candidate, sketch=evolve(candidate.sketch, steps=steps))
    with pytest.raises(InvalidSchedule, match="vta-1x16x16"):
        BACKEND.lower(request_for(wrong, TARGET))
