"""Rows that are written while the next one is computed."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.passes.statements import blocks, intrinsic_of, statements
from autotune_tvm.scheduled import scheduled_module
from row_norms import layer_norm, pipelined, rms_norm, with_small_cache
from tvm import te, tirx, topi
from tvm_ffi import structural_walk
from tvm_lowered import lowered_nest, numbers_of

from autotune.backends import InvalidSchedule
from autotune.ir.workloads import Workload, softmax
from autotune.nest import derive_nest
from autotune.sketches import Candidate, SoftwarePipeline
from autotune.spaces import SketchSpace
from autotune.targets import detect_cpu
from autotune.testing.programs import check_candidate, request_for

BACKEND = TVMBackend()
TARGET = with_small_cache(detect_cpu())
WORKLOADS = (softmax(m=48, n=256), rms_norm(32, 192), layer_norm(48, 64))


def candidates(workload: Workload, cores: int = 1) -> list[Candidate]:
    """One of each sketch in which a row is written during the next one."""
    target = TARGET.with_cores(cores)
    limits = BACKEND.limits(target)
    names = {sketch.name for sketch in pipelined(workload, target, limits)}
    found: dict[str, Candidate] = {}
    space = SketchSpace(workload, target, limits)
    for candidate in space.sample(200, np.random.default_rng(cores)):
        if candidate.sketch.name in names:
            found.setdefault(candidate.sketch.name, candidate)
    assert len(found) == 2
    return list(found.values())


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.name)
def test_the_same_is_computed(workload: Workload, cores: int) -> None:
    for candidate in candidates(workload, cores):
        check_candidate(BACKEND, candidate, TARGET.with_cores(cores), threads=cores)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.name)
def test_allocations_are_those_of_the_nest(workload: Workload) -> None:
    for candidate in candidates(workload):
        lowered = lowered_nest(scheduled_module(request_for(candidate, TARGET)))
        shapes = [numbers_of(it.shape, candidate) for it in derive_nest(candidate.sketch).buffers]
        assert Counter(shapes) == Counter(lowered.allocations)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.name)
def test_pieces_of_a_row_take_turns_with_those_of_the_next(workload: Workload) -> None:
    """As many as divide both loops; the last row follows behind the loop."""
    for candidate in candidates(workload):
        body = scheduled_module(request_for(candidate, TARGET))["main"].body
        (turns,) = (
            it
            for it in statements(body)
            if isinstance(it, tirx.For) and it.loop_var.name == "piece"
        )
        late, host = turns.body.seq
        assert isinstance(late, tirx.IfThenElse)
        (step,) = (it for it in candidate.sketch.core_steps if isinstance(it, SoftwarePipeline))
        rounds = [rounds_in_a_row(candidate, name) for name in ("Y", step.inside)]
        assert int(turns.extent) == math.gcd(*rounds)
        assert [it.name_hint for it in blocks(late)] == ["Y"]
        assert all("update" in it.name_hint for it in blocks(host))
        assert sum(it.name_hint == "Y" for it in blocks(body)) == 2


def test_imported_rows_are_pipelined_as_well() -> None:
    """Of a function with other names of its buffers, blocks and axes."""
    x = te.placeholder((48, 128), "float32", name="x")
    imported = BACKEND.import_program(te.create_prim_func([x, topi.nn.softmax(x, axis=1)]))
    name = f"{imported.workload.outputs[0]}.prefetch"
    for candidate in candidates(imported.workload):
        asking = Candidate(candidate.sketch, tuple((candidate.config | {name: 1}).values()))
        check_candidate(BACKEND, asking, TARGET, program=imported.program)
        body = scheduled_module(request_for(asking, TARGET, 1, imported.program))["main"].body
        assert any(intrinsic_of(it).startswith("llvm.prefetch") for it in statements(body))
        assert any(isinstance(it, tirx.IfThenElse) for it in everything(body))


def test_rows_that_would_be_overwritten_too_early_are_refused() -> None:
    (candidate, *_) = candidates(WORKLOADS[0])
    steps = (
        evolve(step, inside="S") if isinstance(step, SoftwarePipeline) else step
        for step in candidate.sketch.steps
    )
    moved = Candidate(evolve(candidate.sketch, steps=tuple(steps)), candidate.values)
    with pytest.raises(InvalidSchedule, match="'Y' cannot run late in the loops of 'S'"):
        BACKEND.lower(request_for(moved, TARGET))


def rounds_in_a_row(candidate: Candidate, name: str) -> int:
    """Extent of the outermost loop of a statement inside the rows that runs more than once."""
    nest = derive_nest(candidate.sketch)
    (statement,) = (it for it in nest.statements if it.name == name)
    names = [loop.name for loop in statement.loops]
    inner = statement.loops[names.index("Y.i.1") + 1 :]
    extents = (loop.extent for loop in inner if loop.kind != "vectorized")
    return next(iter(numbers_of(extents, candidate)), 1)


def everything(body: tirx.Stmt) -> list[Any]:
    found: list[Any] = []
    structural_walk(body, (tirx.IfThenElse, found.append))
    return found
