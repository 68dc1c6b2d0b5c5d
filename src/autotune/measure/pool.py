"""A set of worker processes that do jobs, with deadlines, and are replaced when they die."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import define, field, frozen

from autotune.isolation.channel import Message
from autotune.isolation.errors import WorkerStartFailed
from autotune.isolation.worker_process import WorkerDied, WorkerProcess

# How long a death that closes no pipe (a grandchild holds it open) may go unnoticed.
_POLL_SECONDS = 0.05
_MOST_START_FAILURES = 3

Place = tuple[int, int]
"""A worker as it is now: its position, and how often it has been replaced."""


@frozen
class Job:
    """A message for a worker: any, or the one at ``place``."""

    number: int
    message: Message = field(repr=False)
    deadlines: Mapping[str, float]
    place: Place | None = None


@frozen
class Reply:
    """What became of a job.

    Attributes:
        number: The job's number.
        kind: ``done``; ``failed`` (the worker refused, alive); ``died``; ``timeout``; ``lost``
            (the worker ended before it had begun this job, hence not because of it).
        place: Where it was done.
        phase: The last phase the worker announced.
        seconds: How long that phase had lasted.
        body: The answer of ``done``.
        message: What went wrong.
    """

    number: int
    kind: str
    place: Place
    phase: str = ""
    seconds: float = 0.0
    body: Message = field(factory=dict)
    message: str = ""


@define
class _Slot:
    """A position in the pool; ``setup`` is what its worker has yet to be told before jobs."""

    index: int
    process: WorkerProcess | None = None
    generation: int = 0
    setup: deque[Message] = field(factory=deque)
    job: Job | None = None
    begun: bool = False
    waiting: bool = False
    phase: str = "start"
    since: float = 0.0
    deadline: float = 0.0
    start_failures: int = 0

    @property
    def place(self) -> Place:
        return self.index, self.generation

    @property
    def ready(self) -> bool:
        return self.process is not None and not self.setup and not self.waiting


class WorkerPool:
    """Workers of one backend.

    Args:
        backend: Name or import string of the backend.
        threads: Threads that a program may use.
        environment: What the backend wants in the workers' environment.
        workers: How many.
        deadlines: Seconds of the phases ``start`` and ``task``.
        memory_bytes: Memory that each worker may allocate.
        folder: An existing folder for temporary files.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        backend: str,
        threads: int,
        environment: Mapping[str, str],
        *,
        workers: int,
        deadlines: Mapping[str, float],
        memory_bytes: int,
        folder: Path,
        clock: Callable[[], float],
    ) -> None:
        self._backend = backend
        self._threads = threads
        self._environment = environment
        self._deadlines = deadlines
        self._memory_bytes = memory_bytes
        self._folder = folder
        self._clock = clock
        self._owner = os.getpid()
        self._spawned = 0
        self._task: Message | None = None
        self._slots = [_Slot(index) for index in range(workers)]
        self.versions: Message = {}

    def __len__(self) -> int:
        return len(self._slots)

    def start(self) -> None:
        """Start every worker and return at once."""
        for slot in self._slots:
            if slot.process is None:
                self._spawn(slot)

    def set_task(self, message: Message) -> None:
        """Give every worker, now and later, the task that jobs refer to."""
        self._task = message
        for slot in self._slots:
            if slot.process is not None:
                slot.setup.append(message)
                self._advance_setup(slot)

    def wait_ready(self) -> None:
        """Wait until every worker is ready for jobs.

        Raises:
            WorkerStartFailed: one cannot be started, or refuses the task.
        """
        for slot in self._slots:
            if slot.process is not None and slot.ready and not slot.process.alive:
                self._replace(slot)
        while not all(slot.ready for slot in self._slots):
            if any(slot.process is None for slot in self._slots):
                raise WorkerStartFailed("the workers have not been started, or were ended")
            self._step()

    def holds(self, place: Place) -> bool:
        """Whether the worker at ``place`` is still the same process."""
        return self._slots[place[0]].generation == place[1]

    def pids(self) -> list[int]:
        """Process ids of the workers that run."""
        return [slot.process.pid for slot in self._slots if slot.process is not None]

    def run(self, jobs: Sequence[Job]) -> Generator[Reply, None, None]:
        """Do jobs on all workers at once; yields replies as they come.

        Workers that are busy when the iterator is closed are replaced.
        """
        queue = deque(jobs)
        try:
            while queue or any(slot.job for slot in self._slots):
                yield from self._assign(queue)
                yield from self._step()
        finally:
            for slot in self._slots:
                if slot.job is not None:
                    slot.job = None
                    self._replace(slot)

    def close(self) -> None:
        """End every worker. A copy of the pool in a forked process ends nothing."""
        if os.getpid() != self._owner:
            return
        for slot in self._slots:
            if slot.process is not None:
                slot.process.end()
                slot.process = None
            slot.generation += 1

    def _assign(self, queue: deque[Job]) -> Iterator[Reply]:
        """Hand jobs to workers that are free."""
        for job in [job for job in queue if job.place is not None and not self.holds(job.place)]:
            queue.remove(job)
            yield Reply(job.number, "lost", job.place or (0, 0))
        for slot in self._slots:
            if not slot.ready:
                continue
            fitting = [job for job in queue if job.place in (None, slot.place)]
            if not fitting:
                continue
            if slot.process is None or not slot.process.alive:
                self._replace(slot)
                continue
            slot.job = job = fitting[0]
            queue.remove(job)
            self._send(slot, job.message, next(iter(job.deadlines)))

    def _step(self) -> Iterator[Reply]:
        """Wait for something to happen, once; returns replies to jobs."""
        running = [slot for slot in self._slots if slot.waiting and slot.process is not None]
        now = self._clock()
        patience = min([_POLL_SECONDS, *(slot.deadline - now for slot in running)])
        descriptors = [slot.process for slot in running if slot.process is not None]
        if descriptors:
            select.select(descriptors, [], [], max(0.0, patience))
        replies = []
        for slot in running:
            reply = self._attend(slot)
            if reply is not None:
                replies.append(reply)
        return iter(replies)

    def _attend(self, slot: _Slot) -> Reply | None:
        """Take in what one worker has said, or that it is late or dead."""
        if slot.process is None:
            return None
        try:
            messages = slot.process.receive()
        except WorkerDied as error:
            return self._died(slot, "died", str(error))
        for message in messages:
            if "phase" in message:
                slot.begun = True
                self._enter(slot, message["phase"])
            else:
                return self._answered(slot, message)
        if self._clock() > slot.deadline:
            seconds = self._seconds_for(slot)
            slot.process.end()
            return self._died(slot, "timeout", f"{slot.phase} took more than {seconds:g} s")
        return None

    def _answered(self, slot: _Slot, message: Message) -> Reply | None:
        slot.waiting = False
        job, slot.job = slot.job, None
        if job is not None:
            seconds = self._clock() - slot.since
            kind = "failed" if "failed" in message else "done"
            return Reply(
                job.number,
                kind,
                slot.place,
                slot.phase,
                seconds,
                message.get("done", {}),
                message.get("failed", ""),
            )
        if "failed" in message:
            raise WorkerStartFailed(
                f"no worker for backend {self._backend!r}: {message['failed']}"
            )
        self.versions = message["done"] or self.versions
        slot.start_failures = 0
        self._advance_setup(slot)
        return None

    def _died(self, slot: _Slot, kind: str, message: str) -> Reply | None:
        job, slot.job = slot.job, None
        if kind == "died" and not slot.begun:
            kind = "lost"
        place, phase, seconds = slot.place, slot.phase, self._clock() - slot.since
        if job is None:
            slot.start_failures += 1
            if slot.start_failures >= _MOST_START_FAILURES:
                raise WorkerStartFailed(
                    f"no worker for backend {self._backend!r}: "
                    f"{slot.start_failures} in a row ended before they were ready; {message}"
                )
        self._replace(slot)
        if job is None:
            return None
        return Reply(job.number, kind, place, phase, seconds, message=message)

    def _enter(self, slot: _Slot, phase: str) -> None:
        slot.phase = phase
        slot.since = self._clock()
        slot.deadline = slot.since + self._seconds_for(slot)

    def _seconds_for(self, slot: _Slot) -> float:
        deadlines = self._deadlines if slot.job is None else slot.job.deadlines
        return deadlines[slot.phase]

    def _replace(self, slot: _Slot) -> None:
        if slot.process is not None:
            slot.process.end()
        slot.generation += 1
        self._spawn(slot)

    def _spawn(self, slot: _Slot) -> None:
        self._spawned += 1
        slot.process = WorkerProcess(
            "autotune.measure.worker",
            {"backend": self._backend},
            self._threads,
            self._environment,
            self._memory_bytes,
            self._folder / f"worker-{self._spawned}",
        )
        slot.waiting = False
        slot.setup = deque([{"op": "hello"}])
        if self._task is not None:
            slot.setup.append(self._task)
        self._advance_setup(slot)

    def _advance_setup(self, slot: _Slot) -> None:
        """Say the next thing that a new worker must know, once it has answered the last."""
        if slot.setup and not slot.waiting and slot.job is None:
            message = slot.setup.popleft()
            self._send(slot, message, "start" if message["op"] == "hello" else "task")

    def _send(self, slot: _Slot, message: Message, phase: str) -> None:
        if slot.process is None:
            return
        slot.waiting = True
        slot.begun = False
        self._enter(slot, phase)
        try:
            slot.process.send(message)
        except WorkerDied:
            # What it died of shows when its answer is read.
            slot.deadline = self._clock()
