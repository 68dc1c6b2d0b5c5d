"""Does the runs of a comparison, and has their winners take turns; what is there is kept."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from autotune.errors import AutotuneError, InvalidValueError, one_line
from autotune.evaluation.compare.plan import (
    ComparedWorkload,
    Piece,
    Plan,
    check_same_study,
    named_arguments,
)
from autotune.evaluation.compare.runs import (
    AFTER_A_RUN,
    Arena,
    steps_of,
    time_programs,
    time_steps,
)
from autotune.evaluation.line_file import append_line, whole_lines
from autotune.process.stopwatch import Clock
from autotune.store.database import RecordFilter
from autotune.store.records import Record
from autotune.store.sqlite import open_database

_NOTHING_FOUND = 1
_MESSAGE_WIDTH = 400
# `python -m autotune`, in a process that the kernel ends when this one dies: a run that nobody
# waits for any more would disturb the next ones. That is not set by `preexec_fn`, because hooks of
# Python's that run at such a fork swallow an interrupt.
_AUTOTUNE = """
import ctypes, os, runpy, signal, sys
parent = int(sys.argv.pop(1))
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
if os.getppid() != parent:
    sys.exit(1)
runpy.run_module("autotune", run_name="__main__", alter_sys=True)
"""


class RunFailed(AutotuneError):
    """A tuning run ended with an error, or measured nothing; says why in one line."""


def tune_once(arguments: Sequence[str], arena: Arena = AFTER_A_RUN) -> dict[str, Any]:
    """Tune once, then time everything that was the best program for a while in turns.

    Args:
        arguments: What ``autotune tune`` is given, but for database and result file.
        arena: How those programs take turns.

    Returns:
        ``wall``: seconds of the command; ``latency`` and ``schedule`` of what it ended with, the
        latter as a record in its JSON form, or None for both where nothing was valid; ``steps`` as
        of :func:`~autotune.evaluation.compare.runs.time_steps`; and ``history``, ``seconds``,
        ``cost_model`` and ``outcomes`` of its result file.

    Raises:
        RunFailed: the run ended with an error, or before it had measured anything.
        AutotuneError: its programs cannot be timed here.
    """
    with tempfile.TemporaryDirectory(prefix="autotune-compare-") as folder:
        database = Path(folder) / "run.db"
        tuned, wall = _tune([*arguments, "--database", str(database)], Path(folder))
        with open_database(str(database), read_only=True) as opened:
            chosen = RecordFilter(workload=tuned["task"]["digest"])
            # What a search has found is compared, also where it is no gain over a baseline.
            winner = next(iter(opened.fastest_of_each(chosen)), None)
            records = list(opened.records(chosen))
    if not tuned["history"]:
        raise RunFailed("it measured no candidate: its time was over before")
    steps = [] if winner is None else steps_of(tuned["history"], records, winner)
    return {
        "wall": wall,
        "latency": winner and winner.latency,
        "schedule": winner and winner.to_json(),
        "steps": time_steps(steps, arena) if steps else [],
        **{name: tuned[name] for name in ("history", "seconds", "cost_model", "outcomes")},
    }


def _tune(arguments: Sequence[str], folder: Path) -> tuple[dict[str, Any], float]:
    """The result file of a run, and the wall seconds of the command."""
    result = folder / "result.json"
    command = [sys.executable, "-c", _AUTOTUNE, str(os.getpid()), "tune", *arguments]
    command += ["--quiet", "--json", str(result)]
    begin = time.perf_counter()
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    seconds = time.perf_counter() - begin
    if done.returncode not in (0, _NOTHING_FOUND) or not result.exists():
        lines = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
        raise RunFailed(one_line(lines[-1].removeprefix("autotune: error: "), _MESSAGE_WIDTH))
    data: dict[str, Any] = json.loads(result.read_text())
    return data, seconds


__all__ = [
    "Progress",
    "RunFailed",
    "append_piece",
    "complete",
    "done_runs",
    "read_pieces",
    "tune_once",
]

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


def read_pieces(path: Path) -> list[dict[str, Any]]:
    """The pieces of a file, in order; none where there is no file.

    What follows the last line end was cut off by a crash and does not count.

    Raises:
        InvalidValueError: the file cannot be read, or a whole line is no JSON object.
    """
    try:
        lines = whole_lines(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidValueError(f"cannot read the results file {str(path)!r}: {reason}") from error
    return [_piece(path, number, line) for number, line in enumerate(lines, start=1)]


def append_piece(path: Path, piece: Mapping[str, Any]) -> None:
    """Append a piece, in the place of one that was cut off; it is on the disk on return."""
    append_line(path, json.dumps(piece))


def _piece(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        piece = json.loads(line)
    except (ValueError, RecursionError):
        piece = None
    if not isinstance(piece, dict):
        raise InvalidValueError(f"line {number} of the results file {str(path)!r} is no result")
    return piece
