"""The trials of a run, and the best of them."""

from __future__ import annotations

import json

from autotune.store.records import Outcome
from autotune.store.rejections import Rejection
from autotune.store.trial_log import TrialLog, describe_counts
from autotune.testing.toy_space import ToySpace


def test_a_log_survives_json() -> None:
    space = ToySpace()
    log = TrialLog()
    outcomes = [
        Outcome("crash", message="first"),
        Outcome("ok", 3.0),
        Outcome("crash", message="first\n2"),
        Outcome("ok", 2.0).as_cached(),
    ]
    for number, (candidate, outcome) in enumerate(zip(space.enumerate(), outcomes, strict=False)):
        log.add(candidate, outcome, float(number), "run")
    for copy in (log, TrialLog.from_json(json.loads(json.dumps(log.to_json())))):
        assert copy.entries == log.entries
        assert copy.best_latency == 2.0 and copy.cached == 1
        assert copy.failures == {"crash": "first"}
        assert copy.rejections == {"crash: first": Rejection(2, "first")}
        assert describe_counts(copy.counts) == "2 ok, 2 crash"
        assert [point[2] for point in copy.history()] == [None, 3.0, 3.0, 2.0]
    assert log.first(2).best_latency == 3.0


def test_the_earliest_of_equals_is_the_best_until_it_is_found_wrong() -> None:
    first, second, third = list(ToySpace().enumerate())[:3]
    log = TrialLog()
    for number, (candidate, latency) in enumerate([(first, 2.0), (second, 2.0), (third, 3.0)]):
        log.add(candidate, Outcome("ok", latency), float(number), "run")
    assert log.best and log.best.digest == first.digest
    assert [entry.digest for entry in log.leaders(2)] == [first.digest, second.digest]
    log.amend(first.digest, Outcome("wrong_result", message="off by one"))
    assert log.best and log.best.digest == second.digest
    assert describe_counts(log.counts) == "2 ok, 1 wrong_result"


def test_one_that_was_beaten_in_turns_is_behind_all_others() -> None:
    first, second, third = list(ToySpace().enumerate())[:3]
    log = TrialLog()
    for number, (candidate, latency) in enumerate([(first, 1.0), (second, 2.0), (third, 3.0)]):
        log.add(candidate, Outcome("ok", latency), float(number), "run")
    log.amend(first.digest, Outcome("ok", 1.0, beaten_by=second.digest))
    for copy in (log, TrialLog.from_json(json.loads(json.dumps(log.to_json())))):
        assert [entry.digest for entry in copy.leaders(3)] == [
            second.digest,
            third.digest,
            first.digest,
        ]
        assert copy.best_latency == 2.0
        assert [point[2] for point in copy.history()] == [None, 2.0, 2.0]


def test_latencies_of_another_session_are_converted_and_those_of_this_one_are_not() -> None:
    first, second, third = list(ToySpace().enumerate())[:3]
    log = TrialLog()
    log.add(first, Outcome("ok", 1.0), 0.0, "old")
    log.add(second, Outcome("crash", message="why"), 1.0, "old")
    log.add(third, Outcome("ok", 2.0), 2.0, "new")
    log.rescale({first.digest, second.digest}, 3.0)
    assert [entry.latency for entry in log.entries] == [3.0, None, 2.0]
    assert log.best and log.best.digest == third.digest
    assert log.failures == {"crash": "why"} and log.rejections == {
        "crash: why": Rejection(1, "why")
    }
