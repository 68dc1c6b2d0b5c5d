"""Feasible sets are what brute force finds, and what is known of counts from elsewhere."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sketches import made_sketches, sketch_of
from oracles.feasible import (
    brute_force,
    domain,
    factorization_count,
    holds,
    joined_rows,
    violation,
)
from rule_sketches import LIMITS

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const, var
from autotune.ir.workloads import Workload, conv2d, gemm, softmax
from autotune.sketches import (
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
from autotune.spaces import SketchSpace
from autotune.spaces.feasible import (
    FeasibleSet,
    build_feasible_set,
    is_feasible,
    ordered_factorizations,
    residuals,
)
from autotune.targets import preset


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


def divisors(value: int) -> list[int]:
    return [divisor for divisor in range(1, value + 1) if value % divisor == 0]


def dl_boost_gemm(m: int, n: int, k: int, position: int) -> Sketch:
    """The space of Heron (ASPLOS'23) for 8-bit products, with a fixed place of its cache write.

    Both outputs are split in three and their tile ``ic * jc``, which is all of the output at
    place 0, without the parallel part at place 1 and the innermost part at place 2, again in
    four; 16 columns and 4 of k belong to one instruction.
    """
    params: list[Param] = []
    constraints: list[Constraint] = []

    def split(names: tuple[str, ...], total: int | str) -> None:
        params.extend(Factor(name) for name in names)
        value = const(total) if isinstance(total, int) else var(total)
        constraints.append(ProductEquals(names, value))

    split(("pi", "ci", "ri"), m)
    split(("pj", "cj", "rj"), n)
    params.append(Ordinal("ic", tuple(divisors(m))))
    params.append(Ordinal("jc", tuple(d for d in divisors(n) if d % 16 == 0)))
    split(("f1", "f2", "f3", "f4"), "ic")
    params.append(Factor("g0", (16,)))
    params.extend(Factor(f"g{index}") for index in range(1, 5))
    constraints.append(ProductEquals(("g0", "g1", "g2", "g3", "g4"), var("jc")))
    split(("h1", "h2", "h3", "h4"), k // 4)
    params.append(Ordinal("unroll", (0, 1, 2, 3, 4, 5)))
    params.append(Categorical("vectorize", ("no", "yes")))
    for extent, tile, parallel, inner in ((m, "ic", "pi", "ri"), (n, "jc", "pj", "rj")):
        if position == 0:
            constraints.append(OneOf(var(tile), (extent,), "place"))
        elif position == 1:
            constraints.append(OneOf(var(tile) * var(parallel), (extent,), "place"))
        else:
            constraints.append(OneOf(var(tile) - var(inner), (0,), "place"))
    constraints.append(AtMost(var("pi") * var("pj"), 10**6, "parallel loop"))
    return sketch_of(params, constraints)


@pytest.mark.parametrize(
    ("shape", "sums", "total"),
    [
        ((2, 16, 4), (180, 45, 6), 2772),
        ((2, 32, 8), (1008, 261, 36), 62640),
        ((3, 48, 8), (2160, 405, 36), 124848),
        ((6, 32, 4), (12096, 2349, 216), 175932),
        ((64, 64, 64), (658560, 120582, 9702), 331314480),
        ((1024, 1024, 1024), (104624520, 18540522, 1387386), 246613807440),
        ((32, 1008, 2048), (12700800, 1105650, 31752), 36532853280),
        ((32, 4096, 4096), (17657640, 3555090, 324324), 73915169328),
    ],
)
def test_published_counts_by_place(
    shape: tuple[int, int, int], sums: tuple[int, int, int], total: int
) -> None:
    """Heron's space for every fixed place; the sums were found by formula and by CP-SAT."""
    rest = 12 * factorization_count(shape[2] // 4, 4)
    counts = [build_feasible_set(dl_boost_gemm(*shape, position)).count for position in range(3)]
    assert counts == [rest * value for value in sums]
    assert sum(counts) == total


def test_counts_are_exact_beyond_64_bits() -> None:
    """Free parameters multiply; a sum keeps one group from being free."""
    params: list[Param] = [Ordinal(f"p{i}", tuple(range(1, 1000))) for i in range(10)]
    params += [Ordinal("a", (1, 2, 3)), Ordinal("b", (1, 2, 3))]
    sketch = sketch_of(params, [AtMost(var("a") + var("b"), 5, "test")])
    feasible = build_feasible_set(sketch)
    assert feasible.count == 8 * 999**10 > 2**64
    sample = feasible.uniform(2000, 3)
    assert feasible.contains(sample).all()
    assert feasible.contains(feasible.stratified(2000, 3)).all()
    # Every column is uniform over its values: the mean of 999 of them is 500 with sigma 6.5.
    assert (abs(sample[:, :10].mean(axis=0) - 500) < 33).all()
    last = feasible.listed(feasible.count - 1, 1)
    assert feasible.contains(last).all() and last[0, :10].tolist() == [999] * 10


def test_counts_beyond_128_bits_are_refused() -> None:
    params = [Ordinal(f"p{i}", tuple(range(1, 1001))) for i in range(13)]
    with pytest.raises(InvalidValueError, match=r"fewer than 2\*\*128 points"):
        build_feasible_set(sketch_of(params, []))


def gpu_matmul(m: int, n: int, k: int) -> Sketch:
    """Tiling for GPUs: block, two levels of virtual threads, threads, serial; joint limits."""
    params: list[Param] = []
    constraints: list[Constraint] = []
    for axis, extent, parts in (("x", m, 5), ("y", n, 5), ("r", k, 3)):
        names = tuple(f"{axis}{level}" for level in range(parts))
        params.extend(Factor(name) for name in names)
        constraints.append(ProductEquals(names, const(extent)))
    params.append(Ordinal("unroll", (0, 16, 64, 512)))
    x, y, r = ([var(f"{axis}{level}") for level in range(5)] for axis in "xyr")
    depth = r[1] * r[2]
    threads = x[2] * y[2]
    rows, columns = math.prod(x[1:]) * depth, math.prod(y[1:]) * depth
    constraints += [
        AtMost(threads, 1024, "threads"),
        OneOf(threads % 32, (0,), "warps", hard=False),
        AtMost(x[1] * y[1], 8, "virtual threads"),
        AtMost(4 * rows + 4 * columns, 49152, "shared memory"),
        AtMost(x[1] * x[3] * x[4] * y[1] * y[3] * y[4] + x[3] * x[4] + y[4], 255, "registers"),
        AtLeast(x[0] * y[0], 16, "multiprocessors", hard=False),
    ]
    return sketch_of(params, constraints)


def test_joint_limits_of_gpu_tiles() -> None:
    """Against a table of all pairs of rows."""
    m, n, k = 64, 96, 12
    feasible = build_feasible_set(gpu_matmul(m, n, k))
    x, y = (ordered_factorizations(extent, [None] * 5) for extent in (m, n))
    left, right = np.indices((len(x), len(y))).reshape(2, -1)
    x, y = x[left].T, y[right].T
    threads = x[2] * y[2]
    good = (threads <= 1024) & (threads % 32 == 0) & (x[1] * y[1] <= 8) & (x[0] * y[0] >= 16)
    good &= x[1] * x[3] * x[4] * y[1] * y[3] * y[4] + x[3] * x[4] + y[4] <= 255
    expected = 0
    for _, *inner in ordered_factorizations(k, [None] * 3).tolist():
        tile = (x[1:].prod(axis=0) + y[1:].prod(axis=0)) * math.prod(inner)
        expected += int((good & (4 * tile <= 49152)).sum())
    assert feasible.count == 4 * expected > 0


def test_large_gpu_tiles_are_joined_exactly_and_soon() -> None:
    feasible = build_feasible_set(gpu_matmul(1024, 1024, 1024))
    assert feasible.count > 10**6 and feasible.edges < 10**6
    sample = feasible.uniform(1000, 1)
    assert feasible.contains(sample).all()


def test_a_product_of_many_primes_is_joined() -> None:
    """A convolution's axes may be fused: 115 million in five factors."""
    names = tuple(f"x{level}" for level in range(5))
    extent = 56 * 56 * 64 * 3 * 3 * 64
    sketch = sketch_of(
        [Factor(name) for name in names] + [Ordinal("u", (1, 2, 4))],
        [
            ProductEquals(names, const(extent)),
            AtMost(var("x2") * var("u"), 1024, "threads"),
            AtMost(var("x3") * var("x4") * var("u"), 64, "registers"),
            AtLeast(var("x0"), 108, "blocks"),
        ],
    )
    feasible = build_feasible_set(sketch)
    rows = ordered_factorizations(extent, [None] * 5)
    expected = sum(
        int(
            (
                (rows[:, 2] * u <= 1024)
                & (rows[:, 3] * rows[:, 4] * u <= 64)
                & (rows[:, 0] >= 108)
            ).sum()
        )
        for u in (1, 2, 4)
    )
    assert feasible.count == expected


@given(made_sketches(), st.data())
def test_residuals_say_how_far_a_row_is_off(sketch: Sketch, data: st.DataObject) -> None:
    values = st.tuples(*(st.integers(0, 24) for _ in sketch.params))
    rows = data.draw(st.lists(values, max_size=20))
    matrix = np.array(rows, dtype=np.int64).reshape(-1, len(sketch.params))
    configs = [dict(zip(sketch.param_names, row, strict=True)) for row in rows]
    found = residuals(sketch, matrix)
    assert found.shape == (len(rows), len(sketch.constraints))
    assert found.tolist() == [
        [violation(c, config) for c in sketch.constraints] for config in configs
    ]
    assert (found == 0).tolist() == [
        [holds(c, config) for c in sketch.constraints] for config in configs
    ]


@given(made_sketches(), st.integers(0, 2**32))
def test_the_feasible_set_is_where_residuals_vanish(sketch: Sketch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    domains = [domain(sketch, param) for param in sketch.params]
    matrix = np.column_stack([rng.choice(values, 200) for values in domains]).astype(np.int64)
    np.testing.assert_array_equal(
        build_feasible_set(sketch).contains(matrix), is_feasible(sketch, matrix)
    )


def test_residuals_of_every_kind() -> None:
    sketch = sketch_of(
        [Ordinal("a", (1, 2, 4)), Ordinal("b", (1, 2, 4))],
        [
            ProductEquals(("a", "b"), const(4)),
            AtMost(var("a") + var("b"), 4, "test"),
            AtLeast(var("a") + var("b"), 4, "test"),
            OneOf(var("a") - var("b"), (-3, 0, 2), "test"),
            OneOf(var("a"), (), "test"),
        ],
    )
    rows = np.array([[2, 2], [4, 1], [1, 1], [1, 100]])
    assert residuals(sketch, rows).tolist() == [
        [0, 0, 0, 0, 1],
        [0, 1, 0, 1, 1],
        [3, 0, 2, 0, 1],
        [96, 97, 0, 96, 1],
    ]
    assert not is_feasible(sketch, rows).any()


def test_what_does_not_fit_is_refused() -> None:
    sketch = sketch_of([Ordinal("a", (1,))], [AtMost(var("a") * var("a"), 4, "test")])
    with pytest.raises(InvalidValueError, match="1 parameters got a matrix"):
        residuals(sketch, np.zeros((2, 2), dtype=np.int64))
    with pytest.raises(InvalidValueError):
        residuals(sketch, np.full((1, 1), 2**62, dtype=np.int64))
