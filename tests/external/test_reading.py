"""From what a run prints or returns, to seconds or the reason why there are none."""

from __future__ import annotations

import math
import re

import pytest

from autotune.external.processes import Call
from autotune.external.program import ExternalProgram
from autotune.external.results import NoResult, seconds_of
from autotune.external.specs import program_of


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
    found = seconds_of(program(read, unit), Call(0.25), printed)
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
    with pytest.raises(NoResult, match=re.escape(message)) as refusal:
        seconds_of(program(read), Call(0.25), printed)
    assert refusal.value.status == "invalid"


@pytest.mark.parametrize("value", [None, math.nan, -math.inf, 0.0])
def test_what_no_function_may_return(value: float | None) -> None:
    spec = {"parameters": {"n": [1]}, "run": {"function": "a:b"}}
    with pytest.raises(NoResult) as refusal:
        seconds_of(program_of(spec, "."), Call(1.0, value))
    assert refusal.value.status == "invalid"
