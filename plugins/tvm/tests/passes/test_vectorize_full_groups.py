"""Padded copies are woven where groups of rows lie inside the operand."""

from __future__ import annotations

import re

import pytest
from autotune_tvm.emit import module_for
from autotune_tvm.passes.vectorize_full_groups import INTERLEAVED, vectorize_full_groups
from autotune_tvm.replay import schedule
from tvm_programs import check_exact, machine_code, need, one_of_each, samples, scheduled_text

from autotune.ir.workloads import Workload, conv2d, gemm
from autotune.sketches import Candidate
from autotune.targets import Target, preset

# Padded along the vector axis, along the reduce axis, and along both.
CASES = (
    ("sapphirerapids", gemm(m=32, n=120, k=128, dtype="u8s8s32")),
    ("sapphirerapids", conv2d(h=5, w=7, ci=64, co=40, kh=1, pad=0, kw=1, dtype="int8")),
    ("cascadelake", gemm(m=13, n=48, k=27, dtype="int8")),
    ("cascadelake", gemm(m=13, n=59, k=27, dtype="u8s8s32")),
)


def before(candidate: Candidate) -> str:
    """The script before the pass."""
    workload = candidate.sketch.workload
    return str(schedule(module_for(workload), candidate, workload).mod.script())


def padded(target: Target, workload: Workload) -> list[Candidate]:
    """Candidates whose right factor is padded, one of every sketch that has some."""
    return one_of_each(c for c in samples(workload, target, 3) if INTERLEAVED in before(c))


@pytest.mark.parametrize(("processor", "workload"), CASES)
def test_whole_groups_are_woven(processor: str, workload: Workload) -> None:
    target = preset(processor).with_cores(1)
    candidates = padded(target, workload)
    assert candidates
    for candidate in candidates[:2]:
        assert "T.Shuffle" not in before(candidate)
        after = scheduled_text(candidate, target)
        assert after.count("T.Shuffle") == 1
        assert re.search(r"\bif .* < \d+:\n\s+with T.sblock\(\"\w+_o\"\)", after)


@pytest.mark.parametrize(("processor", "workload"), CASES)
def test_all_elements_are_exact(processor: str, workload: Workload) -> None:
    target = preset(processor).with_cores(1)
    need(target)
    check_exact(padded(target, workload)[:2], target)


@pytest.mark.parametrize(
    ("case", "instructions"),
    [(CASES[0], {"vpermb": 2}), (CASES[3], {"vpermd": 1, "vpshufb": 1})],
)
def test_the_machine_code_of_a_padded_copy_permutes(
    case: tuple[str, Workload], instructions: dict[str, int]
) -> None:
    processor, workload = case
    target = preset(processor).with_cores(1)
    text = machine_code(padded(target, workload)[0], target)
    for name, least in instructions.items():
        assert len(re.findall(rf"\b{name}\b", text)) >= least
    assert "vpunpck" not in text


def test_other_programs_stay_as_they_are() -> None:
    module = module_for(gemm(m=8, n=8, k=8))
    (name,) = module.functions
    assert vectorize_full_groups(module)[name].same_as(module[name])
