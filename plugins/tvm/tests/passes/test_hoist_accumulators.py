"""Sums stay in tile registers over the loops that add to the same ones."""

from __future__ import annotations

import pytest
from autotune_tvm.emit import module_for
from autotune_tvm.passes.hoist_accumulators import hoist_accumulators
from autotune_tvm.replay import schedule
from tvm_programs import check_exact, need, one_of_each, samples, scheduled_text

from autotune.ir.workloads import Workload, conv2d, gemm
from autotune.sketches import Candidate
from autotune.targets import preset

TARGET = preset("sapphirerapids").with_cores(1)
# Two blocks of rows, and one.
WORKLOADS = (
    conv2d(h=6, w=28, ci=64, co=40, pad=1, requantize=8, dtype="u8s8s32"),
    gemm(m=42, n=64, k=576, dtype="int8"),
)


def tiled(workload: Workload, *, one_tile: bool) -> list[Candidate]:
    """Candidates of every sketch with one tile of sums inside the reduce loops, or with more."""
    reduced = {axis.name for stage in workload.stages for axis in stage.reduce_axes}

    def has_one(candidate: Candidate) -> bool:
        return all(
            value == 1
            for name, value in candidate.config.items()
            if name.endswith(".2") and name.split(".")[1] not in reduced
        )

    return one_of_each(c for c in samples(workload, TARGET, 40) if has_one(c) == one_tile)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_sums_are_moved_outside_of_the_reduce_loops(workload: Workload) -> None:
    reduced = workload.stages[-2 if "requantize" in workload.parameters else -1].reduce_axes
    outermost = f"for {reduced[0].name}"
    candidates = tiled(workload, one_tile=True)
    assert len(candidates) > 1
    for candidate in candidates:
        text = scheduled_text(candidate, TARGET)
        load, products, store = (text.index(word) for word in ("_o_load", "tdpb", "_o_store"))
        assert load < text.index(outermost) < products < store
        moves = text.count("tilestored64")
        assert moves in (2, 4) and text[:products].count("tileloadd64") == moves + 3


@pytest.mark.parametrize("workload", WORKLOADS)
def test_exact_for_all_bytes(workload: Workload) -> None:
    need(TARGET)
    check_exact(tiled(workload, one_tile=True), TARGET)


def test_several_tiles_inside_the_reduce_loops_stay_in_memory() -> None:
    (candidate, *_) = tiled(WORKLOADS[0], one_tile=False)
    text = scheduled_text(candidate, TARGET)
    assert "_o_load" not in text and "tdpb" in text


def test_calls_that_clear_the_registers_stay_as_they_are() -> None:
    (candidate, *_) = tiled(WORKLOADS[0], one_tile=True)
    module = schedule(module_for(WORKLOADS[0]), candidate, WORKLOADS[0]).mod
    (name,) = module.functions
    assert hoist_accumulators(module)[name].same_as(module[name])
