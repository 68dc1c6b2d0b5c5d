"""Sums stay in tile registers over the loops that add to the same ones."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm")

from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from autotune_tvm.passes.hoist_accumulators import hoist_accumulators
from autotune_tvm.replay import schedule
from autotune_tvm.scheduled import scheduled_module
from autotune_tvm.tile_products import ask_for_tiles

from autotune.backends import BuildRequest, bind_copies
from autotune.ir.workloads import Workload, conv2d, gemm, random_inputs, reference_outputs
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.targets import detect_cpu, preset

BACKEND = TVMBackend()
TARGET = preset("sapphirerapids").with_cores(1)
# Two blocks of rows, and one.
WORKLOADS = (
    conv2d(h=6, w=28, ci=64, co=40, pad=1, requantize=8, dtype="u8s8s32"),
    gemm(m=42, n=64, k=576, dtype="int8"),
)


def label(workload: Workload) -> str:
    return f"{workload.name} {' '.join(map(str, workload.parameters.values()))}"


def samples(workload: Workload, *, one_tile: bool) -> list[Candidate]:
    """Candidates of every sketch with one tile of sums inside the reduce loops, or with more."""
    space = SketchSpace(workload, TARGET, BACKEND.limits(TARGET))
    found: dict[str, Candidate] = {}
    for candidate in space.sample(40 * len(space.sketches()), np.random.default_rng(0)):
        reduced = {axis.name for stage in workload.stages for axis in stage.reduce_axes}
        inner = [
            value
            for name, value in candidate.config.items()
            if name.endswith(".2") and name.split(".")[1] not in reduced
        ]
        if all(value == 1 for value in inner) == one_tile:
            found.setdefault(candidate.sketch.name, candidate)
    return list(found.values())


def request(candidate: Candidate) -> BuildRequest:
    return BuildRequest(candidate.sketch.workload, None, candidate, TARGET, 1)


@pytest.mark.parametrize("workload", WORKLOADS, ids=label)
def test_sums_are_moved_outside_of_the_reduce_loops(workload: Workload) -> None:
    reduced = workload.stages[-2 if "requantize" in workload.parameters else -1].reduce_axes
    outermost = f"for {reduced[0].name}"
    candidates = samples(workload, one_tile=True)
    assert len(candidates) > 1
    for candidate in candidates:
        text = str(scheduled_module(request(candidate)).script())
        load, products, store = (text.index(word) for word in ("_o_load", "tdpb", "_o_store"))
        assert load < text.index(outermost) < products < store
        moves = text.count("tilestored64")
        assert moves in (2, 4) and text[:products].count("tileloadd64") == moves + 3


@pytest.mark.parametrize("workload", WORKLOADS, ids=label)
def test_exact_for_all_bytes(workload: Workload) -> None:
    if not set(TARGET.features) <= set(detect_cpu().features) or not ask_for_tiles():
        pytest.skip("this machine has no AMX")
    inputs = random_inputs(workload, np.random.default_rng(1))
    inputs[workload.inputs[0].name].flat[:4] = np.iinfo(workload.inputs[0].dtype).max
    (name,) = workload.outputs
    expected = reference_outputs(workload, inputs)[name]
    for candidate in samples(workload, one_tile=True):
        built = BACKEND.compile(BACKEND.lower(request(candidate)))
        call = bind_copies(built, workload, [inputs[tensor.name] for tensor in workload.inputs])
        call.run()
        np.testing.assert_array_equal(call.outputs()[0], expected, err_msg=str(candidate))


def test_several_tiles_inside_the_reduce_loops_stay_in_memory() -> None:
    (candidate, *_) = samples(WORKLOADS[0], one_tile=False)
    text = str(scheduled_module(request(candidate)).script())
    assert "_o_load" not in text and "tdpb" in text


def test_calls_that_clear_the_registers_stay_as_they_are() -> None:
    (candidate, *_) = samples(WORKLOADS[0], one_tile=True)
    module = schedule(module_for(WORKLOADS[0]), candidate, WORKLOADS[0]).mod
    (name,) = module.functions
    assert hoist_accumulators(module)[name].same_as(module[name])
