"""The host's side of the workers that run what candidates are made of."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from attrs import define, field

from autotune.process.channel import Message
from autotune.process.ending import ending_with
from autotune.process.errors import TimeIsOver, WorkerStartFailed
from autotune.process.interrupts import unless_done
from autotune.process.memory import default_memory_limit
from autotune.process.private_folder import make_private_folder
from autotune.process.stopwatch import Clock
from autotune.process.worker_process import WorkerDied, WorkerProcess

__all__ = ["JobWorkers"]

_POLL_SECONDS = 0.05
# What a worker may take longer than the time of a job: it ends that by itself.
_GRACE_SECONDS = 15.0
_START_SECONDS = 60.0

Answer = Callable[[Message], None]
"""Takes what a job has come to: what the worker says, or ``{"died": how}``."""


@define(eq=False)
class _Worker:
    """A process and what it is at; it is started again when it has ended."""

    number: int
    process: WorkerProcess | None = None
    answer: Answer | None = None
    end: float = 0.0
    prepared: bool = False


@define(eq=False)
class _Job:
    message: Message
    seconds: float
    answer: Answer = field(repr=False)


class JobWorkers:
    """Processes that run commands and functions, one each at a time.

    They die with the host, whatever ends it, with everything that they have started, and so do
    the files in :attr:`folder`.

    Args:
        count: How many.
        threads: Threads that a program may use.
        preparation: What each of them is told first, if anything.
        is_late: Whether to wait no longer.
        clock: Monotonic seconds.

    Raises:
        WorkerStartFailed: there is no room for temporary files.
    """

    def __init__(
        self,
        count: int,
        threads: int,
        preparation: Message | None,
        is_late: Callable[[], bool],
        clock: Clock = time.monotonic,
    ) -> None:
        self._threads = threads
        self._preparation = preparation
        self._is_late = is_late
        self._clock = clock
        self._folder = make_private_folder()
        self._workers = [_Worker(number) for number in range(count)]
        self._jobs: deque[_Job] = deque()
        self._started = 0
        self._close = ending_with(self, partial(_end_all, self._workers), self._folder.remove)

    @property
    def folder(self) -> Path:
        """Folder in which candidates have theirs."""
        return self._folder.path

    @property
    def count(self) -> int:
        """Number of processes."""
        return len(self._workers)

    def start(self) -> None:
        """Start the first worker, and return at once."""
        self._process(self._workers[0])

    def post(self, message: Message, seconds: float, answer: Answer) -> None:
        """Have a job done when a worker is free; ``answer`` is called while somebody waits.

        Args:
            message: What the worker is told.
            seconds: After which it is ended, if it has not ended the job.
            answer: Takes the result.
        """
        self._jobs.append(_Job(message, seconds, answer))
        self._assign()

    def ask(self, message: Message, seconds: float) -> Message:
        """Have a job done alone; the result.

        Raises:
            TimeIsOver: there is no time left to wait.
        """
        found: list[Message] = []
        self.post(message, seconds, found.append)
        self.wait(lambda: bool(found))
        return found[0]

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Wait until ``is_done``; answers are given meanwhile.

        Raises:
            TimeIsOver: there is no time left to wait.
        """
        with unless_done(self.cancel):
            while not is_done():
                if self._is_late():
                    raise TimeIsOver("the time is over, and a candidate is being built or run")
                self._pump(_POLL_SECONDS)

    def cancel(self) -> None:
        """Give up all jobs: their processes are killed."""
        self._jobs.clear()
        for worker in self._workers:
            if worker.answer is not None:
                worker.answer = None
                _end(worker)

    def close(self) -> None:
        """End every process and remove every file. Calling it again does nothing."""
        self._close()

    def _assign(self) -> None:
        for worker in self._workers:
            if not self._jobs:
                return
            if worker.answer is None:
                self._give(worker, self._jobs.popleft())

    def _give(self, worker: _Worker, job: _Job) -> None:
        process = self._process(worker)
        seconds = job.seconds + _GRACE_SECONDS + (0.0 if worker.prepared else _START_SECONDS)
        worker.answer, worker.end = job.answer, self._clock() + seconds
        with suppress(WorkerDied):  # noticed when its answer is waited for
            if not worker.prepared and self._preparation is not None:
                process.send({"op": "prepare", **self._preparation})
            process.send(job.message)

    def _process(self, worker: _Worker) -> WorkerProcess:
        if worker.process is None or not worker.process.alive:
            _end(worker)
            self._folder.restore()
            self._started += 1
            worker.process = WorkerProcess(
                "autotune.external.worker",
                {},
                self._threads,
                {},
                default_memory_limit(),
                self._folder.path / f"worker-{self._started}",
            )
        return worker.process

    def _pump(self, seconds: float) -> None:
        """Take answers, waiting for the first for some time."""
        poll = select.poll()
        busy = {}
        for worker in self._workers:
            if worker.answer is not None and worker.process is not None:
                poll.register(worker.process.fileno(), select.POLLIN)
                busy[worker.process.fileno()] = worker
        for descriptor, _ in poll.poll(seconds * 1000):
            self._receive(busy[descriptor])
        for worker in busy.values():
            if worker.answer is not None and self._clock() > worker.end:
                self._lost(worker, "did not end its job in time")
        self._assign()

    def _receive(self, worker: _Worker) -> None:
        assert worker.process is not None
        try:
            messages = worker.process.receive()
        except WorkerDied as error:
            self._lost(worker, str(error))
            return
        for message in messages:
            if not worker.prepared and self._preparation is not None:
                if "failed" in message:
                    _end(worker)
                    raise WorkerStartFailed(str(message["failed"]))
                worker.prepared = True
                continue
            worker.prepared = True
            answer, worker.answer = worker.answer, None
            if answer is not None:
                answer(message["done"] if "done" in message else {"died": message["failed"]})

    def _lost(self, worker: _Worker, how: str) -> None:
        was_ready = worker.prepared or self._preparation is None
        answer, worker.answer = worker.answer, None
        _end(worker)
        if not was_ready:
            raise WorkerStartFailed(f"a worker {how}")
        if answer is not None:
            answer({"died": how})


def _end(worker: _Worker) -> None:
    if worker.process is not None:
        worker.process.end()
        worker.process = None
    worker.prepared = False


def _end_all(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.answer = None
        _end(worker)
