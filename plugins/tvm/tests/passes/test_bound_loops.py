"""Loops of which only some iterations are run: under causal masks, and over taps of windows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.compiler import lower_module
from autotune_tvm.passes import BOUND
from autotune_tvm.scheduled import scheduled_module
from tvm import te, tirx, topi
from tvm_ffi import structural_walk
from tvm_lowered import lowered_nest, numbers_of

from autotune.ir.workloads import Workload, attention, conv1d, conv2d, conv3d
from autotune.nest import derive_nest
from autotune.sketches import BoundLoop, Candidate
from autotune.spaces import SketchSpace
from autotune.targets import detect_cpu
from autotune.testing.programs import check_candidate, request_for, sample_candidates

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


CONVOLUTIONS = {
    "1d": conv1d(w=12, ci=8, co=16, kw=5, pad=2),
    "3d": conv3d(d=4, h=5, w=3, ci=4, co=16, pad=1),
    "strided, of odd sizes": conv2d(h=9, w=7, ci=5, co=24, kh=5, kw=3, stride=2, pad=2),
    "dilated, results of padding alone": conv2d(h=5, w=8, ci=4, co=16, pad=5, dilation=3),
    "bytes": conv2d(h=7, w=7, ci=32, co=32, pad=1, dtype="u8s8s32"),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_without_taps_on_padding(name: str) -> None:
    """On one thread or on two; nothing else is allocated."""
    number = list(CONVOLUTIONS).index(name)
    for candidate in sample_candidates(BACKEND, CONVOLUTIONS[name], TARGET)[number % 3 :: 3]:
        assert bounds(candidate)
        check_candidate(BACKEND, candidate, TARGET, threads=1 + number % 2)
        lowered = lowered_nest(scheduled_module(request_for(candidate, TARGET)))
        shapes = [numbers_of(it.shape, candidate) for it in derive_nest(candidate.sketch).buffers]
        assert Counter(shapes) == Counter(lowered.allocations)


def imported_convolution(groups: int) -> Any:
    """As TVM's suite has it: channels last in all, weights by height and width."""
    x = te.placeholder((1, 7, 7, 16 * groups), "float32", name="x")
    weights = te.placeholder((3, 3, 16, 16 * groups), "float32", name="weights")
    padded = topi.nn.pad(x, [0, 1, 1, 0])
    taps = [te.reduce_axis((0, extent)) for extent in (3, 3, 16)]

    def result(n: Any, h: Any, w: Any, channel: Any) -> Any:
        row, column, inner = taps
        group = tirx.floordiv(channel, 16)
        taken = padded[n, h + row, w + column, group * 16 + inner]
        return te.sum(taken * weights[row, column, inner, channel], axis=taps)

    y = te.compute((1, 7, 7, 16 * groups), result, name="y")
    return te.create_prim_func([x, weights, y])


@pytest.mark.parametrize("groups", [1, 2])
def test_windows_of_imported_convolutions_are_found(groups: int) -> None:
    imported = BACKEND.import_program(imported_convolution(groups))
    for candidate in sample_candidates(BACKEND, imported.workload, TARGET)[:3]:
        assert len(bounds(candidate)) == 2
        check_candidate(BACKEND, candidate, TARGET, program=imported.program)


def test_loops_over_taps_begin_and_end_depending_on_those_outside() -> None:
    workload = conv2d(h=7, w=7, ci=8, co=16, pad=1)
    for candidate in sample_candidates(BACKEND, workload, TARGET, 2):
        module = lower_module(scheduled_module(request_for(candidate, TARGET)), TARGET, 2)
        loops, marks = everything(module)
        varying = [it for it in loops if not isinstance(it.extent, tirx.IntImm)]
        begins = [it for it in varying if not isinstance(it.min, tirx.IntImm)]
        # In a tile of a whole row all taps are on some number, in one of two the first is.
        tiles = [candidate.config[f"Y.{axis}.2"] for axis in ("ho", "wo")]
        assert len(varying) == sum(tile < 7 for tile in tiles)
        assert len(begins) >= sum(tile == 1 for tile in tiles)
        assert not any(name.startswith("autotune.") for name in marks)


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
