"""The process of the models as the host sees it: one question at a time, with a deadline."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from autotune.process import (
    ATTACHMENTS,
    THREAD_VARIABLES,
    Message,
    WorkerDied,
    WorkerProcess,
)
from autotune.process.ending import ending_with
from autotune.process.memory import default_memory_limit
from autotune.process.private_folder import make_private_folder

__all__ = ["Clock", "ModelFailed", "ModelProcess"]

Clock = Callable[[], float]

_MODULE = "autotune.models.host.server"

# How long a death that closes no pipe (a grandchild holds it open) may go unnoticed.
_POLL_SECONDS = 0.05

# Between two calls of a model something may be timed: threads have to sleep, not to spin.
_SLEEPING_THREADS = {
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "0",
    "KMP_BLOCKTIME": "0",
    # It has no such switch that could be set once it is loaded.
    "OPENBLAS_NUM_THREADS": "1",
}


class ModelFailed(Exception):
    """A model did not answer as it should; the message says what it did instead."""


class ModelProcess:
    """A process for models that can be started again and again.

    Args:
        memory_bytes: What it may allocate; None for most of the machine.
        clock: Monotonic seconds.
    """

    def __init__(self, memory_bytes: int | None = None, clock: Clock = time.monotonic) -> None:
        self._memory_bytes = default_memory_limit() if memory_bytes is None else memory_bytes
        self._clock = clock
        self._folder = make_private_folder()
        self._started = 0
        self._process: WorkerProcess | None = None
        # How much it was asked that it has not answered yet, and answers that were not taken yet.
        self._owes = 0
        self._answers: deque[Message] = deque()
        self._running: list[WorkerProcess] = []
        # Also runs when the interpreter exits or the object is forgotten.
        self._finish = ending_with(self, partial(_end_all, self._running), self._folder.remove)

    @property
    def pid(self) -> int | None:
        """Process id, for people who look at the machine; None when it does not run."""
        return None if self._process is None else self._process.pid

    @property
    def usable(self) -> bool:
        """True if it runs and owes no answer, as it would after an interrupt."""
        has_stray = bool(self._owes or self._answers)
        return self._process is not None and not has_stray and self._process.alive

    def start(self) -> None:
        """Start a new process in place of the one there was, and return at once."""
        self.end()
        self._started += 1
        self._folder.restore()
        kept = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
        self._process = WorkerProcess(
            _MODULE,
            {},
            # What libraries take where nothing is said.
            len(os.sched_getaffinity(0)),
            {**_SLEEPING_THREADS, **kept},
            self._memory_bytes,
            self._folder.path / f"models-{self._started}",
        )
        self._running.append(self._process)

    def end(self) -> None:
        """Kill the process, if one runs, with all it has started."""
        if self._process is not None:
            self._process.end()
            self._process = None
        self._running.clear()
        self._owes = 0
        self._answers.clear()

    def close(self) -> None:
        """End the process for good, and remove its files."""
        self._process = None
        self._finish()

    def send(self, message: Message) -> None:
        """Ask something.

        Raises:
            ModelFailed: the process is gone.
        """
        if self._process is None:
            raise ModelFailed("its process does not run")
        self._owes += 1
        try:
            self._process.send(message)
        except WorkerDied as error:
            alive = self._process.alive
            how = self._process.end()
            self.end()
            raise ModelFailed(str(error) if alive else how) from None

    def answer(self, seconds: float) -> Message:
        """The answer to the first question that has none yet.

        Raises:
            ModelFailed: the process has ended, does not answer in time, or says that it failed.
                In the first two cases it is gone.
        """
        process, deadline = self._process, self._clock() + seconds
        if process is None:
            raise ModelFailed("its process does not run")
        while not self._answers:
            try:
                self._answers += process.receive()
            except WorkerDied as error:
                self.end()
                raise ModelFailed(str(error)) from None
            if self._answers:
                break
            remaining = deadline - self._clock()
            if remaining <= 0:
                self.end()
                raise ModelFailed(f"took more than {seconds:g} s")
            select.select([process], [], [], min(_POLL_SECONDS, remaining))
        self._owes -= 1
        return _content(self._answers.popleft())


def _content(answer: Message) -> Message:
    """The body of ``done``, with the attachments that came beside it."""
    done, failed = answer.get("done"), answer.get("failed")
    if not isinstance(done, dict):
        raise ModelFailed(failed if isinstance(failed, str) else "gave no answer")
    if ATTACHMENTS in answer:
        done[ATTACHMENTS] = answer[ATTACHMENTS]
    return done


def _end_all(running: list[WorkerProcess]) -> None:
    for process in running:
        process.end()
    running.clear()
