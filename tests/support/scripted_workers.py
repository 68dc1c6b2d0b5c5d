"""Scripted children as workers, and what they say; see ``scripted_child``."""

from __future__ import annotations

import time
from collections.abc import Callable

from process_facts import becomes_true

from autotune.process import Message, WorkerDied, WorkerProcess

StartChild = Callable[..., WorkerProcess]

HELLO: Message = {"phase": "start"}

# What a scripted child does last, and how that is told.
ENDS = {
    "leave": "exited with status 3",
    "raise": "exited with status 1",
    "kill": "killed by SIGKILL",
    "terminate": "killed by SIGTERM",
    "crash": "killed by SIGSEGV",
    "crash-deep": "killed by SIGSEGV",
    "stop": "killed by its host",
    "hang": "killed by its host",
    "close": "killed by its host",
}


def listen(worker: WorkerProcess, seconds: float = 300.0) -> tuple[list[Message], str]:
    """Messages of a worker until it dies, and its end, which comes when the time is up."""
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
