from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sketches import made_sketches, sketch_of
from oracles.feasible import brute_force, domain, factorization_count, joined_rows

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const, var
from autotune.ir.workloads import Workload, conv2d, gemm, softmax
from autotune.sketches import (
    STEP_TYPES,
    AtLeast,
    AtMost,
    Constraint,
    Factor,
    OneOf,
    Ordinal,
    Param,
    ProductEquals,
    Sketch,
)
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.spaces.feasible import FeasibleSet, build_feasible_set
from autotune.spaces.feasible.build import ordered_factorizations
from autotune.targets import preset

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")


def check_against_brute_force(sketch: Sketch) -> FeasibleSet:
    expected = brute_force(sketch)
    feasible = build_feasible_set(sketch)
    rows = list(feasible.enumerate())
    assert len(rows) == len(set(rows)) == feasible.count
    assert set(rows) == expected
    domains = [domain(sketch, param) for param in sketch.params]
    everything = list(itertools.islice(itertools.product(*domains), 3000))
    contained = feasible.contains(
        np.array(everything, dtype=np.int64).reshape(len(everything), -1)
    )
    assert contained.tolist() == [row in expected for row in everything]
    return feasible


@given(made_sketches())
def test_the_feasible_set_is_what_brute_force_finds(sketch: Sketch) -> None:
    check_against_brute_force(sketch)


@pytest.mark.parametrize(
    "workload",
    [gemm(m=4, n=16, k=4), gemm(m=5, n=33, k=2), gemm(m=1, n=7, k=6), softmax(m=12, n=5)],
    ids=lambda workload: str(workload.parameters),
)
def test_the_feasible_set_of_generated_sketches(workload: Workload) -> None:
    space = SketchSpace(workload, preset("skylake-avx512-2core"), LIMITS)
    total = 0
    for sketch in space.sketches():
        total += check_against_brute_force(sketch).count
    assert space.count() == total


@pytest.mark.parametrize(
    "workload",
    [gemm(m=96, n=128, k=60), conv2d(h=14, w=14, ci=16, co=32, pad=1, bias=1, relu=1)],
    ids=lambda workload: str(workload.parameters),
)
def test_larger_sketches_against_joined_rows(workload: Workload) -> None:
    for sketch in SketchSpace(workload, preset("skylake-avx512-4core"), LIMITS).sketches():
        feasible, rows = build_feasible_set(sketch), joined_rows(sketch)
        assert feasible.count == len(rows)
        assert set(feasible.enumerate()) == rows


def test_rows_that_are_no_configuration_are_not_contained() -> None:
    sketch = sketch_of(
        [Factor("a"), Factor("b")],
        [ProductEquals(("a", "b"), const(12)), AtMost(var("a") * var("b"), 12, "test")],
    )
    huge, low = 2**62, -(2**63)
    rows = np.array([[3, 4], [0, 0], [-3, -4], [huge, huge], [low, low], [12, 1]])
    contained = build_feasible_set(sketch).contains(rows)
    assert contained.tolist() == [True, False, False, False, False, True]


@pytest.mark.parametrize("limit", [2, 3])
def test_constraints_may_be_constant(limit: int) -> None:
    check_against_brute_force(
        sketch_of([Ordinal("a", (1, 2, 3))], [AtMost(const(3), limit, "test")])
    )


def test_values_may_be_listed_in_any_order_and_twice() -> None:
    sketch = sketch_of([Ordinal("a", (4, 1, 4, 2))], [AtLeast(var("a"), 2, "test")])
    assert list(build_feasible_set(sketch).enumerate()) == [(2,), (4,)]


def test_a_sketch_without_parameters_has_one_configuration() -> None:
    feasible = build_feasible_set(sketch_of([], []))
    assert feasible.count == 1 and list(feasible.enumerate()) == [()]
    assert feasible.uniform(3, 0).shape == feasible.stratified(3, 0).shape == (3, 0)
    empty = np.zeros((2, 0), dtype=np.int64)
    assert feasible.contains(empty).all()
    assert (
        feasible.neighbours(empty, 0).shape == feasible.crossover(empty, empty, 0).shape == (2, 0)
    )


@pytest.mark.parametrize(
    ("params", "constraints"),
    [
        ([Factor("a"), Factor("b", (3,))], [ProductEquals(("a", "b"), const(4))]),
        ([Ordinal("a", (1, 2))], [AtLeast(var("a"), 3, "x")]),
        (
            [Ordinal("a", (1, 2)), Ordinal("b", (1, 2))],
            [AtLeast(var("a") * var("b"), 5, "x")],
        ),
        ([Ordinal("a", ()), Ordinal("b", (1, 2))], [AtMost(var("a") * var("b"), 5, "x")]),
        ([Ordinal("a", (1, 2)), Ordinal("b", (1,))], [OneOf(var("a") * var("b"), (), "x")]),
    ],
)
def test_contradictions_leave_nothing(params: list[Param], constraints: list[Constraint]) -> None:
    feasible = build_feasible_set(sketch_of(params, constraints))
    assert feasible.count == 0 and list(feasible.enumerate()) == []
    rows = np.array([[1, 2]], dtype=np.int64)[:, : len(params)]
    assert not feasible.contains(rows).any()
    assert feasible.restrict({"a": [1]}).count == 0
    for draw in (feasible.uniform, feasible.stratified):
        with pytest.raises(InvalidValueError, match="'made' has no feasible configuration"):
            draw(1, 0)
    with pytest.raises(InvalidValueError, match="'made' has no feasible configuration"):
        feasible.neighbours(rows, 0)
    with pytest.raises(InvalidValueError, match="'made' has no feasible configuration"):
        feasible.crossover(rows, rows, 0)


@pytest.mark.parametrize(
    ("params", "constraints", "message"),
    [
        ([Factor("a")], [], "factor 'a' belongs to no product"),
        (
            [Factor("a"), Factor("b")],
            [ProductEquals(("a", "b"), const(4)), ProductEquals(("b",), const(2))],
            r"\['b'\] belong to two products",
        ),
        ([Factor("a")], [ProductEquals(("a", "a"), const(4))], r"\['a'\] belong to two products"),
        (
            [Factor("a"), Ordinal("t", (2, 4))],
            [ProductEquals(("a",), 2 * var("t"))],
            "a constant or a parameter that lists its values",
        ),
        ([Factor("a")], [ProductEquals(("a",), const(0))], "from 1 to 2..50, not 0"),
        ([Factor("a")], [ProductEquals(("a",), const(2**70))], "factorizations of 1180591620"),
    ],
)
def test_malformed_sketches_are_refused(
    params: list[Param], constraints: list[Constraint], message: str
) -> None:
    with pytest.raises(InvalidValueError, match=message):
        build_feasible_set(sketch_of(params, constraints))


def test_what_joins_too_much_is_refused() -> None:
    params: list[Param] = [Ordinal(name, tuple(range(1, 1001))) for name in "abc"]
    sketch = sketch_of(params, [OneOf(var("a") * var("b") * var("c") % 7, (5,), "test")])
    with pytest.raises(InvalidValueError, match="join too many parameters .more than 100000 comb"):
        build_feasible_set(sketch, limit=100_000)


def test_bounds_keep_a_join_small() -> None:
    """All but two of 64 million combinations are ruled out before they are looked at."""
    params: list[Param] = [Ordinal(name, tuple(range(1, 8001))) for name in "ab"]
    sketch = sketch_of(params, [OneOf(var("a") * var("b"), (5,), "test")])
    assert list(build_feasible_set(sketch, limit=100_000).enumerate()) == [(1, 5), (5, 1)]


@given(st.integers(1, 2000), st.integers(1, 4))
def test_factorizations_are_as_many_as_the_binomials_say(total: int, parts: int) -> None:
    rows = ordered_factorizations(total, [None] * parts)
    assert rows.shape == (factorization_count(total, parts), parts)
    assert (rows.prod(axis=1) == total).all()
    listed = list(map(tuple, rows.tolist()))
    assert listed == sorted(set(listed))


def test_factorizations_inside_domains() -> None:
    rows = ordered_factorizations(48, [None, (1, 2, 3), (16, 4)])
    assert rows.tolist() == [[1, 3, 16], [3, 1, 16], [4, 3, 4], [6, 2, 4], [12, 1, 4]]
    assert ordered_factorizations(7, [(2,), None]).shape == (0, 2)
    assert ordered_factorizations(8, [(-2, 0, 2), None]).tolist() == [[2, 4]]


@pytest.mark.parametrize("domains", [[], [None] * 65])
def test_products_have_some_factors(domains: list[None]) -> None:
    with pytest.raises(InvalidValueError, match="from 1 to 64 factors"):
        ordered_factorizations(4, domains)


def test_too_many_factorizations_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="more than 4000000 factorizations"):
        ordered_factorizations(2**40, [None] * 12)
