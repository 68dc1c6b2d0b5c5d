"""Steps of a benchmark that takes hours: each is a command whose result stays in a file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


class StepFailed(Exception):
    """A command of a step failed; says why in one line."""


def kept(path: Path, errors: dict[str, str], step: str, make: Callable[[], Any]) -> Any:
    """The result of a step, of now or of an earlier call; None where it failed, which is noted."""
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    begin = time.perf_counter()
    try:
        made = make()
    except StepFailed as error:
        errors[step] = str(error)
        print(f"    {step} failed: {error}", flush=True)
        return None
    print(f"    {step}: {time.perf_counter() - begin:.0f} s", flush=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(made), encoding="utf-8")
    fresh.replace(path)
    return made


def output_of(command: Sequence[str], variables: Mapping[str, str]) -> str:
    """Standard output of a command.

    Raises:
        StepFailed: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    if done.returncode != 0:
        raise StepFailed((done.stderr.strip().splitlines() or ["no message"])[-1])
    return done.stdout


def session_within(
    command: Sequence[str], seconds: float, variables: Mapping[str, str]
) -> tuple[int, str] | None:
    """Run a command for so long at most; whatever it started is ended with it, in any case.

    Returns:
        Its exit status and the last line that it said on standard error, "" if it said nothing;
        None where its time was over.
    """
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=seconds)
        return process.returncode, (said.strip().splitlines() or [""])[-1]
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Workers do not end with it; also where this process is interrupted.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
