"""Loops over keys that end where a causal mask hides the rest."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

from autotune_tvm.backend import TVMBackend
from autotune_tvm.compiler import lower_module
from autotune_tvm.passes import BOUND
from autotune_tvm.scheduled import scheduled_module
from tvm import te, tirx, topi
from tvm_ffi import structural_walk
from tvm_lowered import lowered_nest, numbers_of

from autotune.ir.workloads import Workload, attention
from autotune.nest import derive_nest
from autotune.sketches import BoundLoop, Candidate
from autotune.spaces import SketchSpace
from autotune.targets import detect_cpu
from autotune.testing.programs import check_candidate, request_for

BACKEND = TVMBackend()
TARGET = detect_cpu()


def tiles(workload: Workload, count: int = 2) -> list[Candidate]:
    """Candidates in tiles."""
    space = SketchSpace(workload, TARGET, BACKEND.limits(TARGET))
    (sketch,) = (it for it in space.sketches() if it.name.split("+")[0] == "attention-tiles")
    rows = space.feasible_set(sketch).uniform(count, 0).tolist()
    return [Candidate(sketch, tuple(row)) for row in rows]


def bounds(candidate: Candidate) -> list[BoundLoop]:
    return [step for step in candidate.sketch.core_steps if isinstance(step, BoundLoop)]


@pytest.mark.parametrize(
    ("heads", "length", "width", "threads"), [(1, 56, 24, 2), (3, 48, 16, 2), (1, 72, 16, 1)]
)
def test_the_same_is_computed(heads: int, length: int, width: int, threads: int) -> None:
    """Of one head on several threads, and of keys that lanes do not divide."""
    for candidate in tiles(attention(h=heads, n=length, d=width, causal=1)):
        assert bounds(candidate)
        check_candidate(BACKEND, candidate, TARGET, threads=threads)


def test_nothing_else_is_allocated() -> None:
    for candidate in tiles(attention(h=2, n=64, d=16, causal=1), 4):
        lowered = lowered_nest(scheduled_module(request_for(candidate, TARGET)))
        shapes = [numbers_of(it.shape, candidate) for it in derive_nest(candidate.sketch).buffers]
        assert Counter(shapes) == Counter(lowered.allocations)


@pytest.mark.parametrize("causal", [0, 1])
def test_lowered_loops_depend_on_those_outside(causal: int) -> None:
    """One for each step; threads take the tiles of queries in turns."""
    (candidate,) = tiles(attention(h=2, n=64, d=16, causal=causal), 1)
    module = lower_module(scheduled_module(request_for(candidate, TARGET)), TARGET, 2)
    loops, marks = everything(module)
    varying = [it for it in loops if not isinstance(it.extent, tirx.IntImm)]
    repeated = [it for it in bounds(candidate) if extent_of(it, candidate) > 1]
    assert len(repeated) <= len(varying) <= len(bounds(candidate))
    assert bool(varying) == bool(causal)
    assert ("pragma_parallel_stride_pattern" in marks) == bool(causal)
    assert BOUND not in marks


def relax_attention(heads: int, length: int, width: int) -> Any:
    """Causal attention as Relax writes it: scores and exponentials that are hidden are zero."""
    q, k, v = (te.placeholder((heads, length, width), "float32", name=it) for it in "qkv")
    scale = tirx.const(width**-0.5, "float32")
    scores = topi.multiply(topi.nn.batch_matmul(q, k), scale)
    shown = topi.trilu(scores, tirx.const(0, "int32"), False)
    largest = topi.max(shown, axis=-1, keepdims=True)
    weights = topi.trilu(topi.exp(topi.subtract(shown, largest)), tirx.const(0, "int32"), False)
    quotients = topi.divide(weights, topi.sum(weights, axis=-1, keepdims=True))
    result = topi.nn.batch_matmul(quotients, v, transpose_b=False)
    return te.create_prim_func([q, k, v, result])


def test_masks_of_relax_are_found() -> None:
    imported = BACKEND.import_program(relax_attention(2, 48, 32))
    for candidate in tiles(imported.workload):
        assert len(bounds(candidate)) >= 4
        check_candidate(BACKEND, candidate, TARGET, program=imported.program, threads=2)


def extent_of(step: BoundLoop, candidate: Candidate) -> int:
    nest = derive_nest(candidate.sketch)
    name = f"{step.stage}.{step.loop}"
    loops = [loop for it in nest.statements for loop in it.loops if loop.name == name]
    return int(np.prod(numbers_of([loops[0].extent], candidate) or (1,)))


def everything(module: Any) -> tuple[list[Any], list[str]]:
    """Loops, and names of attributes."""
    loops: list[Any] = []
    marks: list[str] = []
    entries = [(tirx.For, loops.append), (tirx.AttrStmt, lambda it: marks.append(it.attr_key))]
    for function in module.functions.values():
        structural_walk(function.body, entries)
    return loops, marks
