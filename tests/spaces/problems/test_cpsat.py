"""The fallback by CP-SAT: what it finds are solutions, and failing is an error of its own."""

from __future__ import annotations

import numpy as np
import pytest
from heron_problems import dl_boost_gemm, vta_gemm
from hypothesis import given
from made_problems import made_problems
from oracles.constraints import brute_force, is_solution

from autotune.ir.expressions import const, var
from autotune.spaces.problems import ConstraintProblem, Equal, IntRange, Product, Variable
from autotune.spaces.problems.cpsat import CpSatSampler, SamplingFailed

pytest.importorskip("ortools")


@given(made_problems())
def test_solutions_are_solutions_where_there_are_any(problem: ConstraintProblem) -> None:
    sampler = CpSatSampler(problem)
    if not brute_force(problem):
        with pytest.raises(SamplingFailed, match="'made' has no solution"):
            sampler.sample(1, 0)
        return
    assert all(is_solution(problem, row) for row in map(tuple, sampler.sample(2, 0).tolist()))


@given(made_problems())
def test_enumeration_is_complete(problem: ConstraintProblem) -> None:
    """And stops where it is told to."""
    expected, sampler = brute_force(problem), CpSatSampler(problem, budget=10.0)
    found = sampler.enumerate(len(expected) + 1).tolist()
    assert len(found) == len(expected)
    assert set(map(tuple, found)) == expected
    some = len(expected) // 2
    assert len(sampler.enumerate(some)) == some


@pytest.mark.parametrize("problem", [dl_boost_gemm(64, 64, 64), vta_gemm(64, 128, 64)])
def test_one_seed_gives_the_same_rows_in_any_order(problem: ConstraintProblem) -> None:
    rows = CpSatSampler(problem).sample(6, 3)
    assert all(is_solution(problem, row) for row in map(tuple, rows.tolist()))
    again = CpSatSampler(problem)
    np.testing.assert_array_equal(again.sample(2, 3, 4), rows[4:])
    np.testing.assert_array_equal(again.sample(4, 3), rows[:4])


def test_a_spent_budget_is_no_silence() -> None:
    """Factors of a product of two primes near 30000."""
    factors = tuple(Variable(name, IntRange(2, 2**20)) for name in "pq")
    product = Product(const(29989 * 30011), (var("p") + 1, var("q") + 2))
    problem = ConstraintProblem("primes", factors, (product,))
    with pytest.raises(SamplingFailed, match="'primes': CP-SAT found no solution within"):
        CpSatSampler(problem, budget=1e-9).sample(1, 0)
    with pytest.raises(SamplingFailed, match="'primes': CP-SAT found 0 solutions within"):
        CpSatSampler(problem, budget=1e-9).enumerate(3)


def test_contradictions_are_told_apart() -> None:
    problem = ConstraintProblem("one", (Variable("a", (1, 2)),), (Equal(var("a") * 2, const(3)),))
    with pytest.raises(SamplingFailed, match="'one' has no solution"):
        CpSatSampler(problem).sample(1, 0)
