"""Counts that are known from elsewhere: closed forms, and spaces too large for brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from made_sketches import sketch_of
from oracles.feasible import factorization_count

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const, var
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
from autotune.spaces.feasible import build_feasible_set, ordered_factorizations


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
