from __future__ import annotations

import json
from typing import Any

import pytest

from autotune.errors import InvalidValueError
from autotune.measure import PROTOCOL_VERSION, MeasureProtocol


def test_the_default_is_called_by_its_version() -> None:
    assert MeasureProtocol().identity == f"warm-{PROTOCOL_VERSION}" == "warm-3"
    assert MeasureProtocol(cold=True).identity == "cold-3"


@pytest.mark.parametrize(
    "options",
    [{"deadlines": {"run": 1.0}}, {"hopeless_factor": 2.0}, {"memory_bytes": 1 << 30}],
)
def test_what_is_given_up_on_is_no_part_of_the_identity(options: dict[str, Any]) -> None:
    assert MeasureProtocol(**options).identity == "warm-3"


@pytest.mark.parametrize(
    "options", [{"max_samples": 10}, {"budget_seconds": 1.0}, {"target_half_width": 0.1}]
)
def test_what_decides_the_numbers_is(options: dict[str, Any]) -> None:
    identity = MeasureProtocol(**options).identity
    assert identity.startswith("warm-3+")
    assert identity == MeasureProtocol(**options).identity


def test_json_round_trip() -> None:
    protocol = MeasureProtocol(deadlines={"build": 2.5}, min_samples=4, memory_bytes=10)
    assert MeasureProtocol.from_json(json.loads(json.dumps(protocol.to_json()))) == protocol
    with pytest.raises(InvalidValueError, match="not a measure protocol"):
        MeasureProtocol.from_json({"colour": "red"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"deadlines": {"compile": 1.0}}, "no phase is called 'compile'"),
        ({"deadlines": {"run": 0}}, "deadline of run must be positive"),
        ({"min_samples": 0}, "min_samples must be positive"),
        ({"max_samples": 2}, "below min_samples"),
        ({"budget_seconds": -1.0}, "budget_seconds must be positive"),
    ],
)
def test_mistakes(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        MeasureProtocol(**options)
