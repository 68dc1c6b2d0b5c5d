"""The report of `strategies` on results that are known."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import benchmark_scripts

SECONDS = {"total": 40.0, "search": 1.0, "model": 0.3}


def _run(contender: str, history: Sequence[tuple[int, float, float]], latency: float) -> Any:
    head = {"kind": "run", "workload": "gmm", "contender": contender, "seed": 0, "trials": 200}
    told = {"wall": 42.0, "seconds": SECONDS, "rounds": 13, "arguments": []}
    return {**head, **told, "history": history, "latency": latency}


RANDOM = _run("random", [(0, 1.0, 9e-3), (150, 30.0, 4e-3)], 4e-3)
# Its clock was twice as slow, as the turns show.
EVOLUTIONARY = _run("evolutionary", [(0, 1.0, 9e-3), (20, 4.0, 7e-3), (60, 9.0, 6e-3)], 6e-3)
TURNS = {
    "kind": "turns",
    "workload": "gmm",
    "trials": 200,
    "turns": {"random/0": [4e-3, 8e-3], "evolutionary/0": [3e-3, 6e-3]},
    "errors": {},
}


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    with benchmark_scripts("bench") as (module,):
        yield module


def _report(
    bench: Any, folder: Path, lines: Sequence[Any], *arguments: str
) -> tuple[int, dict[str, Any], str]:
    results, written = folder / "results.jsonl", folder / "report.json"
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    asked = ["strategies", "--report", "--results", str(results), "--check"]
    asked += ["--workloads", "gmm", "--seeds", "1", "--json", str(written), *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        status = bench.main(asked)
    data: dict[str, Any] = json.loads(written.read_text())
    return status, data, shown.getvalue()


def test_runs_are_compared_by_the_turns_of_their_winners(bench: Any, tmp_path: Path) -> None:
    status, data, shown = _report(bench, tmp_path, [RANDOM, EVOLUTIONARY, TURNS])
    (bar,) = data["bars"]
    # At the middle level of the turns its 7e-3 are 5.25e-3, and random's winner takes 6e-3.
    assert bar["value"] == pytest.approx(21)
    assert bar["holds"]
    assert status == 0
    first = data["runs"][1]["points"][0]
    assert first["seconds"] == 3.0, "of these, two before the run's own clock"
    assert "evolutionary" in shown


def test_without_turns_a_bar_has_no_value(bench: Any, tmp_path: Path) -> None:
    status, data, shown = _report(bench, tmp_path, [RANDOM, EVOLUTIONARY])
    (bar,) = data["bars"]
    assert bar["value"] is None
    assert "before the winners' turns: 400" in shown
    assert status == 1


def test_without_all_runs_a_bar_has_no_value(bench: Any, tmp_path: Path) -> None:
    status, data, shown = _report(bench, tmp_path, [RANDOM, EVOLUTIONARY, TURNS], "--seeds", "2")
    (bar,) = data["bars"]
    assert bar["value"] is None
    assert "2 of 4 runs so far: 21" in shown
    assert status == 1


def test_a_run_whose_best_programs_took_turns(bench: Any, tmp_path: Path) -> None:
    # Seen from its end the second program was the better one, but the run took the third for it.
    steps = [(0, 1.0, [9e-3] * 2), (20, 4.0, [5e-3] * 2), (60, 9.0, [6e-3] * 2)]
    timed = [{"trial": t, "elapsed": s, "seconds": seconds} for t, s, seconds in steps]
    _, data, _ = _report(bench, tmp_path, [RANDOM, {**EVOLUTIONARY, "steps": timed}, TURNS])
    points = data["runs"][1]["points"]
    # In the turns of all winners its own takes 4.5e-3.
    assert [it["trials"] for it in points] == [1, 21, 61]
    assert [it["latency"] for it in points] == pytest.approx([6.75e-3, 3.75e-3, 4.5e-3])


def test_runs_on_another_number_of_threads_do_not_join(bench: Any, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    results.write_text(json.dumps({**RANDOM, "arguments": ["--round-size", "16"]}) + "\n")
    asked = ["strategies", "--results", str(results), "--threads", "1"]
    asked += ["--workloads", "gmm", "--contenders", "random", "--seeds", "1"]
    with pytest.raises(SystemExit, match="--threads 1"):
        bench.main(asked)


def test_heron_is_compared_with_its_ablations(bench: Any, tmp_path: Path) -> None:
    heron = _run("heron", [(0, 1.0, 9e-3), (20, 4.0, 3e-3)], 3e-3)
    chance = _run("heron-random", [(0, 1.0, 9e-3), (100, 9.0, 6e-3)], 6e-3)
    heron["outcomes"] = {"ok": 196, "crash": 4}
    turns = {"heron/0": [3e-3], "heron-random/0": [6e-3]}
    lines = [heron, chance, {**TURNS, "turns": turns}]
    _, data, _ = _report(bench, tmp_path, lines)
    curve, failed = data["bars"]
    # 20 trials alike, 80 of a third, 100 of a half.
    assert curve["value"] == pytest.approx((3**-80 * 2**-100) ** (1 / 200), rel=1e-6)
    assert curve["holds"]
    # All-knowing, 32 trials alike, 68 of a third, 100 of a half.
    assert "0.487 had it known the fastest after 32 candidates" in curve["note"]
    assert (failed["value"], failed["holds"]) == (0.02, False)
