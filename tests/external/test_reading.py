"""From what a run prints or returns, to seconds or the reason why there are none."""

from __future__ import annotations

import math
from typing import Any

import pytest

from autotune.external.candidates import build_failure, run_failure, seconds_of
from autotune.external.program import ExternalProgram
from autotune.external.specs import program_of
from autotune.store.records import Outcome

DONE = {"status": 0, "seconds": 0.25, "ended": "", "stdout": "", "stderr": ""}


def program(read: dict[str, str], unit: str = "s") -> ExternalProgram:
    return program_of(
        {"parameters": {"n": [1]}, "run": {"command": "a {n}"}, "read": read, "unit": unit}, "."
    )


@pytest.mark.parametrize(
    "read,unit,printed,seconds",
    [
        ({}, "s", "", 0.25),
        ({"pattern": "took (\\S+) ms"}, "ms", "x\ntook 2.5 ms\n", 0.0025),
        ({"pattern": "(\\S+) GFLOP/s"}, "1/ns", "4.0 GFLOP/s", 0.25e-9),
        ({"field": "a.b"}, "us", '{"a": {"b": 3}}', 3e-6),
        ({"field": "a"}, "s", 'some words\n{"a": 3}\n', 3.0),
    ],
)
def test_results(read: dict[str, str], unit: str, printed: str, seconds: float) -> None:
    found = seconds_of(program(read, unit), {**DONE, "stdout": printed})
    assert found == pytest.approx(seconds)


@pytest.mark.parametrize(
    "read,printed,message",
    [
        ({"pattern": "t=(\\S+)"}, "garbage\x00\ufffd", "matches nothing in"),
        ({"pattern": "t=(\\S+)"}, "", "what it printed, which is nothing"),
        ({"pattern": "t=(\\S+)"}, "t=fast", "finds 'fast', which is no number"),
        ({"pattern": "t=(\\S+)"}, "t=nan", "the result is nan"),
        ({"pattern": "t=(\\S+)"}, "t=inf", "the result is inf"),
        ({"pattern": "t=(\\S+)"}, "t=-1", "the result is -1.0"),
        ({"pattern": "t=(\\S+)"}, "t=0", "it must be a positive number"),
        ({"pattern": "t=(\\S+)|x"}, "x", "finds None, which is no number"),
        ({"field": "a"}, "{", "it printed no JSON"),
        ({"field": "a.b"}, '{"a": 3}', "there is no field 'a.b'"),
        ({"field": "a"}, '{"a": "3"}', "which is no number"),
        ({"field": "a"}, '{"a": NaN}', "the result is nan"),
        ({"field": "a"}, '{"a": true}', "which is no number"),
        ({"field": "a"}, '{"a": 1' + "0" * 400 + "}", "larger than any time"),
    ],
)
def test_what_is_no_result(read: dict[str, str], printed: str, message: str) -> None:
    found = seconds_of(program(read), {**DONE, "stdout": printed})
    assert isinstance(found, Outcome)
    assert found.status == "invalid" and message in found.message


@pytest.mark.parametrize("value", [None, math.nan, -math.inf, 0.0])
def test_what_no_function_may_return(value: float | None) -> None:
    spec = {"parameters": {"n": [1]}, "run": {"function": "a:b"}}
    found = seconds_of(program_of(spec, "."), {"wall": 1.0, "value": value})
    assert isinstance(found, Outcome) and found.status == "invalid"


@pytest.mark.parametrize(
    "body,build,run",
    [
        ({"status": 0}, None, None),
        ({"status": 1, "stderr": "a.c:3: error"}, "build_error", "crash"),
        ({"status": -11}, "build_error", "crash"),
        ({"status": -9, "ended": "timeout"}, "timeout", "timeout"),
        ({"status": -9, "ended": "output"}, "invalid", "invalid"),
        ({"status": None, "stderr": "cannot start 'cc'"}, "build_error", "crash"),
        ({"died": "killed by SIGKILL"}, "crash", "crash"),
        ({"status": 0, "raised": "ValueError: no"}, None, "crash"),
    ],
)
def test_failures_are_outcomes(body: dict[str, Any], build: str | None, run: str | None) -> None:
    whole = body if "died" in body else {**DONE, **body}
    built, ran = build_failure(whole, 1.0), run_failure(whole, 1.0)
    assert (built and built.status, ran and ran.status) == (build, run)
    if body.get("stderr"):
        assert built is not None and body["stderr"] in built.message
    if body.get("status") == -11:
        assert ran is not None and "SIGSEGV" in ran.message
