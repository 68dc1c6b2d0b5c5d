"""Tests of which rows may be written while the next is computed, and where."""

from __future__ import annotations

import pytest
from attrs import evolve
from row_norms import layer_norm, pipelined, rms_norm, with_small_cache
from rule_sketches import LIMITS, TARGET

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const
from autotune.ir.workloads import Workload, gemm, softmax
from autotune.nest import derive_nest
from autotune.sketches import Prefetch, Sketch, SoftwarePipeline
from autotune.spaces import BUILT_IN_RULES
from autotune.spaces.rules import generate_sketches

SMALL = with_small_cache(TARGET)


@pytest.mark.parametrize(
    ("workload", "host"),
    [
        (softmax(m=48, n=64), "M_partial"),
        (rms_norm(48, 64), "S_partial"),
        (layer_norm(48, 64), "T_partial"),
    ],
)
def test_it_is_the_first_stage_along_a_row(workload: Workload, host: str) -> None:
    found = pipelined(workload, SMALL, LIMITS)
    assert [sketch.name for sketch in found] == [
        "row-fusion-pipelined",
        "row-fusion-wide-pipelined",
    ]
    for sketch in found:
        (step,) = (it for it in sketch.core_steps if isinstance(it, SoftwarePipeline))
        assert step == SoftwarePipeline("Y", "i.1", host)
        (rows,) = (it for it in sketch.params if it.name == "Y.i.1")
        assert rows.values == (16, 24, 48)


def test_there_are_at_most_a_dozen_sketches() -> None:
    made = generate_sketches(softmax(m=48, n=64), SMALL, LIMITS, BUILT_IN_RULES).sketches
    assert len(made) <= 12


@pytest.mark.parametrize(
    "workload",
    [softmax(m=3, n=64), softmax(m=15, n=128), softmax(m=48, n=60), gemm(m=64, n=64, k=4)],
)
def test_few_rows_and_other_programs_are_not_pipelined(workload: Workload) -> None:
    assert not pipelined(workload, SMALL, LIMITS)


def test_results_that_a_cache_holds_are_not() -> None:
    assert not pipelined(softmax(m=48, n=64), TARGET, LIMITS)


@pytest.mark.parametrize(
    ("workload", "stages"),
    [
        (softmax(m=48, n=64), {"E"}),
        # A row that is written late reads what is in the caches already.
        (rms_norm(48, 64), {"Y"}),
        (layer_norm(48, 64), {"V_partial"}),
    ],
)
def test_the_second_reader_asks_for_the_next_row(workload: Workload, stages: set[str]) -> None:
    found = set()
    for sketch in generate_sketches(workload, SMALL, LIMITS, BUILT_IN_RULES).sketches:
        steps = [step for step in sketch.core_steps if isinstance(step, Prefetch)]
        names = [it.name for it in sketch.params if it.name.endswith(".prefetch")]
        late = any(isinstance(step, SoftwarePipeline) for step in sketch.core_steps)
        expected = sketch.name.startswith("row") and "recompute" not in sketch.name
        assert len(steps) == len(names) == int(expected and not (late and stages == {"Y"}))
        for step in steps:
            assert (step.operand, step.consumer, step.at) == ("X", "Y", "i.1")
            found.add(step.stage)
    assert found == stages


def test_what_is_asked_for_is_read() -> None:
    workload = softmax(m=48, n=64)
    for stage, operand, at in (("S", "X", "i.0"), ("M", "E", "i.0"), ("M", "X", "i.1")):
        step = Prefetch(stage, operand, "Y", at, const(1))
        with pytest.raises(InvalidValueError, match=r"no 'X'|no input|no loop 'i.1'"):
            derive_nest(Sketch("by-hand", workload, (), (), (step,)))


@pytest.mark.parametrize("step", ["software_pipeline", "stream"])
def test_backends_that_cannot_have_none(step: str) -> None:
    limits = evolve(LIMITS, steps=LIMITS.steps - {step})
    assert not pipelined(softmax(m=48, n=64), SMALL, limits)
