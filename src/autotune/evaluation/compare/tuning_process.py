"""Tuning run in a fresh process with an empty database, as a user would start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError, one_line
from autotune.evaluation.compare.turns import AFTER_A_RUN, Arena, steps_of, time_steps
from autotune.store.database import RecordFilter
from autotune.store.sqlite import open_database

__all__ = ["RunFailed", "tune_once"]

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
        of :func:`~autotune.evaluation.compare.turns.time_steps`; and ``history``, ``seconds``,
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
