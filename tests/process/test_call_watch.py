"""A call that ends or holds up its process is named by another one."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from process_facts import becomes_true, children_of
from python_processes import start_python

HOST = """
import ctypes, os, signal, sys, time
from autotune.plugins.calling import Calling
from autotune.process.call_watch import CallWatch
from autotune.process.interrupts import InterruptGuard, UserInterrupt

def deaf():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass

def loop():
    while True:
        pass

deeds = {
    "exit": lambda: os._exit(0), "crash": lambda: ctypes.string_at(0), "deaf": deaf,
    "loop": loop, "raise": lambda: [][1], "nothing": lambda: None,
}
seconds = float(sys.argv[2])
try:
    with InterruptGuard(), CallWatch(seconds, float(sys.argv[4])):
        with Calling("part 'x' (m)", "in outer()", timed=sys.argv[3] == "timed"):
            with Calling("part 'y' (m)", "in inner()"):
                pass
            deeds[sys.argv[1]]()
        os.write(1, b"after")
        time.sleep(2 * seconds if sys.argv[1] == "nothing" else 0)
except UserInterrupt:
    print("interrupted", file=sys.stderr)
except Exception as error:
    print(type(error).__name__, error, file=sys.stderr)
"""
ENDED = "autotune: error: the process ended in a call: part 'x' (m) in outer()"
LATE = "autotune: error: part 'x' (m) in outer() took more than 0.5 s: it is interrupted"


@pytest.mark.parametrize(
    ("deed", "seconds", "grace", "timed", "status", "lines"),
    [
        ("exit", 300, 300, "timed", 0, [f"{ENDED}; the same call resumes the run"]),
        ("exit", 300, 300, "untimed", 0, [f"{ENDED}; the same call resumes the run"]),
        # A busy machine may take long over the interrupt.
        ("loop", 0.5, 300, "timed", 0, [LATE, "interrupted"]),
        (
            "deaf",
            0.5,
            0.5,
            "timed",
            -signal.SIGKILL,
            [
                LATE,
                "autotune: error: part 'x' (m) in outer() does not stop: the process is killed; "
                "the same call resumes the run",
            ],
        ),
        (
            "raise",
            300,
            300,
            "timed",
            0,
            ["PluginError part 'x' (m) failed in outer(): IndexError: list index out of range"],
        ),
        # Only calls have a deadline, and not all. A busy machine may hold one up for a while.
        ("nothing", 1.0, 0.5, "timed", 0, []),
        ("nothing", 0.3, 0.5, "untimed", 0, []),
    ],
)
def test_what_a_call_did_is_said_in_a_line(
    deed: str, seconds: float, grace: float, timed: str, status: int, lines: list[str]
) -> None:
    with start_python("-c", HOST, deed, str(seconds), timed, str(grace)) as host:
        said, errors = host.communicate(timeout=300)
    assert errors.splitlines() == lines
    assert host.returncode == status
    assert said == ("after" if deed == "nothing" else "")


def test_a_crash_is_named_too() -> None:
    with start_python("-c", HOST, "crash", "300", "timed", "300", PYTHONFAULTHANDLER=None) as host:
        _, errors = host.communicate(timeout=300)
    assert host.returncode == -signal.SIGSEGV
    assert ENDED in errors


def test_a_host_that_is_killed_between_calls_leaves_nothing() -> None:
    with start_python("-c", HOST, "nothing", "30", "timed", "300") as host:
        assert host.stdout is not None and host.stderr is not None
        assert host.stdout.read(5) == "after"
        (watcher,) = children_of(host.pid)
        host.kill()
        # It ends when the watcher, too, has closed it.
        assert host.stderr.read() == ""
    assert becomes_true(lambda: not Path("/proc", str(watcher)).exists())
