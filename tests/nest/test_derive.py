"""The derived nest against the same nest executed point by point."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve
from made_workloads import TINY_WORKLOADS, two_products
from oracles.nest import StatementWalk
from workload_names import named

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr, const
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Stage, Workload, dense, softmax
from autotune.nest import LoopNest, derive_nest, nest_tape
from autotune.sketches import Bind, Candidate, FuseConsumer, PadExtent, SharedLayout, Sketch
from autotune.spaces import SketchSpace

SpaceOf = Callable[[Workload], SketchSpace]


@pytest.fixture(params=TINY_WORKLOADS, ids=named)
def workload(request: pytest.FixtureRequest) -> Workload:
    found: Workload = request.param
    return found


@pytest.fixture
def cases(workload: Workload, space_of: SpaceOf) -> list[tuple[Candidate, LoopNest]]:
    """Three configurations of every sketch, and the nest."""
    space = space_of(workload)
    batch = space.sample(3 * len(space.sketches()), np.random.default_rng(7))
    return [(candidate, derive_nest(candidate.sketch)) for candidate in batch]


def number(expression: IntExpr, candidate: Candidate) -> int:
    return int(evaluate(expression, candidate.config))


def padded(candidate: Candidate, stage: Stage) -> dict[str, int]:
    """Extents of the axes that the loops of a stage run over."""
    extents = stage.extents
    for step in candidate.sketch.steps:
        if isinstance(step, PadExtent) and step.stage == stage.name:
            extents[step.axis] = number(step.extent, candidate)
    return extents


def test_a_stage_runs_once_at_every_point_of_its_padded_space(
    cases: list[tuple[Candidate, LoopNest]], workload: Workload
) -> None:
    for candidate, nest in cases:
        for statement in nest.statements:
            stage = nest.workload.stage(statement.stage)
            if statement.role not in ("compute", "init") or _follows(candidate, stage):
                continue
            kept = stage.axes if statement.role == "compute" else stage.spatial_axes
            extents = padded(candidate, stage)
            points = list(itertools.product(*(range(extents[axis.name]) for axis in kept)))
            walk = StatementWalk(nest, statement, candidate.config)
            seen = [tuple(axes[axis.name] for axis in kept) for axes in walk.loop_axes]
            assert sorted(seen) == points
            assert number(statement.trips(len(statement.loops)), candidate) == len(points)


def _follows(candidate: Candidate, stage: Stage) -> bool:
    """Tell whether the stage is fused into the tile of another, whose padding it runs over."""
    return any(
        isinstance(step, FuseConsumer) and step.stage == stage.name
        for step in candidate.sketch.steps
    )


def test_allocations_hold_the_region_of_all_who_use_them(
    cases: list[tuple[Candidate, LoopNest]],
) -> None:
    for candidate, nest in cases:
        for buffer in nest.buffers:
            allocated = number(buffer.elements, candidate)
            sizes = []
            for statement in nest.statements:
                for access in statement.accesses:
                    if access.buffer == buffer.name:
                        region = statement.region(access, buffer.depth)
                        sizes.append(math.prod(number(e, candidate) for e in region))
            assert max(sizes) <= allocated
            # Inside loops nothing is allocated that nobody touches.
            assert buffer.depth == 0 or max(sizes) == allocated


def test_buffers_are_allocated_around_their_users(
    cases: list[tuple[Candidate, LoopNest]],
) -> None:
    for _, nest in cases:
        names = [statement.name for statement in nest.statements]
        assert len(set(names)) == len(names)
        buffers = [buffer.name for buffer in nest.buffers]
        assert len(set(buffers)) == len(buffers)
        for buffer in nest.buffers:
            users = [
                statement
                for statement in nest.statements
                if any(access.buffer == buffer.name for access in statement.accesses)
            ]
            assert len(users) >= 2
            around = [[loop.name for loop in user.loops[: buffer.depth]] for user in users]
            assert all(names == around[0] for names in around)


def test_layouts_of_shared_memory_change_buffers_and_nothing_else(gpu_space_of: SpaceOf) -> None:
    for sketch in gpu_space_of(dense(m=64, n=96, k=128)).sketches():
        layouts = {it.operand: it for it in sketch.core_steps if isinstance(it, SharedLayout)}
        steps = tuple(it for it in sketch.core_steps if not isinstance(it, SharedLayout))
        nest, plain = derive_nest(sketch), derive_nest(evolve(sketch, steps=steps))
        assert layouts
        for buffer, other in zip(nest.buffers, plain.buffers, strict=True):
            layout = layouts.get(buffer.name.removesuffix(".fetch"))
            if layout is None:
                assert buffer.shape == other.shape
                continue
            shape = [other.shape[index] for index in layout.dims]
            assert buffer.shape == (*shape[:-1], shape[-1] + layout.pad)
            assert buffer.dims == (None if layout.dims == (0, 1) else layout.dims)
        for statement, other in zip(nest.statements, plain.statements, strict=True):
            extents = [loop.extent for loop in statement.loops]
            assert extents == [loop.extent for loop in other.loops]
            assert statement.accesses == other.accesses


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (SharedLayout("Y", "Q", (0, 1), const(4)), "no step fetches 'Q'"),
        (SharedLayout("Y", "X", (0, 2), const(4)), "no order of the 2 dimensions"),
    ],
)
def test_layouts_of_what_is_not_there(
    gpu_space_of: SpaceOf, step: SharedLayout, message: str
) -> None:
    sketch = gpu_space_of(dense(m=64, n=96, k=128)).sketches()[0]
    with pytest.raises(InvalidValueError, match=message):
        derive_nest(evolve(sketch, steps=(*sketch.steps, step)))


def test_rows_of_threads_are_around_the_threads_of_a_row() -> None:
    def nest(*bound: Bind) -> LoopNest:
        return derive_nest(Sketch("made", softmax(m=8, n=64), (), (), bound))

    rows, columns = Bind("Y", ("i.0",), "thread_y"), Bind("Y", ("j.0",), "thread")
    kinds = [loop.kind for loop in nest(rows, columns).statements[-1].loops]
    assert kinds == ["thread", "thread"]
    with pytest.raises(InvalidValueError, match="bound outermost first, thread_y first"):
        nest(columns, rows)


def test_threads_of_two_dimensions_fetch_nothing(gpu_space_of: SpaceOf) -> None:
    sketch = gpu_space_of(dense(m=64, n=96, k=128)).sketches()[0]
    steps = []
    for step in sketch.steps:
        if isinstance(step, Bind) and step.role == "thread":
            first, *others = step.loops
            steps += [evolve(step, loops=(first,), role="thread_y")]
            step = evolve(step, loops=tuple(others))
        steps.append(step)
    with pytest.raises(InvalidValueError, match="fetched by threads of two dimensions"):
        derive_nest(evolve(sketch, steps=tuple(steps)))


def test_two_stages_may_pack_one_operand(space_of: SpaceOf) -> None:
    """Each has a copy of its own, and quantities of its own on the tape."""
    space = space_of(two_products(32, 4))
    sketch = next(s for s in space.sketches() if s.name == "plain-rows+plain-rows")
    nest = derive_nest(sketch)
    copies = [statement.name for statement in nest.statements if statement.role == "pack"]
    assert copies == ["A.pack.C", "A.pack.D"]
    assert {"A.pack.C", "A.pack.D"} <= {buffer.name for buffer in nest.buffers}
    outputs = nest_tape(sketch).tape.output_index
    assert {"C/region/A.pack.C/0", "D/region/A.pack.D/0"} <= set(outputs)
