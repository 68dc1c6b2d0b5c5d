from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.sketches.candidates import Matrix
from autotune.store.failures import Condition, Rule, separating_rules

NAMES = ("a", "b", "c")


def rows(seed: int, n: int = 200) -> Matrix:
    return np.random.default_rng(seed).choice([1, 2, 4, 8, 16], size=(n, 3)).astype(np.int64)


def rules(matrix: Matrix, fails: NDArray[np.bool_], chance: float = 0.01) -> list[Rule]:
    return separating_rules(NAMES, matrix[~fails], matrix[fails], chance)


def texts(found: list[Rule]) -> list[str]:
    return [str(rule) for rule in found]


def test_one_variable_above_or_below_a_limit() -> None:
    matrix = rows(0)
    assert texts(rules(matrix, matrix[:, 1] >= 8)) == ["b >= 8"]
    assert texts(rules(matrix, matrix[:, 2] <= 2)) == ["c <= 2"]


def test_one_value_of_a_variable() -> None:
    matrix = rows(1)
    (rule,) = rules(matrix, matrix[:, 0] == 4)
    assert str(rule) == "a = 4"
    assert rule.failures == (matrix[:, 0] == 4).sum()


def test_two_variables_together() -> None:
    matrix = rows(2)
    assert texts(rules(matrix, (matrix[:, 0] >= 8) & (matrix[:, 2] <= 2))) == ["a >= 8 and c <= 2"]


def test_several_rules_each_for_what_the_others_leave() -> None:
    matrix = rows(3, 400)
    fails = (matrix[:, 1] == 16) | ((matrix[:, 0] >= 8) & (matrix[:, 2] >= 8))
    found = rules(matrix, fails)
    assert sorted(texts(found)) == ["a >= 8 and c >= 8", "b >= 16"]
    assert sum(rule.failures for rule in found) == fails.sum()


def test_a_second_variable_has_to_earn_its_place() -> None:
    """A further failure, by chance, is not worth a condition."""
    matrix = rows(4)
    fails = matrix[:, 1] >= 8
    fails[np.flatnonzero(~fails)[0]] = True
    assert texts(rules(matrix, fails)) == ["b >= 8"]


def test_failures_by_chance_give_no_rule() -> None:
    """Of runs with every tenth row failing at random, at most a few do."""
    proposed = 0
    for seed in range(40):
        matrix = rows(seed)
        proposed += bool(rules(matrix, np.random.default_rng(seed).random(200) < 0.1))
    assert proposed <= 2


def test_a_few_failures_prove_nothing() -> None:
    matrix = rows(5)
    fails = np.zeros(200, dtype=np.bool_)
    fails[:1] = True
    assert rules(matrix, fails) == []
    assert separating_rules(NAMES, matrix[:0], matrix) == [], "nothing passed"
    assert separating_rules(NAMES, matrix, matrix[:0]) == [], "nothing failed"
    assert separating_rules((), matrix[:, :0], matrix[:, :0]) == [], "no variables"


def test_a_bolder_chance_proposes_more() -> None:
    matrix = rows(6, 30)
    fails = np.zeros(30, dtype=np.bool_)
    fails[:2] = True
    matrix[:2, 0], matrix[2:, 0] = 16, 1
    assert rules(matrix, fails, 0.01) == []
    assert texts(rules(matrix, fails, 1.0)) == ["a >= 16"]


@given(st.integers(0, 2**32), st.integers(0, 2), st.sampled_from([2, 4, 8]), st.floats(0, 0.2))
def test_no_rule_holds_for_what_passed(seed: int, column: int, limit: int, noise: float) -> None:
    matrix = rows(seed, 80)
    fails = (matrix[:, column] >= limit) | (np.random.default_rng(seed).random(80) < noise)
    passed, failed = matrix[~fails], matrix[fails]
    for rule in separating_rules(NAMES, passed, failed):
        assert not rule.holds(NAMES, passed).any()
        assert 1 <= len(rule.conditions) <= 2
        assert len({it.variable for it in rule.conditions}) == len(rule.conditions)
        assert 0 < rule.failures <= rule.holds(NAMES, failed).sum()
        assert rule.chance <= 0.01


@given(st.integers(0, 2**32))
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    matrix = rows(seed, 60)
    fails = matrix[:, 0] * matrix[:, 1] >= 64
    order = np.random.default_rng(seed).permutation(60)
    assert rules(matrix, fails) == rules(matrix[order], fails[order])


@pytest.mark.parametrize("relation", ["at_least", "at_most", "equals"])
def test_a_rule_as_json(relation: str) -> None:
    rule = Rule((Condition("a", relation, 4), Condition("b", "at_most", 1)), 3, 0.001)
    data = json.loads(json.dumps(rule.to_json()))
    never = [{"variable": "a", relation: 4}, {"variable": "b", "at_most": 1}]
    assert data == {"never": never, "failures": 3, "chance": 0.001}
