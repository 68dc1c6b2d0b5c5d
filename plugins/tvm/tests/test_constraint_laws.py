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


@pytest.mark.parametrize(
    "sketch", list(sketches()), ids=lambda sketch: f"{sketch.workload.name}-{sketch.name}"
)
def test_solutions_are_what_tvm_makes_of_them(sketch: Sketch) -> None:
    """Laws `mem`, `parallel-reach` and `shape-honest`, of solutions of the sketch's problem."""
    kinds = {variable.name: variable.kind for variable in problem_of(sketch).variables}
    for row in build_feasible_set(sketch).uniform(POINTS, 5).tolist():
        scheduled = schedule(
            module_for(sketch.workload), Candidate(sketch, tuple(row)), sketch.workload
        )
        lowered = lowered_nest(scheduled.mod)
        point = completed(sketch, row)
        check_memory(
            {name: value for name, value in point.items() if kinds[name] == "memory"}, lowered
        )
        check_parallel_reach(scheduled)
        check_shapes(sketch, scheduled, lowered)


def check_memory(named: dict[str, int], lowered: LoweredNest) -> None:
    """Bytes of every buffer, and of all buffers of a scope, are those that TVM allocates."""
    allocated = [4 * math.prod(shape) for shape in lowered.allocations]
    assert {v for n, v in named.items() if n.endswith(" bytes")} == set(allocated)
    for scope in set(lowered.scopes):
        sizes = zip(allocated, lowered.scopes, strict=True)
        whole = named.get(f"{scope} memory", sum(allocated))
        assert whole == sum(size for size, of in sizes if of == scope)


def check_parallel_reach(scheduled: s_tir.Schedule) -> None:
    """The costly stages run on all threads that the point has: reductions are inside them."""
    reached = []
    for block in scheduled.get_child_blocks(scheduled.get_sblock("root")):
        iterations = scheduled.get(block).iter_vars
        if any(it.iter_type == tirx.IterVar.CommReduce for it in iterations):
            loops = map(scheduled.get, scheduled.get_loops(block))
            parallel = (it for it in loops if it.kind == tirx.ForKind.PARALLEL)
            reached.append(max((int(it.extent) for it in parallel), default=0))
    assert reached and min(reached) >= TARGET.cores


def check_shapes(sketch: Sketch, scheduled: s_tir.Schedule, lowered: LoweredNest) -> None:
    """Arguments keep their shapes, and nothing is left out of the work."""
    workload = sketch.workload
    shapes = [tensor.shape for tensor in workload.inputs]
    shapes += [workload.stage(name).output.shape for name in workload.outputs]
    assert [tuple(map(int, it.shape)) for it in scheduled.mod["main"].params] == shapes
    stage = next(stage for stage in workload.stages if stage.reduce_axes)
    expected = math.prod(axis.extent for axis in stage.axes)
    # How often the innermost statement of all runs.
    done = max(math.prod(extents) for extents in lowered.stores)
    padded = any(isinstance(step, PadExtent) for step in sketch.steps)
    assert done >= expected if padded else done == expected
