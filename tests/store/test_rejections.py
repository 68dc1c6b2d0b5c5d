"""Classes of failures: what they say, and what they leave out."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.store.records import OUTCOME_STATUSES, Outcome
from autotune.store.rejections import Rejection, describe_rejections, reject_reason
from autotune.store.trial_log import TrialLog
from autotune.testing.toy_space import ToySpace

FAILURES = [status for status in OUTCOME_STATUSES if status != "ok"]


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        ("timeout", "run took more than 0.25 s", "timeout: run"),
        ("timeout", "build took more than 30 s", "timeout: build"),
        ("crash", "worker failed during run: killed by SIGSEGV\nwords", "crash: SIGSEGV in run"),
        ("crash", "worker failed during load: killed by signal 64", "crash: signal 64 in load"),
        ("crash", "worker failed during run: exited with status 3", "crash: exit status 3 in run"),
        ("crash", "3 workers ended by themselves", "crash: N workers ended by themselves"),
        ("crash", "MemoryError: 4096 bytes", "crash: MemoryError: N bytes"),
        (
            "wrong_result",
            "output 'C': 3 of 64 elements are wrong; largest error 1e-3 (relative 2)",
            "wrong_result",
        ),
        (
            "wrong_result",
            "output 'C' is float32[3, 4], expected float64[3, 4, 5]",
            "wrong_result: output 'C' is float32[N], expected float64[N]",
        ),
        (
            "build_error",
            "InternalError: Check failed: n == -12 at /usr/src/tvm/base.cc:66: 0xdeadbeef",
            "build_error: InternalError: Check failed: n == N at PATH: N",
        ),
        (
            "build_error",
            'Traceback (most recent call last):\n  File "b.py", line 3\nOSError: no /tmp/x1/y.so',
            "build_error: OSError: no PATH",
        ),
        ("invalid", "tile: 3 is less than 4\nmore", "invalid: tile: N is less than N"),
        ("invalid", "", "invalid"),
        ("invalid", " \n ", "invalid"),
    ],
)  # fmt: skip
def test_classes(status: str, message: str, reason: str) -> None:
    assert reject_reason(Outcome(status, message=message)) == reason


def test_what_is_ok_has_no_class() -> None:
    assert reject_reason(Outcome("ok", 1.0)) == ""


@given(st.sampled_from(FAILURES), st.text(max_size=400))
def test_a_class_is_short_and_one_line(status: str, message: str) -> None:
    reason = reject_reason(Outcome(status, message=message))
    assert reason == status or reason.startswith(f"{status}: ")
    assert len(reason) <= len(status) + 2 + 100
    assert len(reason.splitlines()) == 1


@given(
    st.sampled_from(FAILURES),
    st.lists(st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False)),
    st.lists(st.integers(), min_size=1),
    st.from_regex(r"(/[a-z0-9_.]{1,8}){2,5}", fullmatch=True),
)
def test_particulars_do_not_matter(
    status: str, numbers: list[float], more: list[int], path: str
) -> None:
    def reason(values: list[float], where: str) -> str:
        text = f"cannot split {values or 7} at {where} (vector of {more[0]})"
        return reject_reason(Outcome(status, message=text))

    assert reason(numbers or [1], path) == reason([1, 2.5, 3], "/tmp/a/b.so:12")


def test_a_log_counts_classes_and_keeps_the_first_message_of_each() -> None:
    log = TrialLog()
    space = iter(ToySpace().enumerate())
    messages = ["run took more than 3 s", "run took more than 4 s", "verify took more than 1 s"]
    for message in [*messages, messages[0]]:
        log.add(next(space), Outcome("timeout", message=message), 0.0, "run")
    log.add(next(space), Outcome("ok", 1.0), 0.0, "run")
    expected = {
        "timeout: run": Rejection(3, "run took more than 3 s"),
        "timeout: verify": Rejection(1, "verify took more than 1 s"),
    }
    assert log.rejections == expected
    assert list(log.rejections) == list(expected), "the most frequent comes first"
    assert TrialLog.from_json(json.loads(json.dumps(log.to_json()))).rejections == expected
    assert log.first(1).rejections == {"timeout: run": Rejection(1, "run took more than 3 s")}


def test_a_log_of_an_earlier_version_has_statuses_for_classes() -> None:
    entries = [
        ["d", "crash", None, 1.0, False, "run", "first"],
        ["e", "crash", None, 2.0, False, "run", ""],
    ]
    assert TrialLog.from_json(entries).rejections == {"crash": Rejection(2, "first")}


def test_a_log_does_not_grow_with_the_number_of_classes() -> None:
    log = TrialLog()
    space = iter(ToySpace().enumerate())
    for number in range(60):
        word = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        message = f"{word} is wrong\n" + "x" * 1000
        log.add(next(space), Outcome("crash", message=message), 0.0, "run")
    log.add(next(space), Outcome("timeout", message="late"), 0.0, "run")
    assert len(log.rejections) == 61
    assert sum(bool(entry.message) for entry in log.entries) == 33
    assert log.failures["timeout"] == "late"


def test_the_frequent_classes_are_named() -> None:
    counts = {"a": 1, "b": 3, "c": 2}
    assert describe_rejections(counts) == "3 b; 2 c; 1 a"
    assert describe_rejections(counts, most=1) == "3 b; 3 more"
    assert describe_rejections({}) == ""
