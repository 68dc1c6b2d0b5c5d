"""Every way to end a worker leaves nothing: no process, no descriptor, no file."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from process_facts import becomes_true, children_of, session_members

from autotune.isolation import (
    Message,
    WorkerDied,
    WorkerProcess,
    encode,
)

StartChild = Callable[..., WorkerProcess]

HELLO = {"phase": "start"}
MESSAGES: list[Message] = [HELLO, {"done": {"text": "ünïcode" * 9}}, {"failed": "no"}]
FAMILY = ["child", "group", "daemon", "nameless", "stopped", "begetter"]

ENDS = {
    "leave": "exited with status 3",
    "raise": "exited with status 1",
    "kill": "killed by SIGKILL",
    "terminate": "killed by SIGTERM",
    "crash": "killed by SIGSEGV",
    "stop": "killed by its host",
    "hang": "killed by its host",
    "close": "killed by its host",
}


def listen(worker: WorkerProcess, seconds: float = 20.0) -> tuple[list[Message], str]:
    """What a worker says until it dies, and how; it is ended when the time is up."""
    messages: list[Message] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            messages += worker.receive()
        except WorkerDied as error:
            return messages, str(error)
        time.sleep(0.001)
    return messages, worker.end()


def hear(worker: WorkerProcess, count: int = 1) -> None:
    """Wait until a worker has said something."""
    said: list[Message] = []
    assert becomes_true(lambda: len(said) >= count or said.extend(worker.receive()))


@pytest.mark.parametrize("then", [then for then in ENDS if then not in ("stop", "hang")])
def test_how_it_ended_is_told(start_child: StartChild, then: str) -> None:
    worker = start_child(say=encode(HELLO).hex(), then=then)
    messages, how = listen(worker)
    assert messages == [HELLO]
    assert how.splitlines()[0] == ENDS[then]
    assert ("scripted: an error" in how) == (then == "raise")
    assert worker.end() == ""
    assert not worker.alive


@pytest.mark.parametrize("then", ["kill", "leave", "hang", "close"])
def test_descendants_go_with_their_worker_wherever_they_are(
    start_child: StartChild, then: str
) -> None:
    worker = start_child(beget=FAMILY, say=encode(HELLO).hex(), wait=True, then=then)
    hear(worker)
    assert len(session_members(worker.pid)) >= 2
    assert len(children_of(worker.keeper_pid)) == 2  # the daemon, forked twice, is its child now
    worker.send({})
    _, how = listen(worker, 0.3 if then in ("hang", "close") else 20)
    assert how == ENDS[then]
    # The nameless one was found although nothing about it names the folder.
    assert not _processes_of("sleep 600")


def _processes_of(command: str) -> list[int]:
    found = subprocess.run(["pgrep", "-fx", command], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
@pytest.mark.parametrize("beget", [[], ["child", "group", "daemon", "stopped"]])
def test_a_worker_that_is_killed_from_outside(
    start_child: StartChild, number: signal.Signals, beget: list[str]
) -> None:
    worker = start_child(beget=beget, say=encode(HELLO).hex(), then="hang")
    hear(worker)
    os.kill(worker.pid, number)
    assert listen(worker)[1].splitlines()[0] == f"killed by {number.name}"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGKILL, "its keeper was killed by SIGKILL"),
        (signal.SIGTERM, "made to end from outside"),
        (signal.SIGHUP, "made to end from outside"),
    ],
)
def test_a_keeper_that_is_killed_from_outside(
    start_child: StartChild, number: signal.Signals, words: str
) -> None:
    worker = start_child(
        beget=["child", "group", "daemon", "stopped"], say=encode(HELLO).hex(), then="hang"
    )
    hear(worker)
    os.kill(worker.keeper_pid, number)
    assert listen(worker)[1] == words


def test_a_keeper_that_is_stopped_from_outside_is_woken(start_child: StartChild) -> None:
    worker = start_child(beget=["daemon"], say=encode(HELLO).hex(), then="hang")
    hear(worker)
    os.kill(worker.keeper_pid, signal.SIGSTOP)
    assert worker.end() == "killed by its host"


def test_a_keeper_that_does_not_answer_is_killed(
    start_child: StartChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.isolation.keeper_process._PATIENCE_SECONDS", 0.2)
    # As if somebody stopped it again and again.
    monkeypatch.setattr(signal, "SIGCONT", signal.SIGURG)
    worker = start_child(beget=["daemon"], say=encode(HELLO).hex(), then="hang")
    hear(worker)
    os.kill(worker.keeper_pid, signal.SIGSTOP)
    assert worker.end() == "killed by its host"


def test_orphans_do_not_stay_zombies(start_child: StartChild) -> None:
    worker = start_child(beget=["daemon", "daemon"], say=encode(HELLO).hex(), then="hang")
    hear(worker)
    daemons = [pid for pid in children_of(worker.keeper_pid) if pid != worker.pid]
    assert len(daemons) == 2
    for pid in daemons:
        os.kill(pid, signal.SIGKILL)
    assert becomes_true(lambda: children_of(worker.keeper_pid) == [worker.pid])
    assert worker.alive


# --- any byte, any moment ---------------------------------------------------------------------

STREAM = b"".join(map(encode, MESSAGES))
BOUNDARIES = [len(b"".join(map(encode, MESSAGES[:count]))) for count in range(4)]


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(cut=st.integers(0, len(STREAM)), then=st.sampled_from(sorted(ENDS)))
def test_an_end_at_any_byte_of_a_message(start_child: StartChild, cut: int, then: str) -> None:
    worker = start_child(say=STREAM[:cut].hex(), then=then)
    messages, how = listen(worker, 0.15 if then in ("stop", "hang") else 20)
    whole = sum(cut >= boundary for boundary in BOUNDARIES[1:])
    # One that is made to end may not have got far.
    if then not in ("stop", "hang"):
        assert messages == MESSAGES[:whole]
    assert messages == MESSAGES[: len(messages)]
    assert how.splitlines()[0] == ENDS[then]


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
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
    messages, how = listen(worker, 0.1 if number == signal.SIGSTOP else 20)
    assert messages in ([], [HELLO])
    assert how
    assert not worker.alive
