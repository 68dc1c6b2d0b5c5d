"""Constraint problems have the points of feasible sets, and contradictions few limits."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from made_sketches import made_sketches, sketch_of
from oracles.constraints import completed, is_solution
from oracles.feasible import brute_force

from autotune.ir.expressions import const, var
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Workload, conv2d, gemm, softmax
from autotune.nest import derive_nest
from autotune.sketches import (
    STEP_TYPES,
    AtLeast,
    AtMost,
    Constraint,
    Factor,
    OneOf,
    Ordinal,
    PadExtent,
    ProductEquals,
    Sketch,
    Tile,
)
from autotune.sketches.intrinsics import find_intrinsic
from autotune.spaces import ScheduleLimits, SketchSpace, SpaceContext
from autotune.spaces.feasible import build_feasible_set
from autotune.spaces.problems import (
    ConstraintProblem,
    ContradictoryConstraints,
    Demand,
    describe_problem,
    problem_of,
    require_solutions,
    smallest_conflict,
)
from autotune.spaces.rules import intrinsic_sketch
from autotune.spaces.sketch_space import make_sketch_space
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


EVERY_SKETCH = pytest.mark.parametrize(
    "sketch", SKETCHES, ids=lambda sketch: f"{sketch.workload.name}-{sketch.name}"
)


@EVERY_SKETCH
def test_solutions_are_the_feasible_configurations(sketch: Sketch) -> None:
    """Of all ways to split the loops, those that the limits leave; with the bytes of buffers."""
    splits = [item for item in sketch.constraints if isinstance(item, ProductEquals)]
    every = build_feasible_set(evolve(sketch, constraints=tuple(splits))).uniform(40, 1)
    feasible = build_feasible_set(sketch)
    rows = np.vstack([every, feasible.uniform(20, 2)])
    problem, nest = problem_of(sketch), derive_nest(sketch)
    for row, inside in zip(rows.tolist(), feasible.contains(rows).tolist(), strict=True):
        point = completed(sketch, row)
        assert is_solution(problem, point) == inside
        for buffer in nest.buffers:
            known = point.get(f"{buffer.name} bytes")
            assert known in (None, evaluate(buffer.bytes, point))


@EVERY_SKETCH
def test_every_split_and_every_buffer_is_in_the_problem(sketch: Sketch) -> None:
    """Nothing that the steps cut or allocate is forgotten: loops of every split multiply to its
    axis, padded or not, and the bytes of every buffer are a variable's."""
    problem = problem_of(sketch)
    (row,) = build_feasible_set(sketch).uniform(1, 2).tolist()
    point = completed(sketch, row)
    demanded = [it.constraint for it in problem.constraints]
    products = {frozenset(c.factors): c for c in demanded if isinstance(c, ProductEquals)}
    padded = {(s.stage, s.axis): s.extent for s in sketch.steps if isinstance(s, PadExtent)}
    for step in sketch.steps:
        if isinstance(step, Tile) and all(factor.op == "var" for factor in step.factors):
            total = evaluate(products[frozenset(map(repr, step.factors))].total, point)
            extent = padded.get((step.stage, step.axis))
            if extent is not None:
                assert total == evaluate(extent, point)
            elif step.stage in {stage.name for stage in sketch.workload.stages}:
                assert total == sketch.workload.stage(step.stage).axis(step.axis).extent
    sizes = {point[v.name] for v in problem.variables if v.kind == "memory"}
    for buffer in derive_nest(sketch).buffers:
        assert evaluate(buffer.bytes, point) in sizes


def texts_of(name: str) -> dict[str, str]:
    """Lines of the problem of a sketch, with their origins."""
    problem = problem_of(next(it for it in SKETCHES if it.name == name))
    defined = {it.text: it.step for it in problem.variables if it.meaning is not None}
    return defined | {it.text: it.origin for it in problem.constraints}


def test_every_product_and_buffer_says_which_step_it_follows_from() -> None:
    texts = texts_of("packed-panel")
    assert texts["60 = C.i.0 * C.i.1 * C.i.2"] == "workload, tile C i"
    assert texts["32 = C.k.0 * C.k.1"] == "workload, tile C k"
    assert texts["B.pack bytes = 128*B.pack side 2"] == "pack C B j.1"
    texts = texts_of("direct")
    assert texts["C.init loop C.i.0*C.j.0 = C.i.0*C.j.0"] == "parallel C"
    assert texts["C.tile bytes <= 2048"] == (
        "test: accumulate tile on the stack, accumulate C i.1"
    )


def test_regions_of_convolutions_have_their_halo() -> None:
    """Two rows apart, three high: twice the outputs and one more."""
    sketch = next(s for s in SKETCHES if any("P.pack" in repr(b) for b in derive_nest(s).buffers))
    texts = [variable.text for variable in problem_of(sketch).variables]
    (height,) = [text for text in texts if text.startswith("P.pack side 1 = ")]
    assert "2*Y.ho.1*Y.ho.2 + 1" in height


def test_descriptions_have_a_line_for_each_constraint() -> None:
    problem = problem_of(SKETCHES[0])
    text = describe_problem(problem, 12)
    assert f"digest {problem.digest}" in text
    assert "12 solutions" in text
    for line in (*problem.variables, *problem.constraints):
        assert line.text in text
    assert any("soft" in line and "vector registers" in line for line in text.splitlines())


def test_digests_tell_problems_apart_and_nothing_else() -> None:
    problem, other = map(problem_of, SKETCHES[:2])
    turned = evolve(
        problem,
        name="other",
        variables=problem.variables[::-1],
        constraints=tuple(evolve(item, step="") for item in problem.constraints[::-1]),
    )
    assert turned.digest == problem.digest != other.digest
    assert evolve(problem, constraints=problem.constraints[1:]).digest != problem.digest


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (ProductEquals(("a", "b"), const(12)), "12 = a * b"),
        (OneOf(var("a"), (1,), ""), "a = 1"),
        (AtMost(var("a") * 4, 64, ""), "4*a <= 64"),
        (AtLeast(var("a"), 4, ""), "a >= 4"),
        (OneOf((var("a") + 1) % var("v"), (0,), ""), "v divides a + 1"),
        (OneOf(var("a"), tuple(range(20)), ""), "a in {0, 1, 2, 3, 4, 5, ..., 19}"),
    ],
)
def test_words_and_json(constraint: Constraint, text: str) -> None:
    demand = Demand(constraint, "tile C i")
    assert demand.text == text
    (written,) = ConstraintProblem("one", (), (demand,)).to_json()["constraints"]
    assert written["step"] == "tile C i" and written["hard"] and json.dumps(written)


@pytest.mark.parametrize("name", ["wmma-16x16x16", "mma-m16n8k16", "vta-1x16x16"])
def test_spaces_of_instructions_without_hardware(name: str) -> None:
    intrinsic = find_intrinsic(name)
    sketch = intrinsic_sketch(gemm(m=64, n=1024, k=4096), "C", intrinsic)
    problem = problem_of(sketch)
    assert tuple(variable.name for variable in problem.variables) == sketch.param_names
    for row in build_feasible_set(sketch).uniform(20, 1).tolist():
        assert is_solution(problem, completed(sketch, row))
    origins = " ".join(it.origin for it in problem.constraints)
    assert all(f"bytes of {scope}" in origins for scope in intrinsic.capacities)


@given(made_sketches())
def test_no_smaller_set_contradicts(sketch: Sketch) -> None:
    splits = [item for item in sketch.constraints if isinstance(item, ProductEquals)]
    limits = [item for item in sketch.constraints if not isinstance(item, ProductEquals)]

    def solutions(chosen: tuple[object, ...]) -> object:
        return brute_force(evolve(sketch, constraints=(*splits, *chosen)))

    conflict = smallest_conflict(sketch)
    if conflict is None:
        assert brute_force(sketch)
        return
    assert not solutions(conflict)
    if conflict:
        for fewer in itertools.combinations(limits, len(conflict) - 1):
            assert solutions(fewer)


def test_one_sentence_names_the_conflict() -> None:
    """And what else there is has no part in it."""
    sketch = sketch_of(
        [Factor("a"), Ordinal("b", (1, 2, 3)), Ordinal("c", (1, 2))],
        [
            ProductEquals(("a", "b"), const(12)),
            AtMost(var("c"), 2, "taste"),
            AtMost(var("a"), 3, "tvm: unrolled body"),
            AtLeast(var("b") + var("c"), 2, "taste"),
        ],
    )
    with pytest.raises(ContradictoryConstraints) as caught:
        require_solutions(sketch)
    assert str(caught.value) == (
        "problem 'made' has no solution: 12 = a * b (workload); a <= 3 (tvm: unrolled body); "
        "with a in 1 .. 12, b in {1, 2, 3}"
    )


def test_splits_that_contradict_themselves() -> None:
    sketch = sketch_of([Ordinal("a", (5, 7))], [ProductEquals(("a",), const(12))])
    assert smallest_conflict(sketch) == ()
    with pytest.raises(ContradictoryConstraints, match=r"12 = a \(workload\); with a in \{5, 7\}"):
        require_solutions(sketch)


def test_an_empty_space_names_what_contradicts() -> None:
    """No tile fits into four bytes of stack when a vector takes sixty-four."""
    narrow = ScheduleLimits(frozenset(STEP_TYPES), 4, 512, "tiny")
    workload, target = gemm(m=64, n=64, k=64), preset("avx512")
    with pytest.raises(ContradictoryConstraints) as caught:
        make_sketch_space(SpaceContext(workload=workload, target=target, limits=narrow))
    message = str(caught.value)
    assert "tiny: accumulate tile on the stack" in message
    assert "C.tile bytes <= 4" in message
    assert "C.tile bytes = " in message and "64 = C.i.0" in message
    assert "C.k" not in message, "the tile has no part of k"


def test_what_has_solutions_is_left_alone() -> None:
    require_solutions(sketch_of([Factor("a")], [ProductEquals(("a",), const(12))]))
