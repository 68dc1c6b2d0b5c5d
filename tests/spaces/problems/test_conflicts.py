"""Contradictions are explained by as few limits as possible."""

from __future__ import annotations

import itertools

import pytest
from attrs import evolve
from hypothesis import given
from made_sketches import made_sketches, sketch_of
from oracles.feasible import brute_force

from autotune.ir.expressions import const, var
from autotune.ir.workloads import gemm
from autotune.sketches import (
    STEP_TYPES,
    AtLeast,
    AtMost,
    Factor,
    Ordinal,
    ProductEquals,
    Sketch,
)
from autotune.spaces import ScheduleLimits, SpaceContext
from autotune.spaces.factory import make_sketch_space
from autotune.spaces.problems import (
    ContradictoryConstraints,
    require_solutions,
    smallest_conflict,
)
from autotune.targets import preset


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
