"""Waiting until other threads of the process do nothing."""

from __future__ import annotations

import textwrap

import pytest
from python_processes import run_python

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
    alive, seconds = run_python("-c", textwrap.dedent(TEXT), str(rounds)).split()
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
