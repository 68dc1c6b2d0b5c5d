"""Every sketch's constraint problem: the same points as its feasible set, and what they mean."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from oracles.constraints import value

from autotune.ir.expressions import var
from autotune.ir.workloads import Workload, conv2d, gemm, softmax
from autotune.nest import derive_nest
from autotune.sketches import STEP_TYPES, PadExtent, Sketch, Tile
from autotune.sketches.intrinsics import find_intrinsic
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.spaces.feasible import build_feasible_set
from autotune.spaces.plugged_rules import sketch_space_with_plugged_rules
from autotune.spaces.problems import (
    AtMost,
    ConstraintProblem,
    ContradictoryConstraints,
    Product,
    constraint_text,
    describe_problem,
    origin_text,
    problem_of,
    solve,
)
from autotune.spaces.rules import intrinsic_sketch
from autotune.targets import preset

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 2048, 512, "test")


def sketches() -> Iterator[Sketch]:
    convolution = conv2d(n=1, ci=8, h=13, w=13, co=32, kh=3, kw=3, stride=2, pad=1)
    workloads: list[tuple[Workload, str]] = [
        (gemm(m=60, n=64, k=32), "avx512"),
        (convolution, "avx2"),
        (softmax(m=30, n=64), "avx2"),
        (gemm(m=64, n=64, k=32), "a100"),
    ]
    for workload, target in workloads:
        yield from SketchSpace(workload, preset(target), LIMITS).sketches()


SKETCHES = list(sketches())


@pytest.mark.parametrize(
    "sketch", SKETCHES, ids=lambda sketch: f"{sketch.workload.name}-{sketch.name}"
)
def test_solutions_are_the_feasible_configurations(sketch: Sketch) -> None:
    """Counted independently, and the one contains what is drawn from the other."""
    problem, feasible = problem_of(sketch), build_feasible_set(sketch)
    solutions = solve(problem)
    assert solutions.count == feasible.count
    columns = [problem.variable_names.index(name) for name in sketch.param_names]
    drawn = solutions.sample(20, 1)
    assert feasible.contains(np.ascontiguousarray(drawn[:, columns])).all()
    names = problem.variable_names
    nest = derive_nest(sketch)
    for row in drawn.tolist():
        point = dict(zip(names, row, strict=True))
        for buffer in nest.buffers:
            known = point.get(f"{buffer.name} bytes")
            assert known in (None, value(buffer.bytes, point))
    assert ConstraintProblem.from_json(problem.to_json()) == problem


@pytest.mark.parametrize(
    "sketch", SKETCHES, ids=lambda sketch: f"{sketch.workload.name}-{sketch.name}"
)
def test_every_split_and_every_buffer_is_in_the_problem(sketch: Sketch) -> None:
    """Nothing that the steps cut or allocate is forgotten: loops of every split multiply to its
    axis, padded or not, and the bytes of every buffer are a variable's."""
    problem = problem_of(sketch)
    row = solve(problem).sample(1, 2)[0].tolist()
    point = dict(zip(problem.variable_names, row, strict=True))
    products = {frozenset(c.factors): c for c in problem.constraints if isinstance(c, Product)}
    padded = {(s.stage, s.axis): s.extent for s in sketch.steps if isinstance(s, PadExtent)}
    for step in sketch.steps:
        if isinstance(step, Tile) and all(factor.op == "var" for factor in step.factors):
            total = value(products[frozenset(step.factors)].total, point)
            extent = padded.get((step.stage, step.axis))
            if extent is not None:
                assert total == value(extent, point)
            elif step.stage in {stage.name for stage in sketch.workload.stages}:
                assert total == sketch.workload.stage(step.stage).axis(step.axis).extent
    sizes = {point[v.name] for v in problem.variables if v.kind == "memory"}
    for buffer in derive_nest(sketch).buffers:
        assert value(buffer.bytes, point) in sizes


def test_every_product_and_buffer_says_which_step_it_follows_from() -> None:
    sketch = next(s for s in SKETCHES if s.name == "packed-panel")
    texts = {constraint_text(c): origin_text(c) for c in problem_of(sketch).constraints}
    assert texts["60 = C.i.0 * C.i.1 * C.i.2"] == "workload, tile C i"
    assert texts["32 = C.k.0 * C.k.1"] == "workload, tile C k"
    assert texts["B.pack bytes = 1 * 32 * B.pack side 2 * 4"] == "allocation, pack C B j.1"
    direct = next(s for s in SKETCHES if s.name == "direct")
    texts |= {constraint_text(c): origin_text(c) for c in problem_of(direct).constraints}
    assert texts["C.init loop C.i.0*C.j.0 = C.i.0 * C.j.0"] == "loop nest, parallel C"
    assert texts["C.tile bytes <= 2048"] == (
        "test: accumulate tile on the stack, accumulate C i.1"
    )


def test_regions_of_convolutions_have_their_halo() -> None:
    """Two rows apart, three high: twice the outputs and one more."""
    sketch = next(s for s in SKETCHES if any("P.pack" in repr(b) for b in derive_nest(s).buffers))
    texts = list(map(constraint_text, problem_of(sketch).constraints))
    (height,) = [text for text in texts if text.startswith("P.pack side 1 = ")]
    assert "2*Y.ho.1*Y.ho.2 + 1" in height


def test_lowering_a_capacity_never_adds_points() -> None:
    problem = problem_of(next(s for s in SKETCHES if s.name == "packed-panel"))
    counts = []
    for most in (2048, 1024, 512, 64):
        bound = AtMost(var("C.tile bytes"), var("C.tile bytes") * 0 + most)
        bounded = ConstraintProblem("bounded", problem.variables, (*problem.constraints, bound))
        counts.append(solve(bounded).count)
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == solve(problem).count > counts[-1] > 0


def test_descriptions_have_a_line_for_each_constraint() -> None:
    problem = problem_of(SKETCHES[0])
    text = describe_problem(problem, 12)
    assert f"digest {problem.digest}" in text
    assert "12 solutions" in text
    for constraint in problem.constraints:
        assert constraint_text(constraint) in text
    assert any("soft" in line and "vector registers" in line for line in text.splitlines())


def test_an_empty_space_names_what_contradicts() -> None:
    """No tile fits into four bytes of stack when a vector takes sixty-four."""
    narrow = ScheduleLimits(frozenset(STEP_TYPES), 4, 512, "tiny")
    with pytest.raises(ContradictoryConstraints) as caught:
        sketch_space_with_plugged_rules(gemm(m=64, n=64, k=64), preset("avx512"), narrow)
    assert "tiny: accumulate tile on the stack" in str(caught.value)
    assert "C.tile bytes <= 4" in str(caught.value)


@pytest.mark.parametrize("name", ["wmma-16x16x16", "mma-m16n8k16", "vta-1x16x16"])
def test_spaces_of_instructions_without_hardware(name: str) -> None:
    intrinsic = find_intrinsic(name)
    sketch = intrinsic_sketch(gemm(m=64, n=1024, k=4096), "C", intrinsic)
    problem, feasible = problem_of(sketch), build_feasible_set(sketch)
    solutions = solve(problem)
    assert solutions.count == feasible.count > 0
    drawn = solutions.sample(20, 1)
    assert problem.variable_names == sketch.param_names
    assert feasible.contains(drawn).all()
    origins = " ".join(map(origin_text, problem.constraints))
    assert all(f"bytes of {scope}" in origins for scope in intrinsic.capacities)
