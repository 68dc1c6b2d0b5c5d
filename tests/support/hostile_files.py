"""Commands on a database that holds what somebody else wrote."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_lines import IN_PROCESS, TUNE
from tripwires import trip_wires

__all__ = ["CPU_SECONDS", "check_commands", "processor_seconds", "unbroken"]

CPU_SECONDS = 30.0
"""Processor seconds within which all commands have an end, whatever they read."""

READERS: tuple[tuple[str, ...], ...] = (
    ("best",),
    ("best", "gemm", "--shape", "m=8", "--json", "-"),
    ("records", "list"),
    ("records", "runs"),
    ("records", "failures"),
    ("train", "info"),
    ("show", "gemm", "--part", "readings", "--part", "steps", "--part", "nest"),
    ("explain", "gemm"),
    ("records", "export", "out.jsonl", "--force"),
    ("records", "check"),
)
OF_ONE: tuple[tuple[str, ...], ...] = (
    *(("show", "--part", part) for part in ("readings", "steps", "nest", "tape", "constraints")),
    ("explain",),
)
"""Commands for a record by name."""

RUN = (*TUNE, *IN_PROCESS, "--trials", "4", "--quiet")


@contextmanager
def processor_seconds(limit: float) -> Iterator[None]:
    """Fail after so many seconds of this process's own time: others may keep the machine busy."""

    def stop(number: int, frame: object) -> None:
        pytest.fail(f"no end within {limit:g} processor seconds")

    before = signal.signal(signal.SIGPROF, stop)
    # Again and again: something may catch it.
    signal.setitimer(signal.ITIMER_PROF, limit, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def unbroken(done: Any) -> Any:
    """A command that did its work, or said on one line why not; whatever it shows is harmless."""
    shown = done.stdout + done.stderr
    assert "Traceback" not in shown, shown
    assert all(it.isprintable() or it in "\n\t" for it in shown), ascii(shown)
    if done.status == 2:
        done.line()
    assert done.status in (0, 1, 2), done
    return done


def check_commands(command: Callable[..., Any], record: tuple[str, int] | None = None) -> int:
    """Run every command that reads records, and one that tunes with them; returns its status.

    Args:
        command: Runs commands in a folder with a database.
        record: Run and trial of one that is to be looked at closely.
    """
    with trip_wires(Path.cwd()), processor_seconds(CPU_SECONDS):
        for reader in READERS:
            unbroken(command(*reader))
        if record is not None and "\0" not in record[0]:
            for reader in OF_ONE:
                unbroken(command(*reader, "--record", f"{record[0]}/{record[1]}"))
    with processor_seconds(CPU_SECONDS):
        return int(unbroken(command(*RUN)).status)
