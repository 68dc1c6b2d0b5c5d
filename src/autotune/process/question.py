"""A process for one question."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from contextlib import ExitStack

from autotune.errors import AutotuneError, InvalidValueError, one_line
from autotune.process.channel import Message
from autotune.process.error_codec import accepted
from autotune.process.memory import default_memory_limit
from autotune.process.private_folder import make_private_folder
from autotune.process.processes import ready
from autotune.process.worker_process import WorkerDied, WorkerProcess

__all__ = ["ask_isolated", "ask_once"]

# How long a death that closes no pipe may go unnoticed.
_POLL_SECONDS = 0.05


def ask_isolated(
    what: str,
    module: str,
    message: Message,
    threads: int,
    seconds: float,
    error: type[AutotuneError] = InvalidValueError,
    meanwhile: Callable[[], object] = int,
) -> Message:
    """Ask as :func:`ask_once`, a worker whose handlers are ``refusing``; other ends are errors.

    Args:
        what: Begins the message of an error: ``"'model.onnx' cannot be read"``.
        module: As of :func:`ask_once`, like the other arguments.
        message: As of :func:`ask_once`.
        threads: As of :func:`ask_once`.
        seconds: As of :func:`ask_once`.
        error: Raised where the worker dies of the question or does not end, or a handler fails.
        meanwhile: As of :func:`ask_once`.

    Raises:
        AutotuneError: ``error``, or what the handler raised.
        WorkerStartFailed: no worker can be started.
    """
    try:
        answer = ask_once(module, message, threads, seconds, meanwhile)
    except (TimeoutError, WorkerDied) as end:
        raise error(f"{what}: the process that reads it: {_end(str(end))}") from end
    if "failed" in answer:
        raise error(f"{what}: {one_line(answer['failed'], 300)}")
    return accepted(answer["done"])


def _end(text: str) -> str:
    """Describe the end of a process: killed by a signal, or what it said last."""
    lines = text.splitlines() or [""]
    last = f": {lines[-1]}" if len(lines) > 1 and lines[0].startswith("exited") else ""
    return one_line(lines[0] + last, 300)


def ask_once(
    module: str,
    message: Message,
    threads: int,
    seconds: float,
    meanwhile: Callable[[], object] = int,
) -> Message:
    """The answer of a worker that is started for one question: its ``done`` or ``failed``.

    Args:
        module: The worker's module, as of :class:`WorkerProcess`.
        message: The question.
        threads: Threads that the worker may use.
        seconds: How long the answer may take, the worker's start included.
        meanwhile: Called once the question has been asked.

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
        meanwhile()
        while (remaining := end - time.monotonic()) > 0:
            ready(worker.fileno(), select.POLLIN, min(remaining, _POLL_SECONDS))
            for answer in worker.receive():
                if "phase" not in answer:
                    return answer
    raise TimeoutError(f"no answer in {seconds:g} s")
