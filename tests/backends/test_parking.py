"""Waiting until other threads of the process do nothing."""

from __future__ import annotations

import textwrap

import pytest
from python_processes import run_python

# Keys are derived without the interpreter's lock, as threads of a runtime run without it.
TEXT = """
    import hashlib, os, sys, threading, time
    from autotune.backends import park_threads, parking

    parking._SECONDS = float(sys.argv[2])
    arguments = ("sha256", b"", b"", int(sys.argv[1]))
    busy = threading.Thread(target=hashlib.pbkdf2_hmac, args=arguments, daemon=True)
    busy.start()
    begin = time.monotonic()
    park_threads()
    print(busy.is_alive(), time.monotonic() - begin >= parking._SECONDS, flush=True)
    os._exit(0)
"""


def parked(rounds: int, patience: float) -> tuple[bool, bool]:
    """Tell whether a thread that does so many rounds still runs, and parking gave up."""
    told = run_python("-c", textwrap.dedent(TEXT), str(rounds), str(patience)).split()
    alive, gave_up = (word == "True" for word in told)
    return alive, gave_up


@pytest.mark.parametrize("rounds", [1, 100_000])
def test_a_thread_is_waited_for_as_long_as_it_takes_and_no_longer(rounds: int) -> None:
    assert parked(rounds, patience=300.0) == (False, False)


def test_not_for_ever() -> None:
    assert parked(1 << 30, patience=1.0) == (True, True)
