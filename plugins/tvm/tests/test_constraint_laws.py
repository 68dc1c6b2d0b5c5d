"""Constraint problems against what TVM makes of their solutions, on CPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from autotune_tvm.emit import module_for
from autotune_tvm.replay import schedule
from oracles.constraints import completed
from tvm import s_tir, tirx
from tvm_lowered import LoweredNest, lowered_nest

from autotune.ir.workloads import batch_matmul, conv2d, gemm
from autotune.sketches import STEP_TYPES, Candidate, PadExtent, Sketch
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.spaces.feasible import build_feasible_set
from autotune.spaces.problems import problem_of
from autotune.targets import preset

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")
TARGET = preset("skylake-avx512-4core")
POINTS = 2


def sketches() -> Iterator[Sketch]:
    for workload in (
        gemm(m=37, n=64, k=24),
        batch_matmul(b=3, m=8, n=32, k=20),
        conv2d(h=13, w=12, ci=8, co=32, pad=1, stride=2),
    ):
        yield from SketchSpace(workload, TARGET, LIMITS).sketches()


EVERY_SKETCH = pytest.mark.parametrize(
    "sketch", list(sketches()), ids=lambda sketch: f"{sketch.workload.name}-{sketch.name}"
)


def replayed(sketch: Sketch, row: tuple[int, ...]) -> s_tir.Schedule:
    candidate = Candidate(sketch, row)
    return schedule(module_for(sketch.workload), candidate, sketch.workload)


def points(sketch: Sketch) -> Iterator[tuple[dict[str, int], s_tir.Schedule]]:
    """Solutions of the sketch's problem, and TVM's schedules of them."""
    for row in build_feasible_set(sketch).uniform(POINTS, 5).tolist():
        yield completed(sketch, row), replayed(sketch, tuple(row))


def kinds(sketch: Sketch) -> dict[str, str]:
    return {variable.name: variable.kind for variable in problem_of(sketch).variables}


@EVERY_SKETCH
def test_memory_variables_are_what_tvm_allocates(sketch: Sketch) -> None:
    """Law `mem`: bytes of every buffer, and of all buffers of a scope."""
    kind = kinds(sketch)
    for point, scheduled in points(sketch):
        lowered = lowered_nest(scheduled.mod)
        allocated = [4 * math.prod(shape) for shape in lowered.allocations]
        named = {name: value for name, value in point.items() if kind[name] == "memory"}
        assert {v for n, v in named.items() if n.endswith(" bytes")} == set(allocated)
        for scope in set(lowered.scopes):
            whole = named.get(f"{scope} memory", sum(allocated))
            assert whole == sum(
                size for size, of in zip(allocated, lowered.scopes, strict=True) if of == scope
            )


@EVERY_SKETCH
def test_every_reduction_is_inside_a_parallel_loop(sketch: Sketch) -> None:
    """Law `parallel-reach`: what takes the time runs on all threads that the point has."""
    for _, scheduled in points(sketch):
        root = scheduled.get_sblock("root")
        reached = []
        for block in scheduled.get_child_blocks(root):
            iterations = scheduled.get(block).iter_vars
            if any(it.iter_type == tirx.IterVar.CommReduce for it in iterations):
                loops = map(scheduled.get, scheduled.get_loops(block))
                reached.append(
                    max(
                        int(loop.extent) if loop.kind == tirx.ForKind.PARALLEL else 0
                        for loop in loops
                    )
                )
        assert reached
        assert min(reached) >= TARGET.cores


def products(lowered: LoweredNest) -> int:
    """How often the innermost statement of all runs."""
    return max(math.prod(extents) for extents in lowered.stores)


@EVERY_SKETCH
def test_programs_are_the_problem_that_was_asked_for(sketch: Sketch) -> None:
    """Law `shape-honest`: arguments keep their shapes, and nothing is left out of the work."""
    workload = sketch.workload
    stage = next(stage for stage in workload.stages if stage.reduce_axes)
    expected = math.prod(axis.extent for axis in stage.axes)
    shapes = [tensor.shape for tensor in workload.inputs]
    shapes += [workload.stage(name).output.shape for name in workload.outputs]
    padded = any(isinstance(step, PadExtent) for step in sketch.steps)
    for _, scheduled in points(sketch):
        found = [tuple(map(int, param.shape)) for param in scheduled.mod["main"].params]
        assert found == shapes
        done = products(lowered_nest(scheduled.mod))
        assert done >= expected if padded else done == expected
