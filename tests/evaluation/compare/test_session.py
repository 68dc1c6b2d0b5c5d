"""The runs of a comparison: done once each, kept when it is stopped, compared by turns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from compared_lines import plan_of, run_line
from toy_parts import REFERENCE_BACKEND, TOY_SPACE

import autotune
from autotune import Record, RecordFilter, open_database
from autotune.errors import AutotuneError, InvalidValueError
from autotune.evaluation.compare import (
    Arena,
    Piece,
    Plan,
    Progress,
    RunFailed,
    append_piece,
    complete,
    read_pieces,
    read_study,
)
from autotune.ir.workloads import gemm
from autotune.tuning.options import Choice

ARENA = Arena(backend=REFERENCE_BACKEND, measurer=Choice("command_lines:ScriptedMeasurer"))


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Records of a run, slowest first."""
    database = tmp_path_factory.mktemp("run") / "records.db"
    autotune.tune(
        gemm(m=8, n=8, k=8),
        backend=REFERENCE_BACKEND,
        parts={
            "search_space": TOY_SPACE,
            "strategy": "random",
            "measurer": "command_lines:ScriptedMeasurer",
        },
        trials=12,
        threads=1,
        database=database,
    )
    with open_database(database, read_only=True) as opened:
        found = [it for it in opened.records(RecordFilter()) if it.latency is not None]
    return sorted(found, key=lambda record: -(record.latency or 0.0))


class Tuner:
    """Finds the record of this place, by contender and seed; keeps what it was asked."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self.asked: list[tuple[str, int]] = []
        self.stops_at = -1
        self.fails: set[tuple[str, int]] = set()
        self.error: BaseException = RunFailed("the strategy raised")

    def __call__(self, arguments: Sequence[str], arena: Arena) -> dict[str, Any]:
        assert arena == ARENA
        of = {name: arguments[arguments.index(f"--{name}") + 1] for name in ("strategy", "seed")}
        if len(self.asked) == self.stops_at:
            raise KeyboardInterrupt
        asked = of["strategy"], int(of["seed"])
        self.asked.append(asked)
        if asked in self.fails:
            raise self.error
        record = self._records[int(of["seed"]) + (2 if of["strategy"] == "mine" else 0)]
        line = run_line(Piece("gemm", *asked), [(0, 1.0, record.latency or 0.0)])
        names = ("wall", "latency", "steps", "history", "seconds")
        return {**{name: line[name] for name in names}, "schedule": record.to_json()}


@pytest.fixture
def tuner(records: list[Record]) -> Tuner:
    return Tuner(records)


PLAN = plan_of(["gemm"], ["random", "mine"], 2, arena=ARENA)


def finish(plan: Plan, results: Path, tuner: Tuner, **options: Any) -> list[Progress]:
    told: list[Progress] = []
    ticks = iter(range(1000))
    clock = lambda: float(next(ticks))  # noqa: E731
    complete(plan, results, told.append, tune=tuner, clock=clock, **options)
    return told


def test_runs_are_done_and_their_winners_take_turns(
    tuner: Tuner, records: list[Record], tmp_path: Path
) -> None:
    results = tmp_path / "results.jsonl"
    told = finish(PLAN, results, tuner)
    assert tuner.asked == [(it.contender, it.seed) for it in PLAN.pieces()]
    assert [it.done for it in told] == [1, 2, 3, 4, 4]
    # By the clock each took a second.
    assert [it.seconds_left for it in told] == [3.0, 2.0, 1.0, 0.0, 0.0]
    assert "ms in 20 s" in told[0].text and told[-1].text == "gemm: 4 winners took turns"
    study = read_study(PLAN, read_pieces(results))
    assert study.failures == {}
    found = [run.latency for name in study.contenders for run in study.of("gemm", name)]
    assert found == pytest.approx([record.latency for record in records[:4]], rel=1e-4)


def test_a_study_that_was_stopped_goes_on(tuner: Tuner, tmp_path: Path) -> None:
    results, whole = tmp_path / "results.jsonl", tmp_path / "whole.jsonl"
    for stop in (0, 1, 3):
        tuner.stops_at = stop
        with pytest.raises(KeyboardInterrupt):
            finish(PLAN, results, tuner)
        # As a crash would leave it: half of a line more.
        with results.open("a") as stream:
            stream.write('{"kind": "run", "work')
    tuner.stops_at = -1
    finish(PLAN, results, tuner)
    once = [(it.contender, it.seed) for it in PLAN.pieces()]
    assert tuner.asked == once, "nothing is done twice"
    finish(PLAN, whole, tuner)
    asked = len(tuner.asked)
    known = read_pieces(results)
    finish(PLAN, results, tuner)
    assert len(tuner.asked) == asked and read_pieces(results) == known

    def timeless(path: Path) -> list[dict[str, Any]]:
        return [{**line, "load": 0} for line in read_pieces(path)]

    assert timeless(results) == timeless(whole)


def test_a_study_that_grows_has_its_turns_again(tuner: Tuner, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    finish(plan_of(["gemm"], ["random"], 2, arena=ARENA), results, tuner)
    finish(PLAN, results, tuner)
    assert len(tuner.asked) == 4
    turns = [line for line in read_pieces(results) if line["kind"] == "turns"]
    assert [sorted(it["turns"]) for it in turns] == [
        ["random/0", "random/1"],
        ["mine/0", "mine/1", "random/0", "random/1"],
    ]


@pytest.mark.parametrize("error", [RunFailed("it raised"), AutotuneError("nothing runs here")])
def test_a_run_that_fails_is_kept_with_its_error(
    error: AutotuneError, tuner: Tuner, tmp_path: Path
) -> None:
    results = tmp_path / "results.jsonl"
    tuner.fails, tuner.error = {("mine", 1)}, error
    told = finish(PLAN, results, tuner)
    assert f"gemm mine seed 1: failed: {error}" in [it.text for it in told]
    study = read_study(PLAN, read_pieces(results))
    assert study.failures == {Piece("gemm", "mine", 1): str(error)}
    finish(PLAN, results, tuner)
    assert len(tuner.asked) == 4, "it is not done again"
    tuner.fails = set()
    finish(PLAN, results, tuner, retry_failed=True)
    assert tuner.asked[4:] == [("mine", 1)]
    assert read_study(PLAN, read_pieces(results)).failures == {}


def test_a_winner_that_cannot_be_timed_is_a_failure(
    tuner: Tuner, records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = records[2].candidate.digest

    def time_programs(found: Sequence[Record], arena: Arena) -> Any:
        assert arena.turns > ARENA.turns
        digests = [it.candidate.digest for it in found]
        return {it: [1e-3] for it in digests if it != broken}, {broken: "crash: SIGSEGV"}

    monkeypatch.setattr("autotune.evaluation.compare.session.time_programs", time_programs)
    results = tmp_path / "results.jsonl"
    finish(PLAN, results, tuner)
    study = read_study(PLAN, read_pieces(results))
    assert study.failures == {Piece("gemm", "mine", 0): "its winner was not timed: crash: SIGSEGV"}
    assert len(study.of("gemm", "random")) == 2


def test_a_workload_without_a_valid_program_has_no_turns(tuner: Tuner, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    nothing = run_line(Piece("gemm", "random", 0), [])
    names = ("wall", "latency", "schedule", "steps", "history", "seconds")
    plan = attrs.evolve(PLAN, seeds=1)
    told: list[Progress] = []
    complete(plan, results, told.append, tune=lambda *_: {name: nothing[name] for name in names})
    assert [it.text for it in told] == [
        f"gemm {it.contender} seed 0: nothing valid in 20 s" for it in plan.pieces()
    ]
    assert len(read_pieces(results)) == 3


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.jsonl"
    append_piece(path, {"seed": 0})
    append_piece(path, {"seed": 1})
    return path


def test_pieces_are_kept(results: Path) -> None:
    assert read_pieces(results) == [{"seed": 0}, {"seed": 1}]
    assert read_pieces(results.with_name("none.jsonl")) == []


def test_a_piece_that_was_cut_off_is_replaced(results: Path) -> None:
    whole = results.read_bytes()
    results.write_bytes(whole[:-3])
    assert read_pieces(results) == [{"seed": 0}]
    append_piece(results, {"seed": 1})
    assert results.read_bytes() == whole


@pytest.mark.parametrize("line", ["[1]", "{", "4", "[" * 100_000])
def test_a_whole_line_that_is_no_piece_is_named(results: Path, line: str) -> None:
    with results.open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(InvalidValueError, match="line 3 of the results file '.*' is no result"):
        read_pieces(results)


def test_what_is_no_text_is_no_results_file(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\n")
    for path in (tmp_path / "binary", tmp_path):
        with pytest.raises(InvalidValueError, match="cannot read the results file"):
            read_pieces(path)
