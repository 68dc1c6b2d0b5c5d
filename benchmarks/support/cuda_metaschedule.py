"""MetaSchedule beside us on a CUDA device, for a given wall clock."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

from support.common import SUPPORT, environment, shape_text
from support.cuda_rows import Case
from support.steps import StepFailed, session_within

MOST_TRIALS = 1_000_000
RECORDS = "database_tuning_record.json"
# What MetaSchedule's records say of candidates that failed.
FAILED_SECONDS = 1e9


def run_metaschedule(case: Case, python: str, seconds: float, folder: Path) -> dict[str, Any]:
    """Let MetaSchedule tune for so many seconds of wall clock, and take what it has by then.

    Args:
        case: What is tuned.
        python: Its interpreter.
        seconds: After which it is ended, with all that it started.
        folder: Gets its database, in place of an earlier one.

    Returns:
        ``latency`` of the best, or None where none ran in time; ``trials`` that are recorded, and
        how many of these ``failed``.

    Raises:
        StepFailed: it ended before, and none of its candidates ran; says why.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [python, str(SUPPORT / "metaschedule.py"), case.workload, "--folder", str(folder)]
    command += ["--shape", shape_text(case.shape), "--target", case.target]
    command += ["--dtype", case.dtype] if case.dtype else []
    command += ["--trials", str(MOST_TRIALS), "--json", str(folder / "result.json")]
    # Each candidate leaves a folder with its program.
    with tempfile.TemporaryDirectory() as scratch:
        ended = session_within(command, seconds, {**environment(), "TMPDIR": scratch})
    times = recorded_seconds(folder / RECORDS)
    ran = [it for it in times if it is not None]
    failed = len(times) - len(ran)
    if ended is not None and not ran:
        why = ended[1] or "it said nothing"
        raise StepFailed(why + (f"; {failed} failed" if failed else ""))
    return {"latency": min(ran, default=None), "trials": len(times), "failed": failed}


def recorded_seconds(path: Path) -> list[float | None]:
    """Latencies of the candidates in a database of MetaSchedule; None of those that failed."""
    if not path.exists():
        return []
    found: list[float | None] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            _, (_, seconds, *_) = json.loads(line)
        except ValueError:  # it was being written
            continue
        least = min(map(float, seconds), default=math.inf) if seconds else math.inf
        found.append(least if least < FAILED_SECONDS else None)
    return found
