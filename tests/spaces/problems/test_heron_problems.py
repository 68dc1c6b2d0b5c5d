"""Known counts of Heron's spaces: by formula, and by enumeration with CP-SAT."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from attrs import evolve
from heron_problems import dl_boost_gemm, tensor_core_gemm, vta_gemm
from oracles.constraints import is_solution
from oracles.feasible import factorization_count

from autotune.ir.expressions import const, var
from autotune.spaces.problems import (
    AtMost,
    Clause,
    Constraint,
    ConstraintProblem,
    NotEqual,
    solve,
)


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
def test_dl_boost(shape: tuple[int, int, int], sums: Sequence[int], total: int) -> None:
    solutions = solve(dl_boost_gemm(*shape))
    rest = 12 * factorization_count(shape[2] // 4, 4)
    assert solutions.count == total
    by_position = [solutions.restrict({"position": [index]}).count for index in range(4)]
    assert by_position == [*(rest * value for value in sums), 0]
    assert solutions.propagate({})["position"] == (0, 1, 2)


def with_rules(problem: ConstraintProblem, *rules: Constraint) -> ConstraintProblem:
    return evolve(problem, constraints=(*problem.constraints, *rules))


@pytest.mark.parametrize(
    ("shape", "core", "rows_or_both", "vector_or_both"),
    [((16, 16), 20, 15, 14), ((32, 16), 360, 258, 236), ((16, 32), 360, 258, 236)],
)
def test_tensor_core_without_free_parameters(
    shape: tuple[int, int], core: int, rows_or_both: int, vector_or_both: int
) -> None:
    """With ten pairs of attach positions; and with two pairs of rules, found in failures."""
    problem = tensor_core_gemm(*shape, 16, free=False)
    flat = Clause((AtMost(var("vi"), const(1)), AtMost(var("vj"), const(1))))
    assert solve(problem).count == 10 * core
    short_rows = NotEqual(var("vi"), const(8))
    assert solve(with_rules(problem, flat, short_rows)).count == 10 * rows_or_both
    short = NotEqual(var("vector"), const(8))
    assert solve(with_rules(problem, flat, short)).count == 10 * vector_or_both


def test_the_rules_leave_less_than_two_thirds_of_a_larger_space() -> None:
    problem = tensor_core_gemm(64, 64, 16, free=False)
    flat = Clause((AtMost(var("vi"), const(1)), AtMost(var("vj"), const(1))))
    short_rows, short = (NotEqual(var(name), const(8)) for name in ("vi", "vector"))
    assert solve(with_rules(problem, flat, short_rows)).count == 483_500
    assert solve(with_rules(problem, flat, short)).count == 429_400


def test_tensor_core_with_every_parameter() -> None:
    core = solve(tensor_core_gemm(64, 64, 16, free=False))
    assert core.count == 10 * 74260
    by_shape = [core.restrict({"wm": [rows]}).count for rows in (8, 16, 32)]
    assert by_shape == [10 * value for value in (22360, 29540, 22360)]
    assert solve(tensor_core_gemm(64, 64, 64)).count == 153_985_536_000


def test_tensor_core_where_memory_binds() -> None:
    """Shared memory is what a point uses in the buffers, offsets included."""
    problem = tensor_core_gemm(32, 64, 1024)
    unbound = solve(tensor_core_gemm(32, 64, 16, free=False)).count
    solutions = solve(problem)
    free = factorization_count(64, 4) * 6 * 6**3 * 4**2
    assert 0 < solutions.count < unbound * free
    for row in map(tuple, solutions.sample(50, 4).tolist()):
        assert is_solution(problem, row)


def test_a_published_point() -> None:
    """The first record that Heron ships for 64 x 64 x 64."""
    problem = dl_boost_gemm(64, 64, 64)
    point = {"position": 0, "unroll": 0, "vectorize": 0, "parallel": 2}
    point |= {"pi": 2, "ci": 8, "ri": 4, "pj": 1, "cj": 4, "rj": 16}
    point |= {"i.rest0": 32, "j.rest0": 64, "i.cache": 64, "j.cache": 64}
    point |= {"f1": 64, "f2": 1, "f3": 1, "f4": 1, "g1": 4, "g2": 1, "g3": 1, "g4": 1}
    point |= {"h1": 1, "h2": 8, "h3": 1, "h4": 2}
    row = np.array([[point[name] for name in problem.variable_names]], dtype=np.int64)
    solutions = solve(problem)
    assert solutions.contains(row).tolist() == [True]
    wrong = row.copy()
    wrong[0, problem.variable_names.index("parallel")] = 1
    assert solutions.contains(wrong).tolist() == [False]


def test_selected_extents_are_products_of_what_is_inside() -> None:
    problem = dl_boost_gemm(6, 32, 4)
    at = {name: index for index, name in enumerate(problem.variable_names)}
    for row in solve(problem).sample(200, 6).tolist():
        for axis, extent in (("i", 6), ("j", 32)):
            inside = [row[at[f"{part}{axis}"]] for part in "pcr"]
            expected = [extent, inside[1] * inside[2], inside[2], 1][row[at["position"]]]
            assert row[at[f"{axis}.cache"]] == expected


def test_vta_buffers() -> None:
    """Counted by hand: three buffers, each for two threads at a time."""
    m, n, k = 64, 128, 64

    def divisors(value: int) -> list[int]:
        return [d for d in range(1, value + 1) if value % d == 0]

    count = 0
    for i0, i1 in itertools.product(divisors(m), repeat=2):
        for j0, j1 in itertools.product(divisors(n // 16), repeat=2):
            if m % (i0 * i1) or (n // 16) % (j0 * j1) or i0 * j0 > 2:
                continue
            rows, columns = m // (i0 * i1), n // (j0 * j1)
            lanes = sum(columns // 16 % lane == 0 for lane in (1, 2, 4, 8, 16))
            for k1 in divisors(k // 16):
                depth = 16 * k1
                fits = rows * depth * 2 <= 32 * 1024 and columns * depth * 2 <= 256 * 1024
                count += lanes * (fits and rows * columns * 8 <= 128 * 1024)
    assert solve(vta_gemm(m, n, k)).count == count > 0
