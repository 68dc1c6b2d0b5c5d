"""The figures of a comparison, by hand; a scorer that is wrong is noticed."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from compared_lines import plan_of, run_line, turns_line

from autotune.evaluation.compare import (
    ComparedRuns,
    Course,
    Piece,
    cell_of,
    compare_json,
    compare_tables,
    csv_text,
    curve_of,
    figures,
    pairs_of,
    read_study,
    speedup_over,
    verdict,
)
from autotune.report.bootstrap import paired_difference

PLAN = plan_of(["gemm", "softmax"], ["random", "fast", "same"], 4)
# What winners of equal seeds take in turns: the machine, or luck, makes seeds differ, more than
# contenders do.
RANDOM = (4e-3, 8e-3, 2e-3, 16e-3)


def lines() -> list[Any]:
    """Four seeds each: `fast` has half of random's latency, on softmax as on gemm."""
    found: list[Any] = [PLAN.head]
    for workload, scale in (("gemm", 1.0), ("softmax", 1e-2)):
        ended = {}
        for seed, latency in enumerate(RANDOM):
            own = {"random": latency, "fast": latency / 2, "same": latency}
            if seed == 3:
                own["same"] = latency * 1.1  # and a little faster on another seed
            if seed == 2:
                own["same"] = latency / 1.1
            for name, seconds in own.items():
                piece = Piece(workload, name, seed)
                # As the run saw it the machine was three times as slow.
                ended[piece.label] = seconds * scale
                slow = 3 * seconds * scale
                steps = [(0, 1.0, 4 * slow), (9, 5.0, 2 * slow), (49, 9.0, slow)]
                found.append(run_line(piece, steps))
        found.append(turns_line(workload, ended))
    return found


def study() -> ComparedRuns:
    return read_study(PLAN, lines())


def check() -> None:
    """Everything that can be said of these runs by hand."""
    of = study()
    assert of.failures == {}
    assert of.best_known("gemm") == pytest.approx(1e-3)
    random, fast = (cell_of(of, "gemm", name) for name in ("random", "fast"))
    assert random.latency is not None and random.latency.value == pytest.approx(6e-3)
    assert (random.latency.low, random.latency.high) == (
        pytest.approx(2e-3),
        pytest.approx(16e-3),
    )
    assert random.speedup is None, "of itself"
    assert fast.speedup is not None
    assert attrs.astuple(fast.speedup.interval) == pytest.approx((2.0, 2.0, 2.0)), "by pairs"
    # Only seed 2 of `fast` comes within 5 % of the best known, and most runs do not.
    assert (fast.near, fast.near_runs, random.near_runs) == (math.inf, 1, 0)
    assert (fast.runs, fast.empty, fast.seconds) == (4, 0, 20.0)
    overall = speedup_over(of, "fast", "random", of.workloads)
    assert overall is not None and overall.pairs == 8 and overall.above == 1
    assert overall.interval.value == pytest.approx(2.0)
    assert verdict(of, "fast").startswith("fast beats random: 2.000x its speed")
    assert verdict(of, "same").startswith("same does not beat random: 1.000x its speed")
    assert verdict(of, "random") == ""
    pairs = {(it.first, it.second): it.speedup for it in pairs_of(of)}
    assert set(pairs) == {("random", "fast"), ("random", "same"), ("fast", "same")}
    worse = pairs["random", "fast"]
    assert worse is not None and worse.interval.value == pytest.approx(0.5) and worse.above == 0
    like = pairs["random", "same"]
    assert like is not None and 0.3 < like.above < 0.7
    # Before its last step, after fifty candidates, it had a program that is half as fast.
    runs = of.of("gemm", "fast")
    middle = curve_of(runs, lambda run: run.after_trials(49))
    assert middle is not None and middle.value == pytest.approx(6e-3)


def test_figures_by_hand() -> None:
    check()


def _unpaired(ours: Any, theirs: Any, rng: Any, **options: Any) -> Any:
    return paired_difference(ours, sorted(theirs), rng, **options)


def _swapped(ours: Any, theirs: Any, rng: Any, **options: Any) -> Any:
    return paired_difference(theirs, ours, rng, **options)


@pytest.mark.parametrize(
    ("where", "name", "wrong"),
    [
        (figures, "paired_difference", _swapped),
        (figures, "paired_difference", _unpaired),
        (Course, "calibrated", lambda run, latency: run),
        (Course, "after_trials", lambda run, trials: run.latency),
        (Course, "reached", lambda run, target: run.points[0]),
        (figures, "true_latencies", lambda turns: {it: max(s) for it, s in turns.items()}),
        (ComparedRuns, "best_known", lambda study, workload: 1e-9),
    ],
    ids=[
        "inverted ratio",
        "seeds not paired",
        "winners' turns ignored",
        "leaked future",
        "reached at once",
        "slowest turn",
        "shifted optimum",
    ],
)
def test_a_scorer_that_is_wrong_is_noticed(
    where: Any, name: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, wrong)
    with pytest.raises(AssertionError):
        check()


def test_a_run_that_found_nothing_is_slow_and_no_ratio() -> None:
    plan = plan_of(["gemm"], ["random", "empty"], 2)
    found = [
        run_line(Piece("gemm", "random", 0), [(0, 1.0, 1e-3)]),
        run_line(Piece("gemm", "random", 1), [(0, 1.0, 1e-3)]),
        run_line(Piece("gemm", "empty", 0), []),
        run_line(Piece("gemm", "empty", 1), [(0, 1.0, 1e-4)]),
        turns_line("gemm", {"random/0": 1e-3, "random/1": 1e-3, "empty/1": 1e-4}),
    ]
    of = read_study(plan, found)
    cell = cell_of(of, "gemm", "empty")
    assert cell.latency is not None and cell.latency.value == math.inf
    assert (cell.runs, cell.empty, cell.speedup) == (2, 1, None)
    assert cell.to_json()["latency"] == {"value": None, "low": 1e-4, "high": None}
    assert verdict(of, "empty") == ""
    rows = {row[0]: row for row in compare_tables(of)[0].rows}
    assert rows["empty"][1:4] == ("2/2, 1 empty", "-", "-")
    json.dumps(compare_json(plan, of), allow_nan=False)


def test_failures_are_in_no_figure_and_are_named() -> None:
    plan = plan_of(["gemm"], ["random", "mine"], 3)
    found = [
        run_line(Piece("gemm", "random", 0), [(0, 1.0, 1e-3)]),
        run_line(Piece("gemm", "random", 1), [(0, 1.0, 1e-3)]),
        run_line(Piece("gemm", "mine", 0), [(0, 1.0, 1e-3)]),
        {**run_line(Piece("gemm", "mine", 1), []), "error": "mine raised KeyError: 'x'"},
        run_line(Piece("gemm", "mine", 2), [(0, 1.0, 1e-3)]),
        turns_line(
            "gemm",
            {"random/0": 1e-3, "random/1": 1e-3, "mine/0": 1e-3},
            **{"mine/2": "crash: SIGSEGV"},
        ),
    ]
    of = read_study(plan, found)
    assert of.failures == {
        Piece("gemm", "mine", 1): "mine raised KeyError: 'x'",
        Piece("gemm", "mine", 2): "its winner was not timed: crash: SIGSEGV",
        Piece("gemm", "random", 2): "it was not done yet",
    }
    assert [run.seed for run in of.of("gemm", "mine")] == [0]
    table, total, _ = compare_tables(of)
    assert "mine/1 failed: mine raised KeyError: 'x'" in table.notes
    assert "3 runs failed and are in no figure" in total.notes
    # One seed in common with random: a difference of chance is not called a difference.
    assert "for certain" in verdict(of, "mine")


def test_tables_say_what_does_not_beat_random() -> None:
    tables = compare_tables(study())
    assert [table.title for table in tables[:2]] == ["gemm", "softmax"]
    rows = {row[0]: row for row in tables[0].rows}
    assert rows["random"][3] == "1"
    assert rows["fast"][3] == "2.000x [2.000, 2.000]"
    assert tables[0].notes == ("best known 1.00 ms",)
    assert any(it.startswith("same does not beat random") for it in tables[2].notes)
    assert "intervals of fewer than 5 seeds are too narrow" in tables[2].notes
    assert ("random", "fast", "0.500x [0.500, 0.500]", "0%") in tables[3].rows


def test_without_random_there_is_no_ratio() -> None:
    plan = plan_of(["gemm"], ["fast", "same"], 4)
    of = read_study(plan, lines())
    assert [cell_of(of, "gemm", name).speedup for name in of.contenders] == [None, None]
    assert pairs_of(of)[0].speedup is not None
    assert compare_json(plan, of)["baseline"] is None


def test_json_and_csv_hold_the_figures() -> None:
    of = study()
    data = json.loads(json.dumps(compare_json(PLAN, of), allow_nan=False))
    assert (data["schema"], data["version"], data["seeds"]) == ("autotune.compare", 1, 4)
    gemm, softmax = data["workloads"]
    assert softmax["best_known"] == pytest.approx(1e-5)
    assert gemm["contenders"][1]["speedup"]["interval"]["value"] == pytest.approx(2.0)
    assert len(data["runs"]) == 24 and len(data["pairs"]) == 3
    rows = list(csv.DictReader(io.StringIO(csv_text(of))))
    assert [row["contender"] for row in rows] == ["random", "fast", "same"] * 2
    assert float(rows[1]["speedup_low"]) == pytest.approx(2.0) and rows[0]["speedup_low"] == ""


def test_a_budget_of_time_counts_the_trials_that_were_done() -> None:
    piece = Piece("gemm", "random", 0)
    line = run_line(piece, [(0, 1.0, 1e-3)], trials=None)
    of = read_study(plan_of(["gemm"], ["random"], 1), [line, turns_line("gemm", {"random/0": 1})])
    (run,) = of.of("gemm", "random")
    assert run.budget == 40


@pytest.mark.needs("report")
def test_curves_are_drawn_as_svg() -> None:
    from autotune.evaluation.compare.plot import compare_plot

    for by_time, axis in ((False, "trials"), (True, "seconds")):
        svg = compare_plot(study(), by_time).svg
        assert all(f">{text}<" in svg for text in ("gemm", "softmax", "fast", axis))
        assert svg == compare_plot(study(), by_time).svg


def test_a_failure_that_counts_as_fast_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = lambda latencies: latencies[-1] if latencies else 1e-12  # noqa: E731
    monkeypatch.setattr("autotune.evaluation.compare.runs._last", fast)
    with pytest.raises(AssertionError):
        test_a_run_that_found_nothing_is_slow_and_no_ratio()
