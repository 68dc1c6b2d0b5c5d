"""Padded copies are woven where groups of rows lie inside the operand."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("tvm")

from autotune_tvm.backend import TVMBackend
from autotune_tvm.compiler import generate_code, lower_module
from autotune_tvm.emit import module_for
from autotune_tvm.passes.vectorize_full_groups import INTERLEAVED, vectorize_full_groups
from autotune_tvm.replay import schedule
from autotune_tvm.scheduled import scheduled_module

from autotune.backends import BuildRequest, bind_copies
from autotune.ir.workloads import (
    Workload,
    conv2d,
    gemm,
    random_inputs,
    reference_outputs,
)
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.targets import Target, detect_cpu, preset

BACKEND = TVMBackend()
# Padded along the vector axis, along the reduce axis, and along both.
CASES = (
    ("sapphirerapids", gemm(m=32, n=120, k=128, dtype="u8s8s32")),
    ("sapphirerapids", conv2d(h=5, w=7, ci=64, co=40, kh=1, pad=0, kw=1, dtype="int8")),
    ("cascadelake", gemm(m=13, n=48, k=27, dtype="int8")),
    ("cascadelake", gemm(m=13, n=59, k=27, dtype="u8s8s32")),
)


def label(value: object) -> str:
    if isinstance(value, Workload):
        return f"{value.name} {' '.join(map(str, value.parameters.values()))}"
    return str(value)


def padded(target: Target, workload: Workload) -> list[Candidate]:
    """Candidates whose right factor is padded, one of every sketch that has some."""
    space = SketchSpace(workload, target, BACKEND.limits(target))
    found: dict[str, Candidate] = {}
    for candidate in space.sample(3 * len(space.sketches()), np.random.default_rng(0)):
        if INTERLEAVED in str(schedule(module_for(workload), candidate, workload).mod.script()):
            found.setdefault(candidate.sketch.name, candidate)
    return list(found.values())


def request(candidate: Candidate, target: Target) -> BuildRequest:
    return BuildRequest(candidate.sketch.workload, None, candidate, target, 1)


@pytest.mark.parametrize(("processor", "workload"), CASES, ids=label)
def test_whole_groups_are_woven_and_all_elements_are_exact(
    processor: str, workload: Workload
) -> None:
    target = preset(processor).with_cores(1)
    candidates = padded(target, workload)
    assert candidates
    runs = set(target.features) <= set(detect_cpu().features)
    inputs = random_inputs(workload, np.random.default_rng(1))
    inputs[workload.inputs[0].name].flat[:4] = np.iinfo(workload.inputs[0].dtype).max
    (name,) = workload.outputs
    expected = reference_outputs(workload, inputs)[name]
    for candidate in candidates[:2]:
        before = schedule(module_for(workload), candidate, workload).mod
        after = str(scheduled_module(request(candidate, target)).script())
        assert "T.Shuffle" not in str(before.script())
        assert after.count("T.Shuffle") == 1
        assert re.search(r"\bif .* < \d+:\n\s+with T.sblock\(\"\w+_o\"\)", after)
        if runs:
            built = BACKEND.compile(BACKEND.lower(request(candidate, target)))
            call = bind_copies(built, workload, [inputs[t.name] for t in workload.inputs])
            call.run()
            np.testing.assert_array_equal(call.outputs()[0], expected, err_msg=str(candidate))


@pytest.mark.parametrize(
    ("case", "instructions"),
    [(CASES[0], {"vpermb": 2}), (CASES[3], {"vpermd": 1, "vpshufb": 1})],
)
def test_the_machine_code_of_a_padded_copy_permutes(
    case: tuple[str, Workload], instructions: dict[str, int]
) -> None:
    processor, workload = case
    target = preset(processor).with_cores(1)
    lowered = lower_module(
        scheduled_module(request(padded(target, workload)[0], target)), target, 1
    )
    text = str(generate_code(lowered, target, 1)[0].inspect_source("s"))
    for name, least in instructions.items():
        assert len(re.findall(rf"\b{name}\b", text)) >= least
    assert "vpunpck" not in text


def test_other_programs_stay_as_they_are() -> None:
    module = module_for(gemm(m=8, n=8, k=8))
    (name,) = module.functions
    assert vectorize_full_groups(module)[name].same_as(module[name])
