from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.sketches import Candidate
from autotune.store.failures import grouped_failures, phase_of
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import preset
from autotune.testing.toy_space import ToySpace

OK = Outcome("ok", 1e-3, (1e-3,))


def records(verdict: Callable[[Candidate], Outcome | None], n: int = 200) -> list[Record]:
    """Of a sample of the toy space, ok where there is no verdict."""
    target = preset("haswell")
    key = MeasureKey(target.fingerprint, "toy", "1", "compiler 2", 4, "warm-1")
    sample = ToySpace(64).sample(n, np.random.default_rng(0))
    return [
        Record("r", trial, it, key, target.to_json(), "toy-1", verdict(it) or OK, float(trial))
        for trial, it in enumerate(sample)
    ]


def test_phases_are_those_that_outcomes_tell() -> None:
    found = {
        status: phase_of(Outcome(status, timings=timings))
        for status, timings in (
            ("invalid", {}),
            ("build_error", {"build": 1.0}),
            ("wrong_result", {"build": 1.0, "run": 2.0}),
            ("implausible", {"build": 1.0, "run": 2.0}),
            ("crash", {"build": 1.0, "run": 2.0}),
            ("timeout", {}),
        )
    }
    expected = {
        "invalid": "lower",
        "build_error": "build",
        "wrong_result": "verify",
        "implausible": "run",
    }
    assert found == {**expected, "crash": "run", "timeout": "unknown"}


def test_a_limit_that_no_parameter_has_alone_is_found_as_an_expression() -> None:
    def verdict(candidate: Candidate) -> Outcome | None:
        large = candidate.config["i2"] * candidate.config["j2"] >= 8
        return Outcome("build_error", message="too large\nmore") if large else None

    (group,) = grouped_failures(records(verdict))
    assert (group.workload, group.sketch, group.phase) == ("gemm", "", "build")
    assert [str(rule) for rule in group.rules] == ["i2*j2 >= 8"]
    assert group.rules[0].failures == group.failures and group.unexplained == 0
    assert group.messages == ("too large",)


def test_what_only_one_sketch_has_is_found_in_it() -> None:
    def verdict(candidate: Candidate) -> Outcome | None:
        parallel = candidate.sketch.name == "toy parallel"
        fails = parallel and candidate.config["k1"] >= 32
        return Outcome("crash", timings={"run": 1.0}) if fails else None

    common, own = grouped_failures(records(verdict))
    assert (common.sketch, common.rules) == ("", ())
    assert common.unexplained == common.failures == own.failures
    assert (own.sketch, own.phase) == ("toy parallel", "run")
    assert [str(rule) for rule in own.rules] == ["k1 >= 32"]
    (data,) = [rule.to_json() for rule in own.rules]
    assert data["never"] == [{"variable": "k1", "at_least": 32}]


def test_phases_have_rules_of_their_own_one_after_the_other() -> None:
    def verdict(candidate: Candidate) -> Outcome | None:
        if candidate.config["i1"] >= 8 or candidate.config["k1"] <= 2:
            return Outcome("invalid")
        return Outcome("wrong_result") if candidate.config["j1"] >= 8 else None

    found: dict[str, set[str]] = {}
    for group in grouped_failures(records(verdict, 600), 1e-6):
        found.setdefault(group.phase, set()).update(map(str, group.rules))
    assert found == {"lower": {"i1 >= 8", "k1 <= 2"}, "verify": {"j1 >= 8"}}


def test_failures_by_chance_give_no_rule_and_are_counted() -> None:
    """Of samples with every tenth candidate failing at random, at most a few have one."""
    rules = failures = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        groups = grouped_failures(
            records(lambda _, rng=rng: Outcome("crash") if rng.random() < 0.1 else None)
        )
        rules += sum(len(group.rules) for group in groups)
        failures += sum(group.unexplained for group in groups if not group.sketch)
    assert rules <= 2 and failures > 100


def test_where_nothing_passed_there_is_no_rule() -> None:
    groups = grouped_failures(records(lambda _: Outcome("invalid"), 50))
    assert groups and not any(group.rules or group.passed for group in groups)


@given(st.integers(0, 2**32), st.sampled_from([2, 4, 8]), st.floats(0, 0.2))
def test_no_rule_holds_for_what_passed_whatever_the_order(
    seed: int, limit: int, noise: float
) -> None:
    rng = np.random.default_rng(seed)
    found = records(
        lambda it: Outcome("crash") if it.config["k1"] >= limit or rng.random() < noise else None,
        60,
    )
    groups = grouped_failures(found)
    passed = [it.candidate.config for it in found if it.outcome.ok]
    for rule in (rule for group in groups if not group.sketch for rule in group.rules):
        if all(rule.variable in config for config in passed):
            values = [config[rule.variable] for config in passed]
            beyond = min(values) > rule.value, max(values) < rule.value
            assert beyond[rule.relation == "at_least"]
        assert rule.failures > 0 and rule.chance <= 0.01
    shuffled = [found[place] for place in rng.permutation(len(found))]
    assert sorted(map(str, grouped_failures(shuffled))) == sorted(map(str, groups))


def test_what_was_tried_again_counts_once() -> None:
    first = records(lambda _: Outcome("timeout"), 50)
    assert grouped_failures([*first, *records(lambda _: None, 50)]) == []
    assert grouped_failures([*records(lambda _: None, 50), *first]) == []


@pytest.mark.parametrize("chance", [0.0, -1.0, 2.0, float("nan")])
def test_a_chance_is_a_probability(chance: float) -> None:
    with pytest.raises(InvalidValueError, match=f"above 0 and at most 1, not {chance}"):
        grouped_failures([], chance)
