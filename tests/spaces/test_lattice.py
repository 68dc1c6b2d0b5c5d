from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.expressions import IntExpr, const, maximum, var
from autotune.expressions.integer import evaluate
from autotune.sketches import (
    STEP_TYPES,
    AtLeast,
    AtMost,
    Categorical,
    Constraint,
    Factor,
    OneOf,
    Ordinal,
    Param,
    ProductEquals,
    Sketch,
)
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.spaces.lattice import Lattice, build_lattice, ordered_factorizations
from autotune.targets import preset
from autotune.workloads import Workload, gemm, softmax

# A busy machine is no reason to fail.
UNHURRIED = settings(deadline=None)

WORKLOAD = gemm(m=2, n=2, k=2)
LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")


def sketch_of(params: list[Param], constraints: list[Constraint]) -> Sketch:
    return Sketch("made", WORKLOAD, tuple(params), tuple(constraints), ())


def divisors(value: int) -> list[int]:
    return [divisor for divisor in range(1, value + 1) if value % divisor == 0]


def domain(sketch: Sketch, param: Param) -> list[int]:
    """Every value a parameter may have: for a factor, whatever divides one of its totals."""
    if param.values is not None:
        return sorted(set(param.values))
    totals: set[int] = set()
    for constraint in sketch.constraints:
        if isinstance(constraint, ProductEquals) and param.name in constraint.factors:
            value = constraint.total.value
            if value is not None:
                totals.add(value)
            else:
                (name,) = constraint.total.variables
                totals.update(next(p.values or () for p in sketch.params if p.name == name))
    return sorted({divisor for total in totals for divisor in divisors(total)})


def holds(constraint: Constraint, config: dict[str, int]) -> bool:
    if isinstance(constraint, ProductEquals):
        product = math.prod(config[name] for name in constraint.factors)
        return product == evaluate(constraint.total, config)
    value = evaluate(constraint.expression, config)
    if isinstance(constraint, AtMost):
        return bool(value <= constraint.limit)
    if isinstance(constraint, AtLeast):
        return bool(value >= constraint.limit)
    return value in constraint.values


def brute_force(sketch: Sketch) -> set[tuple[int, ...]]:
    """Every feasible row, by trying everything, in plain integers."""
    names = sketch.param_names
    domains = [domain(sketch, param) for param in sketch.params]
    return {
        row
        for row in itertools.product(*domains)
        if all(holds(c, dict(zip(names, row, strict=True))) for c in sketch.constraints)
    }


def check_against_brute_force(sketch: Sketch) -> Lattice | None:
    expected = brute_force(sketch)
    if not expected:
        with pytest.raises(InvalidValueError, match="has no feasible configuration"):
            build_lattice(sketch)
        return None
    lattice = build_lattice(sketch)
    rows = list(lattice.enumerate())
    assert len(rows) == len(set(rows)) == lattice.count
    assert set(rows) == expected
    domains = [domain(sketch, param) for param in sketch.params]
    everything = list(itertools.islice(itertools.product(*domains), 3000))
    contained = lattice.contains(np.array(everything, dtype=np.int64).reshape(len(everything), -1))
    assert contained.tolist() == [row in expected for row in everything]
    return lattice


# Sketches with a padded product, a plain one, an ordinal and a categorical parameter.
TOTALS = st.integers(1, 24)
VARIABLES = ("a0", "a1", "b0", "b1", "o", "c")


@st.composite
def expressions(draw: st.DrawFn) -> IntExpr:
    """Something that grows with every parameter, as the constraints of a sketch do."""
    names = draw(st.lists(st.sampled_from(VARIABLES), min_size=1, max_size=3, unique=True))
    result = const(draw(st.integers(0, 2)))
    for name in names:
        kind = draw(st.sampled_from(("add", "mul", "max")))
        factor = var(name) * draw(st.integers(1, 3))
        if kind == "add":
            result = result + factor
        elif kind == "mul":
            result = maximum(result, 1) * factor
        else:
            result = maximum(result, factor)
    assume(result.variables)
    return result


@st.composite
def made_sketches(draw: st.DrawFn) -> Sketch:
    extents = tuple(sorted(draw(st.sets(TOTALS, min_size=1, max_size=3))))
    last = draw(st.none() | st.sets(st.integers(1, 4), min_size=1).map(sorted).map(tuple))
    params: list[Param] = [
        Ordinal("pa", extents),
        Factor("a0"),
        Factor("a1"),
        Factor("b0"),
        Factor("b1", last),
        Ordinal("o", tuple(sorted(draw(st.sets(st.integers(0, 16), min_size=1, max_size=3))))),
        Categorical("c", ("x", "y")),
    ]
    constraints: list[Constraint] = [
        ProductEquals(("a0", "a1"), var("pa")),
        ProductEquals(("b0", "b1"), const(draw(TOTALS))),
    ]
    for _ in range(draw(st.integers(0, 3))):
        expression, limit = draw(expressions()), draw(st.integers(0, 40))
        kind = draw(st.sampled_from(("most", "least", "one")))
        if kind == "most":
            constraints.append(AtMost(expression, limit, "test"))
        elif kind == "least":
            constraints.append(AtLeast(expression, limit, "test", hard=False))
        else:
            constraints.append(OneOf(expression % 5, (0, 1, limit % 5), "test"))
    shuffled = draw(st.permutations(params))
    return sketch_of(list(shuffled), constraints)


@UNHURRIED
@given(made_sketches())
def test_the_lattice_is_the_feasible_set(sketch: Sketch) -> None:
    check_against_brute_force(sketch)


@pytest.mark.parametrize(
    "workload",
    [gemm(m=4, n=16, k=4), gemm(m=5, n=33, k=2), gemm(m=1, n=7, k=6), softmax(m=12, n=5)],
    ids=lambda workload: str(workload.parameters),
)
def test_the_lattice_of_generated_sketches(workload: Workload) -> None:
    space = SketchSpace(workload, preset("skylake-avx512-2core"), LIMITS)
    total = 0
    for sketch in space.sketches():
        lattice = check_against_brute_force(sketch)
        assert lattice is not None
        total += lattice.count
    assert space.count() == total


def test_an_ordinal_of_zero_does_not_rule_anything_out_early() -> None:
    params: list[Param] = [Ordinal("a", (1, 2, 3)), Ordinal("u", (0, 16))]
    sketch = sketch_of(params, [AtMost(var("a") + var("u"), 3, "test")])
    lattice = check_against_brute_force(sketch)
    assert lattice is not None and lattice.count == 3


def test_constraints_need_not_grow() -> None:
    params: list[Param] = [Ordinal("a", (1, 2, 3)), Ordinal("b", (1, 2, 5))]
    constraints: list[Constraint] = [AtMost(var("a") - var("b"), -2, "test")]
    lattice = check_against_brute_force(sketch_of(params, constraints))
    assert lattice is not None and lattice.count == 3


@pytest.mark.parametrize("limit", [2, 3])
def test_constraints_may_be_constant(limit: int) -> None:
    check_against_brute_force(
        sketch_of([Ordinal("a", (1, 2, 3))], [AtMost(const(3), limit, "test")])
    )


def binomials(value: int, parts: int) -> int:
    """``F_parts(value)``: for each prime power ``p**e``, the ways to share out ``e``."""
    result, rest, prime = 1, value, 2
    while rest > 1:
        exponent = 0
        while rest % prime == 0:
            rest, exponent = rest // prime, exponent + 1
        result *= math.comb(exponent + parts - 1, parts - 1)
        prime += 1
    return result


@UNHURRIED
@given(st.integers(1, 2000), st.integers(1, 4))
def test_factorizations_are_as_many_as_the_binomials_say(total: int, parts: int) -> None:
    rows = ordered_factorizations(total, [None] * parts)
    assert rows.shape == (binomials(total, parts), parts)
    assert (rows.prod(axis=1) == total).all()
    listed = list(map(tuple, rows.tolist()))
    assert listed == sorted(set(listed))


def test_factorizations_inside_domains() -> None:
    rows = ordered_factorizations(48, [None, (1, 2, 3), (16, 4)])
    assert rows.tolist() == [[1, 3, 16], [3, 1, 16], [4, 3, 4], [6, 2, 4], [12, 1, 4]]
    assert ordered_factorizations(7, [(2,), None]).shape == (0, 2)


UNEVEN = sketch_of(
    [
        Ordinal("pa", (12, 16)),
        Factor("a0"),
        Factor("a1"),
        Factor("b0"),
        Factor("b1"),
        Ordinal("o", (1, 2, 9)),
    ],
    [
        ProductEquals(("a0", "a1"), var("pa")),
        ProductEquals(("b0", "b1"), const(12)),
        AtMost(var("a1") * var("b1") + var("o"), 20, "test"),
    ],
)


def test_uniform_samples_are_uniform() -> None:
    lattice = build_lattice(UNEVEN)
    feasible = brute_force(UNEVEN)
    assert lattice.count == len(feasible) > 50
    each = 60
    sample = lattice.uniform(each * len(feasible), np.random.default_rng(11))
    counts = Counter(map(tuple, sample.tolist()))
    assert set(counts) <= feasible
    chi_square = sum((counts[row] - each) ** 2 / each for row in feasible)
    freedom = len(feasible) - 1
    # Its mean is `freedom`, its variance twice that: four standard deviations either way.
    assert abs(chi_square - freedom) < 4 * math.sqrt(2 * freedom)


def test_uniform_samples_have_no_memory() -> None:
    lattice = build_lattice(UNEVEN)
    sample = lattice.uniform(4000, np.random.default_rng(5))
    repeated = (sample[1:] == sample[:-1]).all(axis=1).mean()
    assert repeated == pytest.approx(1 / lattice.count, abs=0.01)


def test_stratified_samples_cover_every_value() -> None:
    lattice = build_lattice(UNEVEN)
    feasible = np.array(sorted(brute_force(UNEVEN)))
    rng = np.random.default_rng(2)
    sample = np.concatenate([lattice.stratified(96, rng) for _ in range(40)])
    assert lattice.contains(sample).all()
    for column in range(feasible.shape[1]):
        assert set(sample[:, column].tolist()) == set(feasible[:, column].tolist())


def test_stratified_samples_find_rare_values() -> None:
    """A value behind few configurations is seen far more often than by uniform sampling."""
    params: list[Param] = [Ordinal("a", tuple(range(1, 101))), Ordinal("b", (1, 2))]
    sketch = sketch_of(params, [AtMost(var("a") + 99 * (var("b") - 1), 100, "test")])
    lattice = build_lattice(sketch)
    assert lattice.count == 101
    rng = np.random.default_rng(3)
    uniform = lattice.uniform(2400, rng)
    stratified = np.concatenate([lattice.stratified(24, rng) for _ in range(100)])
    assert (uniform[:, 1] == 2).mean() < 0.03
    assert (stratified[:, 1] == 2).mean() > 0.15


@pytest.mark.parametrize("n", [0, 1, 5, 24, 25, 100])
def test_samples_have_the_size_asked_for(n: int) -> None:
    lattice = build_lattice(UNEVEN)
    rng = np.random.default_rng(0)
    for sample in (lattice.uniform(n, rng), lattice.stratified(n, rng)):
        assert sample.shape == (n, 6) and sample.dtype == np.int64
        assert lattice.contains(sample).all()


def test_a_sketch_without_parameters_has_one_configuration() -> None:
    lattice = build_lattice(sketch_of([], []))
    assert lattice.count == 1 and list(lattice.enumerate()) == [()]
    rng = np.random.default_rng(0)
    assert lattice.uniform(3, rng).shape == lattice.stratified(3, rng).shape == (3, 0)


@pytest.mark.parametrize(
    ("params", "constraints", "message"),
    [
        ([Factor("a")], [], "factor 'a' belongs to no product"),
        (
            [Factor("a"), Factor("b")],
            [ProductEquals(("a", "b"), const(4)), ProductEquals(("b",), const(2))],
            r"\['b'\] belong to two products",
        ),
        (
            [Factor("a"), Factor("b", (3,))],
            [ProductEquals(("a", "b"), const(4))],
            "has no feasible configuration",
        ),
        ([Ordinal("a", (1, 2))], [AtLeast(var("a"), 3, "x")], "has no feasible configuration"),
        (
            [Ordinal("a", (1, 2)), Ordinal("b", (1, 2))],
            [AtLeast(var("a") * var("b"), 5, "x")],
            "has no feasible configuration",
        ),
    ],
)
def test_impossible_sketches_are_refused(
    params: list[Param], constraints: list[Constraint], message: str
) -> None:
    with pytest.raises(InvalidValueError, match=message):
        build_lattice(sketch_of(params, constraints))


def test_what_joins_too_much_is_refused() -> None:
    params: list[Param] = [Ordinal(name, tuple(range(1, 8001))) for name in "ab"]
    with pytest.raises(InvalidValueError, match="join too many parameters .64000000 combinations"):
        build_lattice(sketch_of(params, [OneOf(var("a") * var("b"), (5,), "test")]))
