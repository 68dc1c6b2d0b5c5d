"""A process for one question."""

from __future__ import annotations

import select
import time
from contextlib import ExitStack

from autotune.process.channel import Message
from autotune.process.memory import default_memory_limit
from autotune.process.private_folder import make_private_folder
from autotune.process.processes import ready
from autotune.process.worker_process import WorkerProcess

__all__ = ["ask_once"]

# How long a death that closes no pipe may go unnoticed.
_POLL_SECONDS = 0.05


def ask_once(module: str, message: Message, threads: int, seconds: float) -> Message:
    """The answer of a worker that is started for one question: its ``done`` or ``failed``.

    Args:
        module: The worker's module, as of :class:`WorkerProcess`.
        message: The question.
        threads: Threads that the worker may use.
        seconds: How long the answer may take, the worker's start included.

    Raises:
        TimeoutError: there was no answer in time.
        WorkerDied: the worker ended without an answer; the message says how.
        WorkerStartFailed: no worker can be started.
    """
    end = time.monotonic() + seconds
    with ExitStack() as ending:
        folder = make_private_folder()
        ending.callback(folder.remove)
        path = folder.path / "worker"
        worker = WorkerProcess(module, {}, threads, {}, default_memory_limit(), path)
        ending.callback(worker.end)
        worker.send(message)
        while (remaining := end - time.monotonic()) > 0:
            ready(worker.fileno(), select.POLLIN, min(remaining, _POLL_SECONDS))
            for answer in worker.receive():
                if "phase" not in answer:
                    return answer
    raise TimeoutError(f"no answer in {seconds:g} s")
