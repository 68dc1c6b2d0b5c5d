"""Constants that schedules pack: packed when a program is bound, and no part of what is timed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.printed import PrintedFunctions, print_functions, printed_functions
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from autotune.backends import BuildRequest, InvalidSchedule, bind_copies
from autotune.ir.workloads import (
    Workload,
    conv2d,
    dense,
    gemm,
    random_inputs,
)
from autotune.sketches import Candidate, Prepack, Tensorize, prepacked_operands
from autotune.spaces import SketchSpace
from autotune.targets import Target, preset
from autotune.testing.programs import check_call, check_program, sample_candidates

WORKLOADS = {
    "dense": dense(m=20, n=40, k=24).with_constants("W"),
    "dense of one row": dense(m=1, n=40, k=24).with_constants("W"),
    "conv2d": conv2d(n=1, h=8, w=8, ci=16, co=24, kh=3, kw=3).with_constants("W"),
    "int8": gemm(m=20, n=48, k=40, dtype="int8").with_constants("B"),
}


def packing(candidates: list[Candidate]) -> list[Candidate]:
    """Select candidates whose programs are given packed operands."""
    return [candidate for candidate in candidates if prepacked_operands(candidate)]


def test_weights_and_their_sums_are_packed_by_one_program(backend: TVMBackend) -> None:
    """Of a processor with VNNI, whatever this one has: what is lowered need not run."""
    workload, target = WORKLOADS["int8"], preset("cascadelake")
    space = SketchSpace(workload, target, backend.limits(target))
    drawn = space.sample(4 * len(space.sketches()), np.random.default_rng(0))
    counts = set()
    for candidate in packing(drawn):
        request = BuildRequest(workload, None, candidate, target, 2)
        _, packed = printed_functions(request).module()
        counts.update(len(operand.arrays) for operand in packed)
        backend.lower(request)
    assert max(counts) == 2


@pytest.mark.parametrize("name", WORKLOADS)
def test_programs_that_are_given_packed_constants_are_right(
    name: str, backend: TVMBackend, target: Target
) -> None:
    workload = WORKLOADS[name]
    candidates = packing(sample_candidates(backend, workload, target))
    assert candidates
    for candidate in candidates:
        request = BuildRequest(workload, None, candidate, target, 2)
        executable = backend.build(request)
        # Of each binding's own constants, although a program packs them once only.
        for seed in (0, 1):
            inputs = random_inputs(workload, np.random.default_rng(seed))
            call = bind_copies(executable, workload, list(inputs.values()))
            call.poison()
            call.run()
            check_call(call, workload, inputs, about=candidate.sketch.name)
            # Sums of signed bytes start with corrections, which the constant determines, too.
            calls = [it for it in candidate.sketch.core_steps if isinstance(it, Tensorize)]
            signed = any(it.intrinsic == "vnni-16x4-signed" for it in calls)
            assert len(call.copies()) == 1 + signed


def test_wrong_packing_is_found_by_validation(
    backend: TVMBackend, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packing is no part of the timed call, but it is checked."""
    workload = WORKLOADS["dense"]
    (candidate, *_) = packing(sample_candidates(backend, workload, target))
    request = BuildRequest(workload, None, candidate, target, 1)

    def printed_badly(*given: Any) -> PrintedFunctions:
        functions = print_functions(*given)
        nothing = tirx.Evaluate(tirx.const(0, "int32"))
        idle = SBlockRealize([], True, SBlock([], [], [], "root", nothing))
        packers = {at: packer.with_body(idle) for at, packer in functions.packers.items()}
        return PrintedFunctions(functions.kernel, packers)

    check_program(backend, request)
    monkeypatch.setattr("autotune_tvm.printed.print_functions", printed_badly)
    with pytest.raises(AssertionError, match="elements are wrong"):
        check_program(backend, request)


def test_a_program_is_shown_with_what_packs_its_constants(
    backend: TVMBackend, target: Target
) -> None:
    workload = WORKLOADS["dense"]
    (candidate, *_) = packing(sample_candidates(backend, workload, target))
    shown = backend.show(BuildRequest(workload, None, candidate, target, 1))
    assert "def main(" in shown and "def pack_1(" in shown
    kernel = shown[shown.index("def main(") :].partition("def pack_1(")[0]
    assert "W_pack" in kernel and "W:" not in kernel


def test_only_constants_of_one_reader_are_given_packed(
    backend: TVMBackend, target: Target
) -> None:
    workload = WORKLOADS["dense"]
    (candidate, *_) = packing(sample_candidates(backend, workload, target))
    plain = workload.with_constants()
    sketch = evolve(candidate.sketch, workload=plain)
    request = BuildRequest(plain, None, evolve(candidate, sketch=sketch), target, 1)
    with pytest.raises(InvalidSchedule, match="no constant"):
        backend.build(request)


def test_gpus_are_given_nothing_packed(backend: TVMBackend) -> None:
    candidates = sample_candidates(backend, WORKLOADS["dense"], preset("a100"))
    steps = [step for candidate in candidates for step in candidate.sketch.core_steps]
    assert steps and not any(isinstance(step, Prepack) for step in steps)


def test_workloads_differ_by_their_constants() -> None:
    assert len({it.digest for it in WORKLOADS.values()}) == len(WORKLOADS)
    for workload in WORKLOADS.values():
        assert workload.digest != workload.with_constants().digest
        assert Workload.from_json(workload.to_json()) == workload
