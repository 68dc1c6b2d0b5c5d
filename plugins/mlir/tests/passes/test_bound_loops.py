"""Loops of which only some iterations are run: under causal masks, and over taps of windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from autotune_mlir import bindings
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.parsing import parse_payload
from autotune_mlir.passes.bound_loops import BOUNDS, LoopBound, Position, bound_loops, mark_of
from autotune_mlir.schedule import schedule
from autotune_mlir.scripted import program_of
from autotune_mlir.transform_library import NamedSchedule, check_applied

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import Binary, IndexValue, Load, const, var
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    attention,
    conv1d,
    conv2d,
    conv3d,
)
from autotune.sketches import (
    Accumulate,
    BoundLoop,
    Candidate,
    FuseProducer,
    Order,
    Parallel,
    Sketch,
    SplitReduction,
    Step,
    Tile,
    Unroll,
    Vectorize,
)
from autotune.spaces import SketchSpace
from autotune.spaces.rules.attention_tiles import ATTENTION_LABEL
from autotune.targets import Target
from autotune.testing.nest_interpreter import run_candidate
from autotune.testing.programs import (
    check_candidate,
    request_for,
    run_executable,
    sample_candidates,
)


def factors(*numbers: int) -> tuple[Any, ...]:
    return tuple(map(const, numbers))


def sums(heads: int, rows: int, columns: int) -> Workload:
    """Sums over columns; a different number in each of these says which have been summed."""
    axes = (Axis("h", heads), Axis("i", rows), Axis("j", columns, "reduce"))
    body = Binary("add", Load("X", (var("j"),)), IndexValue(var("j")))
    stage = Stage(Tensor("Y", (heads, rows), "int32"), axes, body, "add")
    return Workload("sums", (Tensor("X", (columns,), "int32"),), (stage,), ("Y",))


def by_hand(workload: Workload, *steps: Step) -> Candidate:
    return Candidate(Sketch("by-hand", workload, (), (), steps), ())


def tiled(rows: tuple[int, ...], columns: tuple[int, ...], order: str) -> list[Step]:
    return [
        Tile("Y", "i", factors(*rows)),
        Tile("Y", "j", factors(*columns)),
        Order("Y", tuple(order.split())),
    ]


ROW = "h.0 i.0 i.1 j.0 j.1"
ALONE = Accumulate("Y", "i.1", ())
SHARED = Parallel("Y", ("h.0", "i.0"))


def bound(loop: str, offset: int, scale: int, stage: str = "Y") -> BoundLoop:
    return BoundLoop(stage, loop, "i", const(offset), scale)


def window(loop: str, least: int, most: int, scale: int = 1, stride: int = 1) -> BoundLoop:
    return BoundLoop("Y", loop, "i", const(most), scale, stride, const(least))


def in_lanes(at: str, scale: int) -> list[Step]:
    return [
        SplitReduction("Y", "j", 8),
        Parallel("Y", ("h.0", "i.0")[: 1 + (at == "i.0")]),
        FuseProducer("Y_partial", "Y", at, 1),
        Tile("Y_partial", "j", factors(6, 2)),
        Order("Y_partial", ("h.0", "i.0", "j.0", "j.1", "j_lane.0")),
        Vectorize("Y_partial", "j_lane.0"),
        bound("j.0", 3, scale, "Y_partial"),
    ]


TILE = tiled((3, 4), (4, 6), "h.0 i.0 j.0 i.1 j.1")
STEPS: dict[str, tuple[tuple[int, int, int], list[Step]]] = {
    "a tile of rows": (
        (2, 12, 24),
        [*TILE, Accumulate("Y", "i.0", factors(4)), bound("j.0", 2, 1)],
    ),
    "row by row": ((2, 12, 24), [*tiled((3, 4), (4, 6), ROW), ALONE, bound("j.0", 2, 1)]),
    "none of the first rows": (
        (2, 12, 24),
        [*tiled((3, 4), (4, 6), ROW), ALONE, bound("j.0", -5, 1)],
    ),
    "parallel": ((2, 12, 24), [*tiled((3, 4), (12, 2), ROW), SHARED, ALONE, bound("j.0", 2, 3)]),
    "parallel, of one head": (
        (1, 12, 24),
        [*tiled((3, 4), (4, 6), ROW), SHARED, ALONE, bound("j.0", 2, 1)],
    ),
    "three levels of rows": (
        (3, 12, 24),
        [
            *tiled((3, 2, 2), (4, 6), "h.0 i.0 i.1 j.0 i.2 j.1"),
            *(SHARED, Accumulate("Y", "i.1", factors(2)), bound("j.0", 2, 1)),
        ],
    ),
    "an inner loop": (
        (1, 12, 24),
        [
            *tiled((3, 4), (4, 3, 2), "h.0 i.0 i.1 j.0 j.1 j.2"),
            *(SHARED, ALONE, bound("j.1", 0, 2)),
        ],
    ),
    "two loops": (
        (1, 12, 24),
        [*tiled((3, 4), (4, 6), ROW), ALONE, bound("j.0", 0, 2), bound("j.1", 1, 2)],
    ),
    "vectors of rows": (
        (2, 12, 24),
        [
            *tiled((3, 4), (4, 6), "h.0 i.0 j.0 j.1 i.1"),
            *(SHARED, Accumulate("Y", "i.0", factors(4)), Vectorize("Y", "i.1")),
            *(Unroll("Y", ("j.1",)), bound("j.0", -1, 1)),
        ],
    ),
    "a window": (
        (2, 12, 24),
        [*tiled((3, 4), (4, 6), ROW), SHARED, ALONE, window("j.0", 3, 30, scale=2)],
    ),
    "a window that moves back, of tiles": (
        (2, 12, 24),
        [*TILE, Accumulate("Y", "i.0", factors(4)), window("j.0", -2, 9, stride=-3)],
    ),
    "a window that reads nothing at first": (
        (1, 12, 24),
        [*tiled((3, 4), (4, 6), ROW), ALONE, window("j.0", 30, 40, stride=2)],
    ),
    "a window in an inner loop": (
        (1, 12, 24),
        [
            *tiled((3, 4), (4, 3, 2), "h.0 i.0 i.1 j.0 j.1 j.2"),
            *(SHARED, ALONE, window("j.1", 5, 20)),
        ],
    ),
    "lanes": ((2, 12, 96), [*in_lanes("i.0", 4), Unroll("Y_partial", ("j.1",))]),
    "lanes in a loop that is not unrolled": ((2, 12, 96), in_lanes("i.0", 5)),
}


@pytest.mark.parametrize("name", STEPS)
def test_loops_run_as_far_as_the_step_says(
    name: str, backend: MLIRBackend, target: Target
) -> None:
    """Neither less nor further: sums of other iterations are others."""
    shape, steps = STEPS[name]
    workload = sums(*shape)
    candidate = by_hand(workload, *steps)
    inputs = {"X": np.arange(shape[2], dtype=np.int32) ** 2 % 7}
    wanted = run_candidate(candidate, inputs)["Y"]
    assert len(np.unique(wanted)) > 1
    executable = backend.build(request_for(candidate, target.with_cores(1), 1, None))
    np.testing.assert_array_equal(run_executable(executable, workload, inputs)[0], wanted)


def test_a_loop_that_the_program_does_not_have_is_refused(
    backend: MLIRBackend, target: Target
) -> None:
    candidate = by_hand(sums(2, 12, 96), *in_lanes("h.0", 8))
    with pytest.raises(InvalidSchedule, match=r"^bound_loop: no loop 'Y\.i\.0' around 'Y\.j\.0'"):
        backend.lower(request_for(candidate, target.with_cores(1), 1, None))


def tiles(workload: Workload, target: Target, backend: MLIRBackend, count: int) -> list[Candidate]:
    """Candidates of the sketch in tiles."""
    space = SketchSpace(workload, target, backend.limits(target))
    (sketch,) = (it for it in space.sketches() if it.name == ATTENTION_LABEL)
    rows = space.feasible_set(sketch).uniform(count, 0).tolist()
    return [Candidate(sketch, tuple(row)) for row in rows]


def bounds(candidate: Candidate) -> list[BoundLoop]:
    return [step for step in candidate.sketch.core_steps if isinstance(step, BoundLoop)]


# Heads, queries, width, bytes of a vector: with the last ones nothing makes lanes of seven keys.
SHAPES = {
    "tiles of 4 heads": (4, 64, 32, 64),
    "one head": (1, 56, 24, 64),
    "lanes that do not divide": (1, 45, 24, 64),
    "short rows": (2, 7, 8, 32),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_same_is_computed(name: str, backend: MLIRBackend, target: Target) -> None:
    heads, length, width, vector_bytes = SHAPES[name]
    workload = attention(h=heads, n=length, d=width, causal=1)
    wide = evolve(target, vector_bytes=min(vector_bytes, target.vector_bytes))
    for candidate in tiles(workload, wide, backend, 3):
        assert len(bounds(candidate)) >= 3
        check_candidate(backend, candidate, wide)


def lowered(backend: MLIRBackend, candidate: Candidate, target: Target, threads: int) -> str:
    return str(backend.lower(request_for(candidate, target, threads, None)).program.module)


CONVOLUTIONS = {
    "1d": conv1d(w=12, ci=8, co=16, kw=5, pad=2),
    "3d": conv3d(d=4, h=5, w=3, ci=4, co=16, pad=1),
    "strided, of odd sizes": conv2d(h=9, w=7, ci=5, co=24, kh=5, kw=3, stride=2, pad=2),
    "dilated, results of padding alone": conv2d(h=5, w=8, ci=4, co=16, pad=5, dilation=3),
    "bytes": conv2d(h=7, w=7, ci=32, co=32, pad=1, dtype="u8s8s32"),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_without_taps_on_padding(
    name: str, backend: MLIRBackend, target: Target
) -> None:
    number = list(CONVOLUTIONS).index(name)
    for candidate in sample_candidates(backend, CONVOLUTIONS[name], target)[number % 3 :: 3]:
        assert bounds(candidate)
        check_candidate(backend, candidate, target, threads=1 + number % 2)


@pytest.mark.parametrize("causal", [0, 1])
def test_lowered_loops_depend_on_those_outside(
    causal: int, backend: MLIRBackend, target: Target
) -> None:
    (candidate,) = tiles(attention(h=2, n=64, d=16, causal=causal), target, backend, 1)
    text = lowered(backend, candidate, target, 1)
    assert bool(causal) == ("llvm.intr.smin" in text)
    assert "autotune." not in text


@pytest.mark.needs("openmp")
@pytest.mark.parametrize("causal", [0, 1])
def test_threads_take_tiles_of_queries_as_they_come(
    causal: int, backend: MLIRBackend, target: Target
) -> None:
    """But not heads whose keys they pack."""
    (candidate,) = tiles(attention(h=2, n=64, d=16, causal=causal), target, backend, 1)
    text = lowered(backend, candidate, target, 2)
    assert text.count("schedule(dynamic)") == causal < text.count("omp.wsloop")
    check_candidate(backend, candidate, target, threads=2)


def test_schedules_are_exported_with_their_notes(backend: MLIRBackend, target: Target) -> None:
    """Other pipelines run these loops to their ends."""
    workload = attention(h=1, n=32, d=16, causal=1)
    (candidate,) = tiles(workload, target, backend, 1)
    text = schedule(candidate, workload)
    assert f'"{BOUNDS}"' in text
    check_applied(NamedSchedule("tiles", text, program_of(workload, None, candidate), ""))


NEST = """
func.func @kernel(%x: memref<64xf32>) attributes {{{mark}}} {{
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c64 = arith.constant 64 : index
  scf.for %i = %c0 to %c64 step %c4 {{
    scf.for %j = {begin} to %c64 step %c1 {{
      memref.store %zero, %x[%j] : memref<64xf32>
    }} {{autotune.loop = "Y.j.0"}}
  }} {{autotune.loop = "Y.i.0"}}
  return
}}
"""


@pytest.mark.parametrize(
    ("loop", "around", "step", "begin", "message"),
    [
        ("Y.k.0", "Y.i.0", 4, "%c0", "the program has no loop 'Y.k.0'"),
        ("Y.j.0", "Y.i.0", 4, "%c1", "'Y.j.0' is no loop from 0 to its extent"),
        ("Y.j.0", "Y.i.0", 8, "%c0", "'Y.i.0' around 'Y.j.0' moves its axis in steps of 8"),
        ("Y.j.0", "Y.i.1", 4, "%c0", "no loop 'Y.i.1' around 'Y.j.0' moves its axis"),
        ("Y.j.0", "Y.i.0", 4, "%c0", ""),
    ],
)
def test_other_loops_than_the_schedule_made_are_refused(
    loop: str, around: str, step: int, begin: str, message: str
) -> None:
    """Such as those of which several iterations have become one."""
    note = LoopBound(loop, 1, 1, 3, None, (Position(around, 0, 16, step, 1),))
    text = NEST.format(mark=f'{BOUNDS} = "{mark_of([note])}"', begin=begin)
    ir = bindings.load().ir
    with (module := parse_payload(text)).context, ir.Location.unknown():
        (kernel,) = module.body.operations
        if message:
            with pytest.raises(InvalidSchedule, match=f"^bound_loop: .*{message}"):
                bound_loops(ir, kernel.operation)
            return
        bound_loops(ir, kernel.operation)
        assert module.operation.verify()
        assert BOUNDS not in kernel.attributes
        assert "affine_map<(d0) -> (64, d0 + 4)>" in str(module)
