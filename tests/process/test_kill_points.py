"""A worker may end at any byte of what it says, and at any moment."""

from __future__ import annotations

import os
import signal
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_workers import ENDS, HELLO, StartChild, listen

from autotune.process import Message, encode

pytestmark = pytest.mark.slow

MESSAGES: list[Message] = [HELLO, {"done": {"text": "ünïcode" * 9}}, {"failed": "no"}]
STREAM = b"".join(map(encode, MESSAGES))
BOUNDARIES = [len(b"".join(map(encode, MESSAGES[:count]))) for count in range(4)]


@settings(derandomize=True)
@given(cut=st.integers(0, len(STREAM)), then=st.sampled_from(sorted(ENDS)))
def test_an_end_at_any_byte_of_a_message(start_child: StartChild, cut: int, then: str) -> None:
    worker = start_child(say=STREAM[:cut].hex(), then=then)
    messages, how = listen(worker, 0.15 if then in ("stop", "hang") else 300)
    whole = sum(cut >= boundary for boundary in BOUNDARIES[1:])
    # One that is made to end may not have got far.
    if then not in ("stop", "hang"):
        assert messages == MESSAGES[:whole]
    assert messages == MESSAGES[: len(messages)]
    assert how.splitlines()[0] == ENDS[then]


@settings(derandomize=True)
@given(
    milliseconds=st.floats(0, 60),
    number=st.sampled_from([signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP]),
    keeper=st.booleans(),
)
def test_a_signal_at_any_moment(
    start_child: StartChild, milliseconds: float, number: signal.Signals, keeper: bool
) -> None:
    worker = start_child(beget=["child", "daemon"], say=encode(HELLO).hex(), then="hang")
    time.sleep(milliseconds / 1000)
    os.kill(worker.keeper_pid if keeper else worker.pid, number)
    messages, how = listen(worker, 0.1 if number == signal.SIGSTOP else 300)
    assert messages in ([], [HELLO])
    assert how
    assert not worker.alive
