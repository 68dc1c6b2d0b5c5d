"""Contradictions are explained by as few constraints as possible."""

from __future__ import annotations

import itertools

import pytest
from attrs import evolve
from heron_problems import dl_boost_gemm
from hypothesis import given
from made_problems import made_problems
from oracles.constraints import brute_force

from autotune.ir.expressions import const, var
from autotune.spaces.problems import (
    AtLeast,
    AtMost,
    ConstraintProblem,
    ContradictoryConstraints,
    Equal,
    Origin,
    Product,
    Variable,
    require_solutions,
    smallest_conflict,
)


@given(made_problems())
def test_no_smaller_set_contradicts(problem: ConstraintProblem) -> None:
    conflict = smallest_conflict(problem)
    if conflict is None:
        assert brute_force(problem)
        return
    assert not brute_force(evolve(problem, constraints=conflict))
    for fewer in itertools.combinations(problem.constraints, len(conflict) - 1):
        assert brute_force(evolve(problem, constraints=fewer))


def test_one_sentence_names_the_conflict() -> None:
    problem = ConstraintProblem(
        "tiles",
        (Variable("a", tuple(range(1, 13))), Variable("b", (1, 2, 3)), Variable("c", (1, 2))),
        (
            Product(const(12), (var("a"), var("b")), origin=Origin("workload", "tile C i")),
            AtMost(var("c"), const(2)),
            AtMost(var("a"), const(3), origin=Origin("tvm: unrolled body", "unroll C")),
            AtLeast(var("b") + var("c"), const(2)),
        ),
    )
    with pytest.raises(ContradictoryConstraints) as caught:
        require_solutions(problem)
    assert str(caught.value) == (
        "problem 'tiles' has no solution: 12 = a * b (workload, tile C i); "
        "a <= 3 (tvm: unrolled body, unroll C); "
        "with a in {1, 2, 3, 4, 5, 6, ..., 12}, b in {1, 2, 3}"
    )


def test_an_intrinsic_that_fits_no_loop() -> None:
    """Sixteen columns belong to one instruction: eight cannot be cut into such."""
    problem = dl_boost_gemm(4, 8, 4)
    with pytest.raises(ContradictoryConstraints, match=r"j.cache = .*g1.* \* 16 \(tensorize\)"):
        require_solutions(problem)


def test_an_empty_domain_is_a_conflict_by_itself() -> None:
    problem = ConstraintProblem("empty", (Variable("a", ()),), (Equal(var("a"), const(1)),))
    assert smallest_conflict(problem) == ()
    with pytest.raises(ContradictoryConstraints, match=r"the domains alone; with a in \{\}"):
        require_solutions(problem)


def test_what_has_solutions_is_left_alone() -> None:
    require_solutions(dl_boost_gemm(2, 16, 4))
