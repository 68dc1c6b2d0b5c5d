"""Sums of signed bytes start with their corrections, and calls subtract nothing."""

from __future__ import annotations

import re

import numpy as np
import pytest
from attrs import evolve
from autotune_tvm.dot_products import CORRECTED
from autotune_tvm.emit import module_for
from autotune_tvm.packing import split_packing
from autotune_tvm.passes.hoist_corrections import hoist_corrections
from autotune_tvm.replay import schedule
from autotune_tvm.scheduled import scheduled_module
from hypothesis import given, settings
from hypothesis import strategies as st
from thinning import thinned
from tvm_programs import (
    BACKEND,
    check_exact,
    machine_code,
    need,
    one_of_each,
    samples,
    scheduled_text,
)

from autotune.ir.workloads import Workload, batch_matmul, conv1d, conv2d, gemm
from autotune.sketches import Candidate, Pack, prepacked_operands
from autotune.targets import preset
from autotune.testing.programs import check_candidate, request_for

TARGET = preset("cascadelake").with_cores(1)
WORKLOADS = (
    gemm(m=37, n=53, k=29, dtype="int8"),
    # One vector of columns: corrections do not depend on any loop.
    gemm(m=9, n=7, k=4, dtype="int8"),
    gemm(m=10, n=32, k=24, requantize=9, dtype="int8"),
    batch_matmul(b=3, m=17, n=40, k=24, dtype="int8"),
    conv1d(w=20, ci=8, co=24, pad=1, stride=2, dtype="int8"),
    conv2d(h=13, w=11, ci=3, co=17, pad=1, stride=2, bias=1, relu=1, dtype="int8"),
    conv2d(h=9, w=9, ci=8, co=16, kh=3, kw=2, dilation=2, stride=2, dtype="int8"),
)


def is_hoisted(candidate: Candidate) -> bool:
    text = scheduled_text(candidate, TARGET)
    return CORRECTED not in text and "_corrections[" in text


@pytest.mark.parametrize("workload", thinned(WORKLOADS, 3))
def test_exact_for_all_bytes(workload: Workload) -> None:
    need(TARGET)
    candidates = one_of_each(samples(workload, TARGET))
    assert len(candidates) > 1
    # Copies inside of loops may be for a few rows.
    whole = [it for it in candidates if it.sketch.name.startswith("packed-root")]
    assert whole and all(map(is_hoisted, whole))
    check_exact(candidates, TARGET)


@settings(max_examples=3, deadline=None)
@given(st.integers(1, 40), st.integers(1, 70), st.integers(1, 40), st.integers(0, 3))
def test_exact_for_any_extents(m: int, n: int, k: int, which: int) -> None:
    need(TARGET)
    candidates = one_of_each(samples(gemm(m=m, n=n, k=k, dtype="int8"), TARGET))
    candidate = candidates[which % len(candidates)]
    if candidate.sketch.name.startswith("packed-root"):
        assert is_hoisted(candidate) == (m >= 8)
    check_exact([candidate], TARGET)


def test_sums_wrap_around_on_their_way() -> None:
    """Unsigned by signed bytes, the sums leave the range of int32; corrected, they are in it."""
    need(TARGET)
    workload = gemm(m=8, n=16, k=70000, dtype="int8")
    inputs = {"A": np.full((8, 70000), 127, np.int8), "B": np.full((70000, 16), 127, np.int8)}
    assert 127 * 127 * 70000 < 2**31 < (127 + 128) * 127 * 70000
    candidate = samples(workload, TARGET)[0]
    assert is_hoisted(candidate)
    check_candidate(BACKEND, candidate, TARGET, inputs, threads=1)


def test_the_innermost_loop_multiplies_only() -> None:
    """No subtraction, and signs are changed by an operand that is read from memory anyway."""
    found = samples(gemm(m=64, n=64, k=1024, dtype="int8"), TARGET, 20)
    tiles = [it for it in found if it.config["C.i.2"] > 1 and it.config["C.j.2"] > 1]
    candidates = one_of_each(filter(is_hoisted, tiles))
    assert len(candidates) > 1
    for candidate in candidates:
        blocks = re.split(r"\n(?=\.LBB\w+:)", machine_code(candidate, TARGET))
        # What adds up corrections reads no left factor.
        loops = [it for it in blocks if re.search(r"vpxord\s.*\{1to16\}", it)]
        loop = max(loops, key=lambda block: block.count("vpdpbusd"))
        assert loop.count("vpdpbusd") >= candidate.config["C.i.2"] * candidate.config["C.j.2"]
        assert not re.search(r"vpsubd|vpbroadcastd\s+%[er]", loop)


def test_what_is_copied_in_parts_of_a_sum_is_corrected_in_calls() -> None:
    """The sum starts before all of its factors are copied."""
    need(TARGET)
    workload = gemm(m=24, n=64, k=32, dtype="int8")
    candidate = next(
        it
        for it in samples(workload, TARGET, 20)
        if it.sketch.name == "packed-panel" and it.config["C.k.0"] > 1
    )
    steps = tuple(
        evolve(step, at="k.0") if isinstance(step, Pack) else step
        for step in candidate.sketch.steps
    )
    moved = evolve(candidate, sketch=evolve(candidate.sketch, steps=steps))
    text = scheduled_text(moved, TARGET)
    assert CORRECTED in text and "_corrections" not in text
    check_exact([moved], TARGET)


def test_corrections_of_constants_are_no_part_of_the_program() -> None:
    workload = gemm(m=20, n=48, k=40, dtype="int8").with_constants("B")
    candidate = next(it for it in samples(workload, TARGET) if prepacked_operands(it))
    kernel, packers = split_packing(scheduled_module(request_for(candidate, TARGET))["main"], [1])
    packed = [str(parameter.name) for parameter in packers[1].params]
    assert len(packed) == 3 and packed[2].endswith("_corrections")
    program = kernel.script()
    assert f"T.reads({packed[2]}" in program and f"T.writes({packed[2]}" not in program


@pytest.mark.parametrize("m", [1, 4])
def test_few_rows_start_with_corrections_of_constants_only(m: int) -> None:
    """To read the weights once more would take as long as to subtract."""
    candidates, ahead = of_few_rows(m)
    assert candidates and not any(map(is_hoisted, candidates))
    assert ahead and all(map(is_hoisted, ahead))


@pytest.mark.parametrize("m", [1, 4])
def test_few_rows_are_exact(m: int) -> None:
    need(TARGET)
    candidates, ahead = of_few_rows(m)
    check_exact([*candidates[:1], *ahead[:1]], TARGET)


def of_few_rows(m: int) -> tuple[list[Candidate], list[Candidate]]:
    """Candidates of a product of ``m`` rows, and those that pack its constant factor ahead."""
    workload = gemm(m=m, n=48, k=40, dtype="int8")
    constant = samples(workload.with_constants("B"), TARGET)
    ahead = [it for it in constant if prepacked_operands(it)]
    return one_of_each(samples(workload, TARGET)), ahead


def test_other_programs_stay_as_they_are() -> None:
    workload = gemm(m=24, n=64, k=32, dtype="u8s8s32")
    for candidate in one_of_each(samples(workload, TARGET)):
        module = schedule(module_for(workload), candidate, workload).mod
        assert hoist_corrections(module)["main"].same_as(module["main"])
