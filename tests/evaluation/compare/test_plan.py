"""Order of a comparison, and the results that belong to it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import pytest
from compared_lines import plan_of, run_line
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.evaluation.compare import (
    Budget,
    ComparedWorkload,
    Contender,
    Piece,
    check_same_study,
    named_arguments,
)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5))
def test_every_run_is_once_in_the_plan_seed_by_seed(
    workloads: int, contenders: int, seeds: int
) -> None:
    plan = plan_of(
        [f"w{it}" for it in range(workloads)], [f"c{it}" for it in range(contenders)], seeds
    )
    pieces = plan.pieces()
    assert len(set(pieces)) == len(pieces) == workloads * contenders * seeds
    assert [it.seed for it in pieces] == sorted(it.seed for it in pieces)
    assert pieces == plan.pieces(), "the same in every call"


def test_no_contender_is_always_the_first_of_a_seed() -> None:
    pieces = plan_of(["gemm"], ["a", "b", "c"], 60).pieces()
    first = Counter(pieces[place].contender for place in range(0, len(pieces), 3))
    assert set(first) == {"a", "b", "c"} and max(first.values()) < 40


def test_what_a_run_is_given() -> None:
    plan = plan_of(["gemm"], ["mine"], 2, budget=Budget(32, 5.0))
    assert plan.arguments(Piece("gemm", "mine", 1)) == [
        *("gemm", "--trials", "32", "--time", "5.0", "--seed", "1", "--threads", "1"),
        *("--strategy", "mine"),
    ]
    assert Budget(None, 5.0).arguments == ("--time", "5.0"), "time alone ends it"
    assert [str(it) for it in (Budget(3, None), Budget(None, 5), Budget(3, 5))] == [
        *("3 trials", "5 s", "3 trials or 5 s")
    ]


def test_equal_names_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="two contenders are called 'a': rename one"):
        plan_of(["gemm"], ["a", "b", "a"], 1)
    with pytest.raises(InvalidValueError, match="two workloads are called 'gemm'"):
        plan_of(["gemm", "gemm"], ["a"], 1)
    alike = (ComparedWorkload("one", "d", ()), ComparedWorkload("other", "d", ()))
    with pytest.raises(InvalidValueError, match="workloads 'one' and 'other' are the same"):
        attrs.evolve(plan_of([], ["a"], 1), workloads=alike)


PLAN = plan_of(["gemm"], ["a"], 2)
RUN = run_line(Piece("gemm", "a", 0), [])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([RUN], "holds no results that this version compares"),
        ([{**PLAN.head, "version": 9}], "version 9"),
        ([{"event": "run_started"}], "it is None, version None"),
        ([attrs.evolve(PLAN, budget=Budget(50, None)).head], "another study: .* budget .* 100"),
        ([attrs.evolve(PLAN, common=("--threads", "2")).head], "another study: .* common"),
        ([{**PLAN.head, "fingerprint": "other"}], "another study: .* fingerprint 'other' there"),
        ([PLAN.head, {**RUN, "digest": "x"}], "another workload: workload 'gemm' has digest 'x'"),
        ([PLAN.head, {**RUN, "arguments": []}], r"another contender: contender 'a' .* \[\] there"),
        ([PLAN.head, {"kind": "other"}], "line 2 of 'r.jsonl' is no result of"),
        ([PLAN.head, {"kind": "run", "seed": 1}], "line 2 of 'r.jsonl' is no result"),
        ([PLAN.head, {"kind": "turns", "workload": "gemm"}], "line 2 of 'r.jsonl' is no result"),
    ],
)
def test_results_of_another_study_are_refused(lines: list[Any], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        check_same_study(PLAN, lines, "r.jsonl")


def test_a_study_can_grow() -> None:
    lines = [PLAN.head, RUN, run_line(Piece("softmax", "other", 7), [])]
    check_same_study(PLAN, lines, "r.jsonl")
    contenders = (*PLAN.contenders, Contender("b", ("--strategy", "b")))
    check_same_study(attrs.evolve(PLAN, seeds=9, contenders=contenders), lines, "r.jsonl")
    check_same_study(PLAN, [], "r.jsonl")


def test_a_model_file_is_named_by_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "autotune.evaluation.compare.plan.trained_model",
        lambda path: type("File", (), {"digest": path[::-1]}),
    )
    for given_, named in (
        (("--a", "--load-cost-model", "xyz"), ("--a", "--load-cost-model", "zyx")),
        (("--load-cost-model=xyz",), ("--load-cost-model=zyx",)),
        (("--strategy", "a"), ("--strategy", "a")),
    ):
        assert named_arguments(given_) == named
