from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autotune.errors import InvalidValueError
from autotune.sketches import Candidate
from autotune.store.failures import mine_failures, phase_of
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

    (group,) = mine_failures(records(verdict))
    assert (group.workload, group.sketch, group.phase) == ("gemm", "", "build")
    assert [str(rule) for rule in group.rules] == ["i2*j2 >= 8"]
    assert group.unexplained == 0
    assert group.messages == ("too large",)


def test_what_only_one_sketch_has_is_found_in_it() -> None:
    def verdict(candidate: Candidate) -> Outcome | None:
        parallel = candidate.sketch.name == "toy parallel"
        fails = parallel and candidate.config["k1"] >= 32
        return Outcome("crash", timings={"run": 1.0}) if fails else None

    common, own = mine_failures(records(verdict))
    assert (common.sketch, common.rules) == ("", ())
    assert common.unexplained == common.failures == own.failures
    assert (own.sketch, own.phase) == ("toy parallel", "run")
    assert [str(rule) for rule in own.rules] == ["k1 >= 32"]


def test_phases_have_rules_of_their_own() -> None:
    def verdict(candidate: Candidate) -> Outcome | None:
        if candidate.config["i1"] >= 8:
            return Outcome("invalid")
        return Outcome("wrong_result") if candidate.config["k1"] == 4 else None

    found = {
        group.phase: [str(rule) for rule in group.rules]
        for group in mine_failures(records(verdict))
    }
    assert found == {"lower": ["i1 >= 8"], "verify": ["k1 = 4"]}


def test_what_was_tried_again_counts_once() -> None:
    first = records(lambda _: Outcome("timeout"), 50)
    assert mine_failures([*first, *records(lambda _: None, 50)]) == []
    assert mine_failures([*records(lambda _: None, 50), *first]) == []


@pytest.mark.parametrize("chance", [0.0, -1.0, 2.0, float("nan")])
def test_a_chance_is_a_probability(chance: float) -> None:
    with pytest.raises(InvalidValueError, match=f"above 0 and at most 1, not {chance}"):
        mine_failures([], chance)
