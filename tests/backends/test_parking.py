"""Waiting until other threads of the process do nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

# Keys are derived without the interpreter's lock, as threads of a runtime run without it.
TEXT = """
    import hashlib, os, sys, threading, time
    from autotune.backends import park_threads

    arguments = ("sha256", b"", b"", int(sys.argv[1]))
    busy = threading.Thread(target=hashlib.pbkdf2_hmac, args=arguments, daemon=True)
    busy.start()
    begin = time.monotonic()
    park_threads()
    print(busy.is_alive(), time.monotonic() - begin, flush=True)
    os._exit(0)
"""


def parked(rounds: int) -> tuple[bool, float]:
    """Whether a thread that does so many rounds of hashing still runs, and the seconds waited."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(TEXT), str(rounds)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        capture_output=True,
        text=True,
        check=True,
    )
    alive, seconds = done.stdout.split()
    return alive == "True", float(seconds)


def test_a_thread_is_waited_for() -> None:
    alive, _ = parked(100_000)  # some hundredths of a second
    assert not alive


def test_not_for_ever() -> None:
    alive, seconds = parked(1 << 30)
    assert alive
    assert seconds > 0.9


@pytest.mark.parametrize("times", [1, 3])
def test_nobody_to_wait_for(times: int) -> None:
    for _ in range(times):
        assert parked(1)[1] < 1.0
