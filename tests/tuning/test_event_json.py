"""Events as JSON: every kind, a golden file, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.process.stopwatch import ACTIVITIES
from autotune.store.records import (
    Comparison,
    Confirmation,
    Contest,
    MeasureKey,
    Outcome,
    Record,
    WarmSource,
)
from autotune.targets import preset
from autotune.testing.toy_space import ToySpace
from autotune.tuning.events import (
    EVENT_VERSION,
    LATER,
    AnsweredFromRecords,
    BackendsCompared,
    BaselineMeasured,
    CheckpointSaved,
    Event,
    LeadersCompared,
    NetworkLoaded,
    NetworkTaskFacts,
    PassFinished,
    RoundStarted,
    RunFailed,
    RunFinished,
    RunInterrupted,
    RunStarted,
    TrialFinished,
    WarmStarted,
    WarningRaised,
    WinnerConfirmed,
    WorkersReady,
    event_from_json,
    event_name,
    event_to_json,
    read_events,
)

GOLDEN = Path(__file__).with_name("events_version_1.jsonl")
TASK = "gemm m=8 n=8 k=8 float32"
# Two of one sketch and one of another between them.
CANDIDATES = list(ToySpace().enumerate())[:3]
OK = Outcome("ok", 2e-6, (2e-6, 2.5e-6, 1.5e-6), {"build": 0.5}, drift=1.25, lowered="ab12")
READ = Outcome("ok", 1e-6, readings={"perf/cycles_per_call": 12.5, "energy/joules": None})
CRASH = Outcome(
    "crash", timings={"run": 0.25}, message="worker failed during run: killed by SIGSEGV"
)


def record() -> Record:
    target = preset("haswell")
    key = MeasureKey(target.fingerprint, "toy", "1.0", "compiler 2", 4, "warm-1")
    return Record("0123456789ab", 1, CANDIDATES[0], key, target.to_json(), "toy-1", OK, 1e9)


def events() -> list[Event]:
    """An event of every kind at least."""
    confirmation = Confirmation(
        "aa", 2e-6, (2e-6, 2.5e-6), "bb", Comparison(1.01, 0.5, math.inf, 3), None, ("cc",)
    )
    return [
        RunStarted(
            "0123456789ab",
            TASK,
            "fedcba9876543210",
            1024,
            3,
            60.0,
            1,
            {"ok": 0, "crash": 1},
            {"crash: SIGSEGV in run": 1},
            None,
            2.5,
            "records.db",
            2,
            128,
        ),
        WorkersReady(TASK, 1.5),
        BaselineMeasured(TASK, Outcome("ok", 8e-6, (8e-6,))),
        RoundStarted(TASK, 0, 1, 2),
        TrialFinished(TASK, 1, CANDIDATES[0], OK, 2e-6, True, 3.25),
        TrialFinished(TASK, 2, CANDIDATES[1], CRASH, 2e-6, False, 3.5),
        TrialFinished(TASK, 3, CANDIDATES[2], READ.as_cached(), 1e-6, True, 3.75),
        LeadersCompared(TASK, "aa", "bb", Comparison(0.9, 0.8, 0.95, 7), False),
        WinnerConfirmed(TASK, confirmation),
        WarningRaised(TASK, 'something "odd"\nhappened: ü'),
        CheckpointSaved("0123456789ab", 4, dict.fromkeys(ACTIVITIES, 0.5)),
        AnsweredFromRecords("0123456789ab", TASK, 4, None),
        RunInterrupted("0123456789ab", 4),
        RunFailed("0123456789ab", 4, "DatabaseError: the disk is full"),
        RunFinished("0123456789ab", TASK, 4, "the trial budget is used up", record()),
        BackendsCompared(
            "gemm", Contest("a", {"a": "aa", "b": "bb"}, {"b": Comparison(2.0, 1.5, math.inf, 2)})
        ),
        PassFinished("bert", "FuseOps", 0.25, "33 functions"),
        NetworkLoaded("bert", (NetworkTaskFacts("dense", 12, 1024.0, True),)),
        WarmStarted(
            TASK,
            (
                WarmSource(
                    "ba9876543210/7", "00ff", "gemm m=8", 0.5, ("seed", "training"), "aa", 9
                ),
            ),
        ),
    ]


def lines() -> Iterator[str]:
    sketches: dict[str, Any] = {}
    for number, event in enumerate(events()):
        data = event_to_json(event, 1e9 + number, sketches)
        yield json.dumps(data, allow_nan=False)


def test_there_is_one_of_every_kind() -> None:
    assert {type(event) for event in events()} == set(get_args(Event))


def test_the_form_is_the_golden_one() -> None:
    assert list(lines()) == GOLDEN.read_text(encoding="utf-8").splitlines()


def test_the_golden_file_is_read() -> None:
    with GOLDEN.open(encoding="utf-8") as file:
        assert list(read_events(file)) == events()


@pytest.mark.parametrize("event", events(), ids=lambda event: type(event).__name__)
def test_one_event_is_self_contained(event: Event) -> None:
    data = json.loads(json.dumps(event_to_json(event, 1.0), allow_nan=False))
    assert data["event"] == event_name(type(event)) and data["version"] == EVENT_VERSION
    assert data["time"] == 1.0
    assert event_from_json({**data, "news": 1}) == event
    # What came with a later version is written where it says something.
    fields = {it.name for it in attrs.fields(type(event)) if not it.metadata.get(LATER)}
    assert set(data) == {"event", "version", "time", *fields}


def test_a_sketch_is_written_once() -> None:
    trials = [json.loads(line) for line in lines() if '"trial_finished"' in line]
    sketches = [trial["candidate"]["sketch"] for trial in trials]
    assert ["content" in sketch for sketch in sketches] == [True, True, False]
    assert sketches[2]["digest"] == sketches[0]["digest"]
    with pytest.raises(InvalidValueError, match="an earlier object"):
        event_from_json(trials[2])


@given(
    st.lists(st.floats(allow_nan=False), max_size=4),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.dictionaries(st.text(max_size=5), st.none() | st.floats(allow_nan=False), max_size=3),
)
def test_any_numbers_and_texts_survive(
    samples: list[float], latency: float, message: str, readings: dict[str, float | None]
) -> None:
    outcome = Outcome("ok", latency, tuple(samples), {}, message, readings=readings)
    event = TrialFinished(TASK, 0, CANDIDATES[0], outcome, latency, True, 0.0)
    assert event_from_json(json.loads(json.dumps(event_to_json(event, 0.0)))) == event


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_line_that_was_cut_off_is_left_out(cut: int) -> None:
    complete = list(lines())
    assert list(read_events([*complete[:3], complete[3][:cut], *complete[3:]])) == events()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"event": "run_startd"}, "unknown event 'run_startd'.*Did you mean 'run_started'"),
        ({"event": 3}, "unknown event '3'"),
        ({"version": 2}, "an event of version 2; this autotune reads 1"),
        ({"trials": "four"}, "not an event: 'four' is not of type int"),
        ({"trials": True}, "not an event: True is not of type int"),
    ],
)
def test_what_is_no_event_is_refused(change: dict[str, Any], message: str) -> None:
    data = event_to_json(RunInterrupted("0123456789ab", 4), 1.0)
    with pytest.raises((InvalidValueError, UnknownNameError), match=message):
        event_from_json({**data, **change})


@pytest.mark.parametrize("missing", ["event", "version", "run_id"])
def test_what_lacks_a_field_is_refused(missing: str) -> None:
    data = event_to_json(RunInterrupted("0123456789ab", 4), 1.0)
    del data[missing]
    with pytest.raises(InvalidValueError, match=f"it lacks '{missing}'"):
        event_from_json(data)


def test_what_is_json_and_no_event_is_not_left_out() -> None:
    with pytest.raises(InvalidValueError, match="not an event"):
        list(read_events(["[1]"]))


def test_which_baseline_was_measured_is_written_unless_it_is_the_untuned_program() -> None:
    untuned = BaselineMeasured(TASK, OK)
    other = BaselineMeasured(TASK, OK, "a default schedule")
    assert "name" not in event_to_json(untuned, 1.0)
    data = json.loads(json.dumps(event_to_json(other, 1.0)))
    assert data["name"] == "a default schedule"
    assert event_from_json(data) == other
