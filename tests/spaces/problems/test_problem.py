"""Problems as data: JSON, digests, words, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve
from heron_problems import dl_boost_gemm, tensor_core_gemm, vta_gemm
from hypothesis import given
from hypothesis import strategies as st
from made_problems import constraints, made_problems

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.converter import from_json, to_json
from autotune.ir.expressions import const, var
from autotune.spaces.problems import (
    AtMost,
    Clause,
    Constraint,
    ConstraintProblem,
    Divides,
    Equal,
    IntRange,
    Member,
    Origin,
    Product,
    Select,
    Sum,
    Table,
    Variable,
    constraint_text,
    domain_text,
    origin_text,
)


@given(made_problems())
def test_roundtrip(problem: ConstraintProblem) -> None:
    read = ConstraintProblem.from_json(json.loads(json.dumps(problem.to_json())))
    assert read == problem
    assert read.digest == problem.digest


@given(made_problems(), constraints(), st.randoms())
def test_digests_tell_problems_apart_and_nothing_else(
    problem: ConstraintProblem, more: Constraint, random: Any
) -> None:
    shuffled = evolve(
        problem,
        name="other",
        variables=tuple(random.sample(problem.variables, len(problem.variables))),
        constraints=tuple(
            evolve(item, origin=Origin("elsewhere", "tile", hard=False))
            for item in random.sample(problem.constraints, len(problem.constraints))
        ),
    )
    assert shuffled.digest == problem.digest
    bare = {constraint_text(evolve(item, origin=Origin())) for item in problem.constraints}
    if constraint_text(more) not in bare:
        assert evolve(problem, constraints=(*problem.constraints, more)).digest != problem.digest


def test_cache_keys_of_different_problems_differ() -> None:
    makers = (dl_boost_gemm, tensor_core_gemm, vta_gemm)
    shapes = [(64, 64, 64), (64, 64, 128), (128, 64, 64), (64, 128, 64)]
    digests = {make(*shape).digest for make in makers for shape in shapes}
    assert len(digests) == len(makers) * len(shapes)


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (Product(const(12), (var("a"), var("b"))), "12 = a * b"),
        (Sum(var("c"), (var("a"), const(8))), "c = a + 8"),
        (Select(var("c"), var("p"), (var("a"), const(1))), "c = [a, 1][p]"),
        (Divides(var("v"), var("a") + 1), "v divides a + 1"),
        (AtMost(var("a") * 4, const(64)), "4*a <= 64"),
        (Member(var("a"), tuple(range(20))), "a in {0, 1, 2, 3, 4, 5, ..., 19}"),
        (Table(("a", "b"), ((1, 2), (3, 4))), "(a, b) in {(1, 2), (3, 4)}"),
        (
            Clause((Equal(var("a"), const(1)), Equal(var("b"), const(2)))),
            "a = 1 or b = 2",
        ),
    ],
)
def test_words(constraint: Constraint, text: str) -> None:
    assert constraint_text(constraint) == text
    assert from_json(Constraint, to_json(constraint)) == constraint


def test_words_of_domains_and_origins() -> None:
    assert domain_text(IntRange(1, 64)) == "1 .. 64"
    assert domain_text((1, 2)) == "{1, 2}"
    given_origin = Equal(var("a"), const(1), origin=Origin("workload", "tile C i"))
    assert origin_text(given_origin) == "workload, tile C i"
    assert origin_text(Equal(var("a"), const(1))) == ""


A = Variable("a", (1, 2))


@pytest.mark.parametrize(
    ("variables", "wrong", "message"),
    [
        ((A, A), (), "two variables are called 'a'"),
        ((A,), (Equal(var("aa"), const(1)),), "aa"),
        ((A,), (Select(var("a"), var("a"), ()),), "no options"),
        ((A,), (Table(("a",), ((1, 2),)),), r"row \(1, 2\) of a table with the columns a"),
        ((A,), (Table((), ()),), "a table has columns"),
        ((Variable("a", (1,), "knob"),), (), "knob"),
    ],
)
def test_what_makes_no_sense_is_refused(
    variables: tuple[Variable, ...], wrong: tuple[Constraint, ...], message: str
) -> None:
    with pytest.raises((InvalidValueError, UnknownNameError), match=message):
        ConstraintProblem("wrong", variables, wrong)


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"name": "x", "variables": [], "constraints": [{"constraint": "between"}]},
        {"name": "x", "variables": [{"name": "a"}], "constraints": []},
        {"name": "x", "variables": [], "constraints": [{"constraint": "equal", "left": 1}]},
        {"name": "x", "variables": [], "constraints": ["equal"]},
    ],
)
def test_what_is_no_problem_is_refused(data: Any) -> None:
    with pytest.raises(InvalidValueError, match="not a constraint|(unknown|malformed) constraint"):
        ConstraintProblem.from_json(data)
