from __future__ import annotations

import json
import math
from typing import Any

import pytest
from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.store.records import (
    Comparison,
    Confirmation,
    MeasureKey,
    Outcome,
    Record,
    run_identity,
)
from autotune.testing.sample_records import KEY, sample_record


class TestOutcome:
    def test_json_round_trip(self) -> None:
        outcome = Outcome("ok", 1.5e-3, (1e-3, 1.5e-3, 2e-3), {"build": 0.5}, "")
        assert Outcome.from_json(json.loads(json.dumps(outcome.to_json()))) == outcome

    def test_being_cached_is_not_stored(self) -> None:
        cached = Outcome("ok", 1.0).as_cached()
        assert cached.cached
        assert not Outcome.from_json(cached.to_json()).cached

    def test_what_seldom_applies_is_written_where_it_does(self) -> None:
        plain = Outcome("ok", 1.0)
        assert not {"reference", "imported", "beaten_by"} & plain.to_json().keys()
        beside = Outcome("ok", 1.0, reference=2.0, beaten_by="ab" * 8)
        assert Outcome.from_json(beside.to_json()) == beside

    def test_being_imported_is_known_to_a_database_and_not_to_a_file(self) -> None:
        claim = Outcome("ok", 1.0, imported=True)
        assert not Outcome.from_json(claim.to_json()).imported

    @pytest.mark.parametrize("status", ["ok", "timeout"])
    def test_a_latency_goes_with_being_ok(self, status: str) -> None:
        with pytest.raises(InvalidValueError, match="exactly when it is ok"):
            Outcome(status, None if status == "ok" else 1.0)

    @pytest.mark.parametrize(
        ("status", "retriable"),
        [
            ("crash", True),
            ("timeout", True),
            ("implausible", True),
            ("invalid", False),
            ("wrong_result", False),
        ],
    )
    def test_what_may_be_tried_again(self, status: str, retriable: bool) -> None:
        assert Outcome(status).retriable is retriable

    @pytest.mark.parametrize(
        "data", [{}, {"status": "ok"}, {**Outcome("ok", 1.0).to_json(), "status": "fine"}]
    )
    def test_mistakes(self, data: dict[str, Any]) -> None:
        with pytest.raises(InvalidValueError, match="not an outcome"):
            Outcome.from_json(data)


class TestRecord:
    @pytest.mark.parametrize("status", ["ok", "crash"])
    def test_json_round_trip(self, status: str) -> None:
        record = sample_record(3, status=status)
        text = json.dumps(record.to_json())
        again = Record.from_json(json.loads(text))
        assert again == record
        assert again.candidate.digest == record.candidate.digest
        assert json.dumps(again.to_json()) == text

    def test_mistakes(self) -> None:
        data = sample_record().to_json()
        with pytest.raises(InvalidValueError, match="schema 99"):
            Record.from_json({**data, "schema": 99})
        for missing in data:
            with pytest.raises(InvalidValueError):
                Record.from_json({key: data[key] for key in data if key != missing})
        with pytest.raises(InvalidValueError, match="not a record: key lacks 'target'"):
            Record.from_json({**data, "key": {"colour": "red"}})

    def test_measure_key_round_trip(self) -> None:
        assert MeasureKey.from_json(json.loads(json.dumps(KEY.to_json()))) == KEY


def test_a_runs_identity_is_what_decides_its_proposals() -> None:
    content: tuple[Any, ...] = ("workload", KEY, "toy-1", "random", {"a": 1, "b": 2}, 0)
    identity = run_identity(*content)
    assert identity == run_identity(*content[:4], {"b": 2, "a": 1}, 0)
    others: list[tuple[int, Any]] = [
        (0, "other"),
        (1, evolve(KEY, threads=1)),
        (2, "toy-2"),
        (3, "grid"),
        (4, {"a": 1}),
        (5, 1),
    ]
    for position, value in others:
        changed = [*content]
        changed[position] = value
        assert run_identity(*changed) != identity


def test_an_interval_without_an_upper_end_has_a_json_form() -> None:
    confirmation = Confirmation("a", 1e-3, over_baseline=Comparison(2.0, 0.0, math.inf, 2))
    text = json.dumps(confirmation.to_json(), allow_nan=False)
    assert json.loads(text)["over_baseline"]["high"] is None
    assert Confirmation.from_json(json.loads(text)) == confirmation


def test_a_confirmation_round_trip() -> None:
    comparison = Comparison(ratio=1.5, low=1.4, high=1.6, rounds=20)
    for over in (comparison, None):
        confirmation = Confirmation("a", 1e-3, (1e-3,), "b", over, over, ("c",))
        again = Confirmation.from_json(json.loads(json.dumps(confirmation.to_json())))
        assert again == confirmation
    with pytest.raises(InvalidValueError, match="not a confirmation"):
        Confirmation.from_json({"winner": "a"})


@pytest.mark.parametrize(
    ("interval", "gain"),
    [((1.2, 1.1, 1.3), True), ((1.01, 0.98, 1.03), False), ((0.9, 0.8, 0.95), False)],
)
def test_a_win_inside_the_noise_is_no_gain(
    interval: tuple[float, float, float], gain: bool
) -> None:
    confirmation = Confirmation("a", 1e-3, over_baseline=Comparison(*interval, rounds=9))
    assert confirmation.gain is gain
