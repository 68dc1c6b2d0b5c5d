"""Tables, formats, and the JSON form of a result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve

from autotune.plugins.manager import PluginStatus
from autotune.process.stopwatch import ACTIVITIES, Stopwatch
from autotune.report import (
    Finding,
    Table,
    comparison_table,
    confirmation_lines,
    findings_table,
    formats,
    plugins_table,
    records_table,
    share_text,
    step_lines,
    time_line,
)
from autotune.sketches import UNTUNED
from autotune.store.records import (
    OUTCOME_STATUSES,
    Baseline,
    Comparison,
    Confirmation,
    MeasureKey,
    Outcome,
    Record,
    WarmSource,
)
from autotune.store.rejections import Rejection
from autotune.targets import preset
from autotune.testing.toy_space import ToySpace
from autotune.tuning.result import HistoryPoint, Result

GOLDEN = Path(__file__).with_name("result_version_1.json")


def baseline(latency: float | None, name: str = UNTUNED, status: str = "ok") -> Baseline:
    samples = () if latency is None else (latency,)
    outcome = Outcome(status, latency, samples, message="" if latency else "verify took 20 s")
    workload, key = ToySpace().workload.digest, MeasureKey("t", "toy", "1.0", "2", 4, "warm-1")
    return Baseline("0123456789ab", workload, key, outcome, 1e9, name)


def make_result(**changes: object) -> Result:
    """A result that is the same everywhere."""
    space = ToySpace()
    target = preset("haswell")
    key = MeasureKey(target.fingerprint, "toy", "1.0", "compiler 2", 4, "warm-1")
    readings = {"perf/instructions_per_call": 4096.0, "perf/cycles_per_call": None}
    outcome = Outcome("ok", 2e-6, (2e-6, 2.5e-6, 1.5e-6), {"build": 0.5}, readings=readings)
    candidate = next(iter(space.enumerate()))
    record = Record("0123456789ab", 1, candidate, key, target.to_json(), "toy-1", outcome, 1e9)
    fields: dict[str, object] = {
        "run_id": "0123456789ab",
        "task": "gemm m=8 n=8 k=8 float32",
        "workload": space.workload,
        "target": target,
        "key": key,
        "space": "toy-1",
        "strategy": "evolutionary",
        "cost_model": "random",
        "seed": 7,
        "trials": 3,
        "outcomes": {**dict.fromkeys(OUTCOME_STATUSES, 0), "ok": 2, "crash": 1},
        "failures": {"crash": "worker failed during run: killed by SIGSEGV"},
        "rejections": {
            "crash: SIGSEGV in run": Rejection(1, "worker failed during run: killed by SIGSEGV")
        },
        "cached": 1,
        "seconds": dict(zip(ACTIVITIES, (1.0, 0.5, 0.25, 4.0, 2.0, 0.0, 0.25), strict=True)),
        "baselines": (baseline(8e-6),),
        "fastest": record,
        "best": record,
        "history": (
            HistoryPoint(0, 1.5, 4e-6),
            HistoryPoint(1, 2.5, 2e-6),
            HistoryPoint(2, 3.5, 2e-6),
        ),
        "database": "records.db",
        "reason": "the trial budget is used up",
        "confirmation": Confirmation(
            candidate.digest,
            2.1e-6,
            (2.1e-6, 2e-6, 2.2e-6),
            "b" * 16,
            Comparison(1.05, 0.98, 1.1, 3),
            Comparison(3.9, 3.75, 4.1, 3),
            ("c" * 16,),
        ),
        "warm_start": (
            WarmSource(
                "ba9876543210/7",
                "d" * 16,
                "gemm m=16 n=8 k=8 float32",
                0.5,
                ("seed", "training"),
                candidate.digest,
                9,
            ),
        ),
        **changes,
    }
    return Result(**fields)  # type: ignore[arg-type]


def test_the_json_form_is_the_documented_one() -> None:
    assert make_result().to_json() == json.loads(GOLDEN.read_text())


def test_the_json_form_without_a_best() -> None:
    data = make_result(best=None, fastest=None, baselines=()).to_json()
    assert data["best"] is None and data["baseline"] is None
    assert set(data) == set(json.loads(GOLDEN.read_text()))


def test_the_comparison() -> None:
    table = comparison_table(make_result(), Outcome("ok", 1e-6), "numpy (BLAS)")
    assert table.title == (
        "gemm m=8 n=8 k=8 float32: 2.10 us, 488 MFLOP/s, 0.48x the speed of numpy (BLAS)"
    )
    assert table.rows == (
        ("tuned", "2.10 us", "488 MFLOP/s", "1.00x"),
        ("numpy (BLAS)", "1.00 us", "1.02 GFLOP/s", "0.48x"),
        # What the confirmation says below, whatever was recorded of it before.
        ("naive loop nest (toy)", "8.19 us", "125 MFLOP/s", "3.90x"),
    )
    notes = "\n".join(table.notes)
    assert "trials: 3, 1 of them from records (2 ok, 1 crash)" in notes
    assert "time: 8.00 s = build 4.00 s (50 %), run 2.00 s (25 %)" in notes
    assert (
        "warm start: 1 schedule of similar tasks, 9 outcomes for the cost model; "
        "nearest: gemm m=16 n=8 k=8 float32, ba9876543210/7"
    ) in notes
    assert "rejected: 1 crash: SIGSEGV in run" in notes
    assert "winner beats the naive loop nest 3.90x (3.75x to 4.10x)" in notes
    assert "winner ties runner-up bbbbbbbb (0.98x to 1.10x)" in notes
    assert "records.db, run 0123456789ab, trial 1" in notes


def test_a_vendor_that_cannot_be_compared_gets_no_ratio() -> None:
    table = comparison_table(make_result(), Outcome("ok", 24e-3), "BLAS", "the machine is busy")
    assert table.title == ("gemm m=8 n=8 k=8 float32: 2.10 us, 488 MFLOP/s")
    assert table.rows[1] == ("BLAS", "24.0 ms", formats.rate(1024, 24e-3), "not comparable")
    assert table.notes[-1] == "BLAS is not comparable here: the machine is busy"


def test_a_forged_latency_is_in_no_headline() -> None:
    honest = make_result()
    assert honest.best is not None
    forged = evolve(honest.best, outcome=evolve(honest.best.outcome, latency=1e-12))
    table = comparison_table(make_result(best=forged, fastest=forged))
    assert table.title == comparison_table(honest).title
    assert table.rows == comparison_table(honest).rows


def test_without_turns_at_the_end_the_recorded_latencies_are_compared() -> None:
    table = comparison_table(make_result(confirmation=None))
    assert [row[1::2] for row in table.rows] == [("2.00 us", "1.00x"), ("8.00 us", "4.00x")]


def test_a_baseline_that_took_no_turns_is_compared_with_the_confirmed_latency() -> None:
    whole = make_result().confirmation
    assert whole is not None
    result = make_result(confirmation=evolve(whole, over_baseline=None))
    table = comparison_table(result)
    assert [row[1::2] for row in table.rows] == [("2.10 us", "1.00x"), ("8.00 us", "3.81x")]
    assert result.speedup == 8e-6 / 2.1e-6


def test_imported_records_are_said_to_be_claims() -> None:
    own = make_result().best
    assert own is not None
    claim = evolve(own, outcome=evolve(own.outcome, imported=True))
    assert records_table([own]).notes == ()
    assert records_table([own, claim]).notes == ("imported, not measured here: 0123456789ab/1",)


def test_the_comparison_of_a_failed_run() -> None:
    result = make_result(best=None, fastest=None, outcomes={"ok": 0, "crash": 3})
    table = comparison_table(result)
    assert table.rows[0] == ("tuned", "-", "-", "-")
    assert table.notes[-1] == (
        "gemm m=8 n=8 k=8 float32: none of 3 candidates was valid (3 crash); 1 crash: SIGSEGV in "
        "run, the first: worker failed during run: killed by SIGSEGV"
    )


def test_the_comparison_names_the_baseline_that_was_used() -> None:
    known = baseline(4e-6, "TVM's default schedule"), baseline(None, status="timeout")
    table = comparison_table(make_result(baselines=known))
    assert table.title.endswith("3.90x the speed of TVM's default schedule")
    assert [row[:2] for row in table.rows] == [
        ("tuned", "2.10 us"),
        ("TVM's default schedule (toy)", "8.19 us"),
        ("naive loop nest (toy)", "-"),
    ]
    assert "winner beats TVM's default schedule 3.90x (3.75x to 4.10x)" in table.notes
    slow = "naive loop nest: too slow to be timed: timeout (verify took 20 s)"
    assert slow in table.notes


@pytest.mark.parametrize("default", [None, "TVM's default schedule"])
def test_a_headline_is_no_comparison_with_a_naive_loop_nest_alone(default: str | None) -> None:
    known = (baseline(4e-6), *([baseline(6e-6, default)] if default else ()))
    title = comparison_table(make_result(baselines=known)).title
    if default:
        assert title.endswith(f"3.90x the speed of the naive loop nest, which beats {default}")
    else:
        assert title.endswith("488 MFLOP/s")
    table = comparison_table(make_result(baselines=()), Outcome("ok", 1e-6), "numpy (BLAS)")
    assert table.title.endswith("0.48x the speed of numpy (BLAS)")


def test_a_schedule_that_a_compiler_does_not_have_is_not_mentioned() -> None:
    known = baseline(8e-6), baseline(None, "TVM's default schedule", "invalid")
    table = comparison_table(make_result(baselines=known))
    assert "TVM" not in table.to_text()


def test_the_comparison_where_the_baseline_is_kept() -> None:
    tuned = make_result().require_best()
    kept = baseline(5e-7)
    result = make_result(best=kept.record(tuned), baselines=(kept,), confirmation=None)
    table = comparison_table(result)
    assert table.title == (
        "gemm m=8 n=8 k=8 float32: 500 ns, 2.05 GFLOP/s, the naive loop nest, which no candidate "
        "beats"
    )
    assert [row[:2] for row in table.rows] == [
        ("tuned, not used", "2.00 us"),
        ("naive loop nest (toy)", "500 ns"),
    ]
    assert "no candidate is a gain over the naive loop nest: it is the result" in table.notes
    assert table.notes[-1] == "record: records.db, 0123456789ab/untuned: naive loop nest"
    data = result.to_json()
    assert data["best"]["baseline"] == "naive loop nest" == data["baseline"]["name"]
    assert data["best"]["record"]["name"] == "0123456789ab/untuned"
    assert data["fastest"] == {
        "latency": 2e-6,
        "digest": tuned.candidate.digest,
        "record": "0123456789ab/1",
        "is_best": False,
    }


def test_the_comparison_of_a_known_run() -> None:
    notes = comparison_table(make_result(from_records=True)).notes
    assert "answered from records; the run took 8.00 s when it was made" in notes


@pytest.mark.parametrize(
    ("confirmation", "lines"),
    [
        (
            Confirmation("a" * 16, 1e-3),
            ["winner not timed again beside the naive loop nest"],
        ),
        (
            Confirmation(
                "a" * 16,
                1e-3,
                (),
                "b" * 16,
                Comparison(1.034, 1.012, 1.051, 9),
                Comparison(12.34, 11.9, 12.8, 9),
                ("c" * 16, "d" * 16),
            ),
            [
                "winner beats runner-up bbbbbbbb 1.03x (1.01x to 1.05x)",
                "faster, but wrong on other inputs: cccccccc, dddddddd",
                "winner beats the naive loop nest 12.3x (11.9x to 12.8x)",
            ],
        ),
        (
            Confirmation(
                "a" * 16,
                1e-3,
                (),
                "b" * 16,
                Comparison(1.01, 0.98, 1.02, 9),
                Comparison(1.1, 0.99, 1.2, 9),
            ),
            [
                "winner ties runner-up bbbbbbbb (0.98x to 1.02x)",
                "winner ties the naive loop nest (0.99x to 1.20x)",
            ],
        ),
    ],
)
def test_a_confirmation_in_words(confirmation: Confirmation, lines: list[str]) -> None:
    assert confirmation_lines(confirmation) == lines


def test_a_table_as_text_and_data() -> None:
    table = Table("Title", ("name", "value>"), (("a", "1"), ("long", "22")), ("note",))
    assert table.to_text().splitlines() == [
        "Title",
        "name  value",
        "a         1",
        "long     22",
        "note",
    ]
    assert table.to_json() == [{"name": "a", "value": "1"}, {"name": "long", "value": "22"}]


def test_other_tables() -> None:
    statuses = [PluginStatus("plugin", "p", "", "", "quarantined", "broken")]
    assert plugins_table(statuses).rows == (("plugin", "p", "-", "-", "quarantined", "broken"),)
    findings = [Finding("disk", "warning", "full")]
    assert findings_table(findings).rows == (("warning", "disk", "full"),)
    record = make_result().require_best()
    (row,) = records_table([record]).rows
    assert row[0] == "gemm m=8 n=8 k=8 float32" and row[-1] == "0123456789ab/1"


def test_steps_have_their_values() -> None:
    candidate = make_result().require_best().candidate
    lines = step_lines(candidate)
    assert lines[0] == "sketch toy sequential"
    assert any("tile" in line and "stage=C, axis=i, factors=[" in line for line in lines)
    assert all(name in lines[-1] for name in candidate.config)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0.00 ns"),
        (1.2345e-3, "1.23 ms"),
        (12.345e-6, "12.3 us"),
        (0.9999, "1000 ms"),
        (123.4, "123 s"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert formats.seconds(value) == text


def test_other_formats() -> None:
    assert formats.rate(2 * 10**9, 1e-3) == "2.00 TFLOP/s"
    assert formats.rate(100, None) == "-"
    assert formats.size(48 * 1024) == "48.0 KiB"
    assert formats.percent(1, 0) == "-"
    assert time_line(dict.fromkeys(ACTIVITIES, 0.0)).startswith("time: 0.00 ns")
    assert share_text({"build": 6.0, "startup": 2.0, "run": 2.0, "other": 0.01}) == (
        "build 60 %, start-up 20 %, run 20 %"
    )
    assert share_text({}) == share_text(dict.fromkeys(ACTIVITIES, 0.0)) == ""


def test_the_stopwatch_accounts_for_every_second() -> None:
    now = [10.0]
    watch = Stopwatch(lambda: now[0], {"build": 5.0}, began=8.0)
    with pytest.raises(KeyError), watch.timing("search"):
        now[0] += 3.0
        raise KeyError
    now[0] += 1.0
    assert watch.seconds == {
        **dict.fromkeys(ACTIVITIES, 0.0),
        "startup": 2.0,
        "build": 5.0,
        "search": 3.0,
        "other": 1.0,
    }
    assert watch.session == 6.0 and watch.elapsed == 11.0
