"""Attentions in tiles of queries: everything but packed keys inside one parallel loop."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest
from attention_workloads import grouped, transposed, with_bias, with_computed_keys, with_epilogue
from attrs import evolve
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.schedule import schedule
from autotune_mlir.schedule.script import MAIN
from autotune_mlir.scripted import program_of
from mlir_lowered import LoweredNest, lowered_nest
from mlir_schedules import candidates
from thinning import thinned

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import Binary, Constant, Load, var
from autotune.ir.workloads import Stage, Workload, attention
from autotune.sketches import Candidate, Parallel
from autotune.spaces import SketchSpace
from autotune.spaces.rules.attention_tiles import ATTENTION_LABEL
from autotune.targets import Target, preset
from autotune.testing.programs import check_candidate


def without_softmax(workload: Workload) -> Workload:
    """The workload with the positive part of the scores for weights."""
    scores, last = workload.stages[0], workload.stages[-1]
    axes = scores.spatial_axes
    read = Load(scores.name, tuple(var(axis.name) for axis in axes))
    body = Binary("max", read, Constant(0.0, "float32"))
    weights = Stage(evolve(scores.output, name="R"), axes, body)
    return evolve(workload, stages=(scores, weights, last), parameters={})


SMALL = attention(h=2, n=16, d=32, m=48)

WORKLOADS = {
    "whole vectors": attention(h=2, n=128, d=64),
    "rows in odd tiles": attention(h=1, n=45, d=24, m=80),
    "causal": attention(h=2, n=32, d=32, causal=1),
    "epilogue, values turned": with_epilogue(transposed(SMALL, "V")),
    "a row in one vector": attention(h=1, n=16, d=16),
    "one tile": attention(h=1, n=4, d=16, m=48),
    "keys and queries turned": transposed(SMALL, "K", "Q"),
    "bias": with_bias(SMALL),
    "computed keys": with_computed_keys(SMALL),
    "heads that share keys": grouped(SMALL, 3),
    "causal heads that share keys": grouped(attention(h=2, n=32, d=32, causal=1), 2),
    "no softmax": without_softmax(SMALL),
    "double": attention(h=2, n=16, d=32, m=48, dtype="float64"),
    "bfloat16": attention(h=1, n=16, d=32, m=48, dtype="bfloat16"),
}


def tiles(workload: Workload, target: Target, count: int) -> Iterator[Candidate]:
    """Candidates of the sketch in tiles."""
    found = (it for it in candidates(workload, target, count) if it.sketch.name == ATTENTION_LABEL)
    return islice(found, count)


@pytest.mark.parametrize("name", thinned(WORKLOADS, 2))
def test_tiles_compute_what_the_workload_says(
    name: str, backend: MLIRBackend, target: Target
) -> None:
    for candidate in tiles(WORKLOADS[name], target, 3):
        check_candidate(backend, candidate, target)


@pytest.mark.needs("openmp")
def test_on_two_threads(backend: MLIRBackend, target: Target) -> None:
    for candidate in tiles(WORKLOADS["whole vectors"], target, 2):
        check_candidate(backend, candidate, target, threads=2)


def nest_of(candidate: Candidate, sequence: str) -> LoweredNest:
    workload = candidate.sketch.workload
    program = program_of(workload, None, candidate)
    return lowered_nest(program, schedule(candidate, workload), sequence)


def test_scores_and_weights_are_kept_for_a_tile(backend: MLIRBackend, target: Target) -> None:
    workload = attention(h=2, n=64, d=32, m=96)
    for candidate in tiles(workload, target, 4):
        config = candidate.config
        rows = config["Y.i.1"] * config["Y.i.2"]
        nest = nest_of(candidate, MAIN)
        buffers = nest.buffers
        inside = Counter(buffer.shape for buffer in buffers if buffer.loops)
        tile = (rows, 96) if rows > 1 else (96,)
        # Of the tile scores and weights, and of a row the exponentials.
        assert inside == Counter([tile, tile, (96,)]), config
        # The packed keys.
        (outside,) = [buffer.shape for buffer in buffers if not buffer.loops]
        assert math.prod(outside) == 2 * 96 * 32
        # Keys are packed element by element; nothing else is copied.
        assert all(math.prod(copy.iterations) == 1 for copy in nest.copies), config


def test_what_is_inlined_into_a_row_of_one_vector(backend: MLIRBackend) -> None:
    workload = attention(h=1, n=16, d=16)
    target = preset("skylake-avx512-4core")
    space = SketchSpace(workload, target, backend.limits(target))
    (sketch,) = (it for it in space.sketches() if it.name == ATTENTION_LABEL)
    config = {"Y.i.0": 4, "Y.i.1": 2, "Y.i.2": 2, "Y.j.0": 16, "A.k.0": 16}
    config |= {"R.j.0": 2, "R.j.1": 8, "E.j.1": 16}
    candidate = Candidate(sketch, tuple(config.get(name, 1) for name in sketch.param_names))
    iterations = {it.name: it.iterations for it in nest_of(candidate, "structure").statements}
    assert iterations["E"] == iterations["X>E"] == (1, 1, 16)


def test_a_loop_that_is_not_parallel_has_no_stages(target: Target) -> None:
    (candidate,) = tiles(SMALL, target, 1)
    steps = tuple(step for step in candidate.sketch.steps if not isinstance(step, Parallel))
    serial = Candidate(evolve(candidate.sketch, steps=steps), candidate.values)
    with pytest.raises(InvalidSchedule, match=r"in the parallel loop of 'Y', not in 'i\.0'"):
        schedule(serial, SMALL)
