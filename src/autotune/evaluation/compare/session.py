"""Does the runs of a comparison, and has their winners take turns; what is there is kept."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from autotune.errors import AutotuneError
from autotune.evaluation.compare.pieces import append_piece, read_pieces
from autotune.evaluation.compare.plan import (
    ComparedWorkload,
    Piece,
    Plan,
    check_same_study,
    named_arguments,
)
from autotune.evaluation.compare.tuning_process import tune_once
from autotune.evaluation.compare.turns import Arena, time_programs
from autotune.process.stopwatch import Clock
from autotune.store.records import Record

__all__ = ["Progress", "complete", "done_runs"]

# Of the winners: it is by these turns that runs are compared.
_FINAL_TURNS, _FINAL_SECONDS = 100, 2e-3

Line = Mapping[str, Any]
Tune = Callable[[Sequence[str], Arena], Mapping[str, Any]]


@frozen
class Progress:
    """Progress of a comparison.

    Attributes:
        done: Runs that are there, failed ones among them.
        runs: Runs that there will be.
        text: What has just happened.
        seconds_left: Estimate of what the other runs take; None before the first.
    """

    done: int
    runs: int
    text: str
    seconds_left: float | None


def done_runs(lines: Sequence[Line]) -> dict[Piece, Line]:
    """The runs of a results file; of several with one name the last."""
    return {Piece.of(line): line for line in lines if line["kind"] == "run"}


def complete(
    plan: Plan,
    results: Path,
    on_progress: Callable[[Progress], None],
    *,
    retry_failed: bool = False,
    tune: Tune = tune_once,
    clock: Clock = time.monotonic,
) -> None:
    """Do the runs that are missing, one after the other, and then time all winners in turns.

    Every run is appended as soon as it has ended; the same call goes on after an interrupt. A run
    that fails is kept with its ``error``.

    Args:
        plan: What is compared.
        results: The results file, made if missing.
        on_progress: Called after every run.
        retry_failed: Whether runs that failed are done again.
        tune: Does one run.
        clock: Monotonic seconds.

    Raises:
        InvalidValueError: the results are of another study, or cannot be read.
    """
    lines = read_pieces(results)
    check_same_study(plan, lines, str(results))
    if not lines:
        append_piece(results, plan.head)
    wanted = plan.pieces()
    known = done_runs(lines)
    open_pieces = [it for it in wanted if it not in known or (retry_failed and _failed(known[it]))]
    spent = [known[it]["spent"] for it in wanted if it in known and not _failed(known[it])]
    done = len(wanted) - len(open_pieces)
    for piece in open_pieces:
        began = clock()
        line = _run(plan, piece, tune)
        line["spent"] = clock() - began
        append_piece(results, line)
        done += 1
        if not _failed(line):
            spent.append(line["spent"])
        left = statistics.fmean(spent) * (len(wanted) - done) if spent else None
        on_progress(Progress(done, len(wanted), _told(piece, line), left))
    for workload in plan.workloads:
        text = _hold_turns(plan, workload, results)
        if text:
            on_progress(Progress(done, len(wanted), text, 0.0))


def _failed(line: Line) -> bool:
    return bool(line.get("error"))


def _run(plan: Plan, piece: Piece, tune: Tune) -> dict[str, Any]:
    """Do one run; returns its line."""
    contender = next(it for it in plan.contenders if it.name == piece.contender)
    workload = next(it for it in plan.workloads if it.label == piece.workload)
    head = {
        "kind": "run",
        "workload": piece.workload,
        "digest": workload.digest,
        "contender": piece.contender,
        "seed": piece.seed,
        "trials": plan.budget.trials,
        "arguments": list(named_arguments(contender.arguments)),
        "load": os.getloadavg()[0],
    }
    try:
        return {**head, **tune(plan.arguments(piece), plan.arena)}
    except AutotuneError as error:
        return {**head, "error": str(error)}


def _told(piece: Piece, line: Line) -> str:
    what = f"{piece.workload} {piece.contender} seed {piece.seed}"
    if _failed(line):
        return f"{what}: failed: {line['error']}"
    latency = line["latency"]
    shown = "nothing valid" if latency is None else f"{latency * 1e3:.4g} ms"
    return f"{what}: {shown} in {line['wall']:.0f} s"


def _hold_turns(plan: Plan, workload: ComparedWorkload, results: Path) -> str:
    """Time the winners of a workload's runs in turns, unless that is done; returns what to say."""
    lines = read_pieces(results)
    # Also of contenders that were not asked for now: latencies compare within one set of turns.
    schedules = {
        piece.label: line["schedule"]
        for piece, line in done_runs(lines).items()
        if piece.workload == workload.label and line.get("schedule")
    }
    told = [it for it in lines if it["kind"] == "turns" and it["workload"] == workload.label]
    if not schedules or any(set(schedules) == {*it["turns"], *it["errors"]} for it in told):
        return ""
    winners = {label: Record.from_json(data) for label, data in schedules.items()}
    arena = evolve(plan.arena, turns=_FINAL_TURNS, seconds=_FINAL_SECONDS)
    timed, failed = time_programs(list(winners.values()), arena)
    turns, errors = {}, {}
    for label, record in winners.items():
        digest = record.candidate.digest
        if digest in timed:
            turns[label] = timed[digest]
        else:
            errors[label] = failed[digest]
    head = {"kind": "turns", "workload": workload.label}
    append_piece(results, {**head, "turns": turns, "errors": errors, "load": os.getloadavg()[0]})
    return f"{workload.label}: {len(turns)} winners took turns"
