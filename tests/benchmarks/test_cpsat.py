"""Configurations that CP-SAT finds are feasible, and failing is an error of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import benchmark_scripts
from hypothesis import given
from made_sketches import made_sketches, sketch_of
from oracles.feasible import brute_force

from autotune.ir.expressions import const, var
from autotune.sketches import OneOf, Ordinal, ProductEquals, Sketch

pytestmark = pytest.mark.needs("ortools")


@pytest.fixture(scope="module")
def cpsat() -> Iterator[Any]:
    with benchmark_scripts("support.cpsat") as (module,):
        yield module


def rows(matrix: Any) -> list[tuple[int, ...]]:
    return list(map(tuple, matrix.tolist()))


@given(made_sketches())
def test_configurations_are_those_of_brute_force(cpsat: Any, sketch: Sketch) -> None:
    """All of them, as many as are asked for, each the same in any order of asking."""
    expected, sampler = brute_force(sketch), cpsat.CpSatSampler(sketch, budget=10.0)
    found = rows(sampler.enumerate(len(expected) + 1))
    assert len(found) == len(expected) and set(found) == expected
    if not expected:
        with pytest.raises(cpsat.SamplingFailed, match="'made' has no configuration"):
            sampler.sample(1, 0)
        return
    assert len(sampler.enumerate(len(expected) // 2 + 1)) == len(expected) // 2 + 1
    drawn = sampler.sample(3, 3)
    assert set(rows(drawn)) <= expected
    np.testing.assert_array_equal(cpsat.CpSatSampler(sketch).sample(1, 3, 2), drawn[2:])


def test_a_spent_budget_is_no_silence(cpsat: Any) -> None:
    """Factors of a product of two primes near 30000."""
    factors = [Ordinal(name, tuple(range(2, 2**15))) for name in "pq"]
    product = OneOf((var("p") + 1) * (var("q") + 2), (29989 * 30011,), "primes")
    sampler = cpsat.CpSatSampler(sketch_of(factors, [product]), budget=1e-9)
    with pytest.raises(cpsat.SamplingFailed, match="CP-SAT found no solution within"):
        sampler.sample(1, 0)
    with pytest.raises(cpsat.SamplingFailed, match="CP-SAT found 0 solutions within"):
        sampler.enumerate(3)


def test_contradictions_are_told_apart(cpsat: Any) -> None:
    split = ProductEquals(("a",), const(3))
    with pytest.raises(cpsat.SamplingFailed, match="'made' has no configuration"):
        cpsat.CpSatSampler(sketch_of([Ordinal("a", (1, 2))], [split])).sample(1, 0)
