"""Records as JSON lines, good ones and bad ones."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.store.jsonl import MOST_BYTES, BadLine, read_lines, record_line, write_lines
from autotune.store.records import OUTCOME_STATUSES, Outcome, Record
from autotune.store.records.validity import MOST_DEPTH
from autotune.testing.sample_records import sample_baseline, sample_record

HERE = Path(__file__).parent


def read(content: bytes) -> list[Record | BadLine]:
    return list(read_lines(io.BytesIO(content)))


def reason(content: bytes) -> str:
    """Fault of the one bad line of some content."""
    (bad,) = read(content)
    assert isinstance(bad, BadLine)
    assert "\n" not in bad.reason
    return bad.reason


def changed(path: str, value: Any, line: bytes | None = None) -> bytes:
    """A record's line with one part replaced."""
    data = json.loads(record_line(sample_record()) if line is None else line)
    place: Any = data
    *outer, last = path.split(".")
    for name in outer:
        place = place[name]
    place[last] = value
    return json.dumps(data).encode() + b"\n"


@pytest.mark.parametrize("status", OUTCOME_STATUSES)
def test_outcomes_of_every_status_are_read(status: str) -> None:
    record = sample_record(0, status=status)
    assert read(record_line(record)) == [record]


def test_round_trip() -> None:
    records = [sample_record(0), sample_record(1, status="crash"), sample_record(2, program="p")]
    stream = io.BytesIO()
    assert list(write_lines(records, stream)) == [1, 2, 3]
    assert stream.getvalue().count(b"\n") == 3
    assert read(stream.getvalue()) == records
    again = read(stream.getvalue())
    assert b"".join(record_line(r) for r in again if isinstance(r, Record)) == stream.getvalue()


@pytest.mark.parametrize("path", sorted(HERE.glob("schema_*.jsonl")), ids=lambda path: path.stem)
def test_files_of_every_schema_are_read(path: Path) -> None:
    lines = read(path.read_bytes())
    assert lines[0] == sample_record(0)
    assert lines[1] == sample_record(1, status="timeout")
    if path.stem == "schema_1":
        assert len(lines) == 2
        return
    full = lines[2]
    assert isinstance(full, Record) and full.program == "an imported program"
    assert full.outcome.drift == 1.25 and full.outcome.duplicate_of == "3d" * 8
    assert full.outcome.readings == {
        "perf/cycles_per_call": 1e6,
        "perf/cache_misses_per_call": None,
    }
    assert b"".join(record_line(r) for r in lines if isinstance(r, Record)) == path.read_bytes()


def test_a_bad_line_costs_nothing_but_itself() -> None:
    good = [record_line(sample_record(trial)) for trial in range(3)]
    content = good[0] + b"\n  \n{\n" + good[1] + b"[]\n" + good[2][:-40]
    first, brace, second, array, torn = read(content)
    assert [first, second] == [sample_record(0), sample_record(1)]
    assert [bad.number for bad in (brace, array, torn) if isinstance(bad, BadLine)] == [4, 6, 7]
    assert isinstance(torn, BadLine) and "the file ends within this line" in torn.reason


def test_the_last_line_needs_no_end() -> None:
    assert read(record_line(sample_record())[:-1]) == [sample_record()]


def test_a_line_without_an_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.store.jsonl.MOST_BYTES", 5000)
    good = record_line(sample_record())
    assert len(good) < 5000 < MOST_BYTES
    found = read(b"x" * 20000 + b"\n" + good + b"y" * 20000)
    assert [line.number if isinstance(line, BadLine) else line for line in found] == [
        1,
        sample_record(),
        3,
    ]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schema", 4, "schema 4; this version reads 1, 2, 3"),
        ("schema", 3, "schema 3, baseline None"),
        ("baseline", "naive loop nest", "schema 2, baseline 'naive loop nest'"),
        ("trial", "0", "trial is not a whole number"),
        ("trial", -1, "trial is not a whole number"),
        ("trial", True, "trial is not a whole number"),
        ("trial", 1 << 70, "64-bit"),
        ("run_id", "\ud800", "half of a surrogate pair"),
        ("workload.name", "\udcff", "half of a surrogate pair"),
        ("workload.name", 7, "name is not a text: 7"),
        ("workload.parameters", {"\ud800": 1}, "half of a surrogate pair"),
        ("sketch.name", 7, "name is not a text: 7"),
        (
            "sketch.params",
            [["ordinal", "tile", [1, 1 << 70]], ["ordinal", "unroll", [0]]],
            "64-bit",
        ),
        (
            "sketch.steps",
            [{}] * 4097,
            "its sketch has 4097 steps, more than 4096",
        ),
        ("sketch.constraints", [{}] * 4097, "its sketch has 4097 constraints, more than 4096"),
        ("workload.stages", [{}] * 4097, "its workload has 4097 stages, more than 4096"),
        (
            "sketch.params",
            [["ordinal", "tile", list(range(4097))]],
            "a parameter has 4097 values, more than 4096",
        ),
        ("config", {"tile": 8.5, "unroll": 16}, "parameter 'tile' is not a whole number: 8.5"),
        ("config", {"tile": 1e308, "unroll": 16}, "parameter 'tile' is not a whole number"),
        ("config", {"tile": "8", "unroll": 16}, "parameter 'tile' is not a whole number: 8"),
        ("config", {"tile": True, "unroll": 16}, "parameter 'tile' is not a whole number"),
        (
            "sketch.params",
            [["factor", "tile", None], ["ordinal", "unroll", [0]]],
            "tile is not 1 or more",
        ),
        ("config", {"tile": 1, "unroll": -16}, "config.unroll is not 0 or more: -16"),
        ("target.peak_flops", {"float32": 1e999}, ""),
        ("key.threads", 0, "key.threads is not a whole number above 0"),
        ("run_id", 5, "run_id is not a text"),
        ("created", None, "created is not a number"),
        ("program", 5, "program is not a text"),
        ("key.threads", "2", "key.threads is not a whole number"),
        ("key.backend", None, "key.backend is not a text"),
        ("key", [], "not a"),
        ("target", {}, ""),
        ("target", [], ""),
        ("config", {}, "has parameters"),
        ("config", {"tile": 1 << 70, "unroll": 16}, "64-bit"),
        ("config", [], ""),
        ("workload", {}, ""),
        ("workload", 7, ""),
        ("sketch", None, ""),
        ("outcome.status", "fine", "outcome: 'status' must be in ('ok',"),
        ("outcome.latency", -1.0, "above 0"),
        ("outcome.latency", "fast", "outcome.latency is not a number"),
        ("outcome.latency", None, "exactly when it is ok"),
        ("outcome.latency", 0, "above 0"),
        ("outcome.samples", [1e-3, 0.0], "outcome.samples is not made of numbers above 0: 0.0"),
        ("outcome.drift", -1.0, "outcome.drift is not a number above 0"),
        ("outcome.timings", {"build": -1.0}, "outcome.timings.build is not 0 or more"),
        ("outcome.samples", ["a"], "outcome.samples is not a number"),
        ("outcome.message", 3, "not a text"),
    ],
)
def test_what_is_wrong_is_said(path: str, value: Any, message: str) -> None:
    assert message in reason(changed(path, value))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("counts_as", 0.0, "counts_as is not a number above 0"),
        ("counts_as", "1", "counts_as is not a number"),
        ("baseline", "another", "sketch is not that of another"),
        ("baseline", 7, "baseline is not a text"),
        ("sketch.steps", [{"step": "inline", "stage": "C"}], "sketch is not that of naive"),
    ],
)
def test_what_is_wrong_with_a_baseline_is_said(path: str, value: Any, message: str) -> None:
    line = record_line(sample_baseline().record(sample_record()))
    assert read(line) == [sample_baseline().record(sample_record())]
    assert message in reason(changed(path, value, line))


def test_depth_is_limited() -> None:
    deep: Any = "i"
    for _ in range(MOST_DEPTH):
        deep = ["add", deep, 1]
    assert "deeper than 200 lists" in reason(changed("sketch.steps", deep))


@pytest.mark.parametrize(
    "content",
    [b"NaN", b"\xff\xfe", b"[" * 100_000, b"null", b"1e999", b'"text"', b"{}", b"\x00"],
)
def test_other_content(content: bytes) -> None:
    assert reason(content)


def test_not_a_number_is_refused_both_ways() -> None:
    text = record_line(sample_record()).replace(b"0.001", b"NaN")
    assert "NaN is no number" in reason(text)
    strange = evolve(sample_record(), outcome=Outcome("ok", 1.0, (float("inf"),)))
    with pytest.raises(InvalidValueError, match="record run-1/0 cannot be written"):
        record_line(strange)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


def places(data: Any) -> list[tuple[Any, Any]]:
    """Every container within some JSON with each of its keys."""
    keys = data.keys() if isinstance(data, dict) else range(len(data))
    found = [(data, key) for key in keys]
    for key in keys:
        if isinstance(data[key], (dict, list)):
            found += places(data[key])
    return found


@given(st.data())
def test_no_change_of_a_record_ends_the_reading(data: st.DataObject) -> None:
    """Whatever a line holds: what follows is read, and what is accepted can be written again."""
    record = sample_record(status=data.draw(st.sampled_from(("ok", "crash")))).to_json()
    container, key = data.draw(st.sampled_from(places(record)))
    if data.draw(st.booleans()):
        container[key] = data.draw(JUNK)
    else:
        del container[key]
    first, second = read(json.dumps(record).encode() + b"\n" + record_line(sample_record(1)))
    assert second == sample_record(1)
    if isinstance(first, Record):
        assert read(record_line(first)) == [first]


@given(st.integers(0, 5000), st.binary(max_size=8))
def test_no_bytes_end_the_reading(at: int, junk: bytes) -> None:
    line = record_line(sample_record())
    at %= len(line)
    found = read(line[:at] + junk + line[at + len(junk) :] + b"\n" + record_line(sample_record(1)))
    assert found[-1] == sample_record(1)
