"""Loops over keys that end where a causal mask hides the rest."""

from __future__ import annotations

import math

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_sketches import LIMITS, TARGET, load

from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    ScalarExpr,
    Select,
    Unary,
    var,
)
from autotune.ir.expressions.integer import evaluate
from autotune.ir.expressions.scalar import transform
from autotune.ir.workloads import Workload, attention
from autotune.ir.workloads.inputs import random_inputs
from autotune.ir.workloads.reference import evaluate_body
from autotune.nest import derive_nest, describe
from autotune.sketches import BoundLoop, Candidate, Sketch
from autotune.spaces import BUILT_IN_RULES, ScheduleLimits, SketchSpace
from autotune.spaces.rules import generate_sketches
from autotune.spaces.rules.attention_tiles import ATTENTION_LABEL, shown_columns
from autotune.spaces.sketch_space import loosen
from autotune.testing.programs import check_nest

ALL = {"Y", "A", "R", "E", "M_partial", "S_partial"}


def tiled(workload: Workload, limits: ScheduleLimits = LIMITS) -> Sketch:
    made = generate_sketches(workload, TARGET, limits, BUILT_IN_RULES).sketches
    (sketch,) = (it for it in made if it.name.split("+")[0] == ATTENTION_LABEL)
    return sketch


def bounded(workload: Workload, limits: ScheduleLimits = LIMITS) -> set[str]:
    """Stages of which a loop is bounded."""
    return {it.stage for it in tiled(workload, limits).steps if isinstance(it, BoundLoop)}


def masked(
    offset: int = 0, lowest: float = -math.inf, n: int = 16, added: bool = False
) -> Workload:
    """An attention in which a query sees keys up to ``offset`` behind it.

    Args:
        offset: May be negative.
        lowest: In place of what is hidden.
        n: Queries and keys.
        added: Whether an input is added to what is seen.
    """
    workload = attention(h=1, n=n, d=16, causal=1)

    def change(node: ScalarExpr) -> ScalarExpr | None:
        if not isinstance(node, Select):
            return None
        seen = Binary("gt", IndexValue(var("i") + (offset + 1)), IndexValue(var("j")))
        shown = Binary("add", node.on_true, load("B", "b", "i", "j")) if added else node.on_true
        return Select(seen, shown, Constant(lowest, "float32"))

    stages = tuple(evolve(it, body=transform(it.body, change)) for it in workload.stages)
    (scores,) = (it.output for it in stages if it.name == "A")
    inputs = (*workload.inputs, *((evolve(scores, name="B"),) if added else ()))
    return evolve(workload, inputs=inputs, stages=stages, parameters={})


def with_zeros(n: int = 16, added: bool = False) -> Workload:
    """Scores and exponentials that are zero where they are hidden, as in Relax's attention."""
    workload = masked(n=n, lowest=0.0, added=added)
    seen = Binary("le", IndexValue(var("j")), IndexValue(var("i")))
    stages = tuple(
        evolve(it, body=Select(seen, it.body, Constant(0.0, "float32"))) if it.name == "E" else it
        for it in workload.stages
    )
    return evolve(workload, stages=stages)


@given(
    st.sampled_from(["lt", "le", "gt", "ge"]),
    st.tuples(st.integers(-3, 3), st.integers(-3, 3)),
    *(st.booleans() for _ in range(3)),
)
def test_a_condition_divides_the_columns_of_a_row(
    op: str, added: tuple[int, int], swapped: bool, cast: bool, negated: bool
) -> None:
    row, column = IndexValue(var("i") + added[0]), IndexValue(var("j") + added[1])
    first, second = (row, column) if swapped else (column, row)
    condition: ScalarExpr = Binary(op, Cast("int64", first) if cast else first, second)
    if negated:
        condition = Unary("not", condition)
    found = shown_columns(condition, "i", "j")
    assert found is not None
    rows, columns = np.ogrid[0:12, 0:12]
    holds = np.asarray(evaluate_body(condition, {"i": rows, "j": columns}, {}), dtype=np.bool_)
    offset, near = found
    np.testing.assert_array_equal(holds == near, columns <= rows + offset)


@pytest.mark.parametrize(
    "condition",
    [
        Binary("eq", IndexValue(var("j")), IndexValue(var("i"))),
        Binary("le", IndexValue(var("j") * 2), IndexValue(var("i"))),
        Binary("le", IndexValue(var("j") + var("b")), IndexValue(var("i"))),
        Binary("le", IndexValue(var("j")), Constant(4, "int64")),
        Binary("le", IndexValue(var("j") // 2), IndexValue(var("i"))),
        Binary("le", load("P", "j"), IndexValue(var("i"))),
        load("P", "i", "j"),
    ],
)
def test_other_conditions_do_not(condition: ScalarExpr) -> None:
    assert shown_columns(condition, "i", "j") is None


@pytest.mark.parametrize(
    ("workload", "stages"),
    [
        (attention(h=1, n=16, d=16, causal=1), ALL),
        (attention(h=1, n=16, d=16), set()),
        (masked(), ALL),
        (masked(3), ALL),
        (masked(lowest=-1e4), set()),  # a score may be as low
        (masked(-1), set()),  # the first query sees nothing
        # What is added may hide all keys, which then have equal weights, or none.
        (masked(lowest=-1e30, added=True), set()),
        (masked(added=True), ALL),
        (with_zeros(), ALL - {"M_partial"}),  # zeros are among the scores
        (with_zeros(added=True), ALL - {"M_partial"}),
        (masked(n=72), {"Y", "A", "R"}),  # lanes leave a rest of the keys
    ],
)
def test_loops_that_are_bounded(workload: Workload, stages: set[str]) -> None:
    assert bounded(workload) == stages


def test_backends_without_the_step_compute_what_is_hidden() -> None:
    workload = attention(h=1, n=16, d=16, causal=1)
    without = evolve(LIMITS, steps=LIMITS.steps - {"bound_loop"})
    assert bounded(workload, without) == set()


def test_bounds_are_printed() -> None:
    text = describe(tiled(attention(h=1, n=16, d=16, causal=1)))
    assert "for Y.j.0 in Y.j.0 while j <= i + 0:" in text


@settings(max_examples=settings.default.max_examples // 8, deadline=None)
@given(
    st.sampled_from([8, 16, 24, 40, 64, 72, 136]),
    st.integers(0, 20),
    st.sampled_from(["masked", "biased", "zeros", "added"]),
    st.integers(0, 2**32),
)
def test_what_is_left_out_changes_nothing(n: int, offset: int, form: str, seed: int) -> None:
    """Elements that a loop leaves out are NaN in the interpreter, and nobody reads them."""
    if form in ("masked", "biased"):
        workload = masked(offset, n=n, added=form == "biased")
    else:
        workload = with_zeros(n, form == "added")
    sketch, feasible, _ = loosen(tiled(workload))
    inputs = random_inputs(workload, np.random.default_rng(seed))
    if form == "biased":
        # Some queries are shown no key at all, and have no weights that are numbers.
        inputs["B"][:, :, : n // 2] = -np.inf
    (row,) = feasible.uniform(1, seed).tolist()
    with np.errstate(invalid="ignore"):
        check_nest(Candidate(sketch, tuple(row)), inputs, tolerance=1e-5)


def test_half_of_the_products_is_computed() -> None:
    """Up to the tiles on the diagonal, in the counts that models see."""
    workload = attention(h=2, n=256, d=32, causal=1)
    space = SketchSpace(workload, TARGET, LIMITS)
    (sketch,) = (it for it in space.sketches() if it.name == ATTENTION_LABEL)
    nest = derive_nest(sketch)
    for row in space.feasible_set(sketch).uniform(20, 0).tolist():
        config = dict(zip(sketch.param_names, row, strict=True))
        for statement in nest.statements:
            if statement.name not in ("A", "Y", "E"):
                continue
            (place,) = (i for i, loop in enumerate(statement.loops) if loop.bound is not None)
            whole = math.prod(int(evaluate(it.extent, config)) for it in statement.loops)
            rows, columns = (
                int(evaluate(statement.reach(axis, place + 1), config)) for axis in ("i", "j")
            )
            tiles, rounds = 256 // rows, 256 // columns
            beyond = int(evaluate(statement.loops[place].bound.offset, config))
            run = sum(
                min(rounds, (tile * rows + rows - 1 + beyond) // columns + 1)
                for tile in range(tiles)
            )
            counted = int(evaluate(statement.trips(len(statement.loops)), config))
            # The mean does not round each row of tiles.
            least = whole * max(0, run - tiles / 2) / (tiles * rounds)
            assert least <= counted <= whole * min(1, (run + tiles / 2) / (tiles * rounds))
            assert run < tiles * rounds or rounds == 1 or tiles == 1
