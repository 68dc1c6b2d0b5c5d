"""A set of worker processes that do jobs, with deadlines, and are replaced when they die.

Jobs are sent ahead: a worker that has finished one begins the next although the host does
something else meanwhile.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from attrs import define, field

from autotune.measure.jobs import NOWHERE, Job, JobPool, Place, Position, Reply
from autotune.plugins.parts import import_string
from autotune.process.channel import Message
from autotune.process.errors import TimeIsOver, WorkerStartFailed
from autotune.process.memory import (
    available_memory,
    default_memory_limit,
    may_build,
    resident_bytes,
)
from autotune.process.private_folder import PrivateFolder
from autotune.process.worker_process import WorkerDied, WorkerProcess
from autotune.runtime.device import held_bytes

__all__ = ["MOST_AHEAD", "WorkerPool"]

# Jobs that a worker has before it: enough for as long as a search takes, few enough that one
# worker does not wait while another has work left.
MOST_AHEAD = 4

# How long a death that closes no pipe (a grandchild holds it open) may go unnoticed.
_POLL_SECONDS = 0.05
_DEVICE_WORKER = "autotune.measure.devices.worker"
_MOST_START_FAILURES = 3


@define
class Slot:
    """A position in the pool.

    Attributes:
        index: The position.
        process: Its worker.
        generation: How often it has been replaced.
        setup: Setup messages that the worker must get before jobs.
        jobs: Jobs that it was sent, the first of which it is doing.
        in_setup: Whether it has yet to answer a message of ``setup``.
        begun: Whether it has announced a phase of what it is doing.
        used: Whether it has been given a job.
        reserved: Whether it gets only jobs that are for it.
        timing: Whether it is also to have nothing else to do.
    """

    index: int
    process: WorkerProcess | None = None
    generation: int = 0
    setup: deque[Message] = field(factory=deque)
    jobs: deque[Job] = field(factory=deque)
    in_setup: bool = False
    begun: bool = False
    used: bool = False
    reserved: bool = False
    timing: bool = False
    phase: str = "start"
    since: float = 0.0
    deadline: float = 0.0
    start_failures: int = 0

    @property
    def place(self) -> Place:
        """The worker as it is now."""
        return self.index, self.generation

    @property
    def ready(self) -> bool:
        """True if it has answered all that it must know."""
        return self.process is not None and not self.setup and not self.in_setup

    @property
    def waiting(self) -> bool:
        """True if it owes an answer."""
        return self.in_setup or bool(self.jobs)


class WorkerPool(JobPool):
    """Workers of one backend.

    Args:
        backend: Name or import string of the backend.
        threads: Threads that a program may use.
        environment: What the backend wants in the workers' environment.
        workers: How many.
        deadlines: Seconds of the phases ``start`` and ``task``.
        memory_bytes: Memory that each worker may allocate; None allows most of the machine's.
        folder: For temporary files.
        clock: Monotonic seconds.
        is_late: Asked while something is waited for: whether to wait no longer.
        hello: What else the worker at a position gets in its first message.
        module: What a worker runs.
        device: Whether there is one more process, the first, which owns a device: it is given
            only what is for it.
    """

    def __init__(
        self,
        backend: str,
        threads: int,
        environment: Mapping[str, str],
        *,
        workers: int,
        deadlines: Mapping[str, float],
        memory_bytes: int | None,
        folder: PrivateFolder,
        clock: Callable[[], float] = time.monotonic,
        is_late: Callable[[], bool] = lambda: False,
        hello: Callable[[int], Message] = lambda _index: {},
        module: str = "autotune.measure.worker",
        device: bool = False,
    ) -> None:
        self._module = module
        self._hello = hello
        self._backend = backend
        self._threads = threads
        self._environment = environment
        self._deadlines = deadlines
        self._memory_bytes = default_memory_limit() if memory_bytes is None else memory_bytes
        self._folder = folder
        self._clock = clock
        self._is_late = is_late
        self._owner = os.getpid()
        self._spawned = 0
        self._largest = 0
        self._facts: dict[str, list[Message]] = {}
        self._queue: deque[Job] = deque()
        self._undelivered: list[Reply] = []
        self._slots = [Slot(index) for index in range(workers + device)]
        self._device = self._slots[0] if device else None
        self._versions: Message = {}

    @property
    def versions(self) -> Message:
        """See :attr:`JobPool.versions`."""
        return self._versions

    def start(self) -> None:
        """Start every worker and return at once."""
        for slot in self._slots:
            if slot.process is None:
                self._spawn(slot)

    def tell(self, task: str, message: Message, *, replace: bool = False) -> None:
        """Tell every worker, now and later ones, something that jobs of a task refer to.

        Args:
            task: Names the task.
            message: What to tell.
            replace: Drop the earlier setup messages of the task.
        """
        if replace:
            self._facts[task] = []
        self._facts.setdefault(task, []).append(message)
        self._set_up(message)

    def release(self, task: str) -> None:
        """Have every worker forget a task, and tell later ones nothing of it."""
        if self._facts.pop(task, None) is not None:
            self._set_up({"op": "release", "task": task})

    def _set_up(self, message: Message) -> None:
        for slot in self._slots:
            if slot.process is not None:
                slot.setup.append(message)
                self._advance_setup(slot)

    def told(self) -> Iterator[tuple[str, Message]]:
        """Setup messages that later workers get, each with its task."""
        return ((task, fact) for task, facts in self._facts.items() for fact in facts)

    def wait_ready(self) -> None:
        """Wait until every worker is ready for jobs, or busy with some.

        Raises:
            WorkerStartFailed: one cannot be started, or refuses its setup.
            TimeIsOver: there is no time left to wait.
        """
        for slot in self._slots:
            # With a job, it is replaced when its end is noticed, and the job answered.
            if slot.jobs or slot.process is None or not slot.ready:
                continue
            if not slot.process.alive:
                self._replace(slot)
        while not all(slot.ready or slot.jobs for slot in self._slots):
            if any(slot.process is None for slot in self._slots):
                raise WorkerStartFailed("the workers have not been started, or were ended")
            self._undelivered += self._step(_POLL_SECONDS)

    def holds(self, place: Place) -> bool:
        """Return whether the worker at ``place`` is still the same process."""
        return self._slots[int(place[0])].generation == place[1]

    def place(self, index: int) -> Place:
        """The worker at a position, as it is now."""
        return self._slots[index].place

    @property
    def is_ready(self) -> bool:
        """True if every worker is ready for jobs, or busy with some."""
        return all(slot.ready or slot.jobs for slot in self._slots)

    def awaited(self) -> list[WorkerProcess]:
        """The workers that owe an answer: each is readable when it has said something."""
        return [slot.process for slot in self._slots if slot.process and slot.waiting]

    @property
    def device_place(self) -> Place | None:
        """The process that owns the device, as it is now; None where there is none."""
        return None if self._device is None else self._device.place

    def pids(self) -> dict[int, int]:
        """Process ids of the workers that run, by position."""
        return {slot.index: slot.process.pid for slot in self._slots if slot.process is not None}

    @property
    def idle(self) -> bool:
        """True if no job is being done or waits, and every reply has been given."""
        busy = any(slot.jobs for slot in self._slots)
        return not (busy or self._queue or self._undelivered)

    @property
    def is_quiet(self) -> bool:
        """True if the workers that are reserved for timing have nothing to do."""
        return not any(slot.waiting for slot in self._slots if slot.timing)

    def reserve(self, timing: Collection[Position], later: Collection[Position] = ()) -> None:
        """Give the workers at these positions, and no others, only jobs that are for them.

        Args:
            timing: Those that are to be quiet now.
            later: Those that are to be so soon, and may end what they are doing.
        """
        for slot in self._slots:
            slot.timing = slot.index in timing
            slot.reserved = slot.timing or slot.index in later

    def add(self, jobs: Sequence[Job]) -> None:
        """Have jobs done; their replies come from :meth:`poll`."""
        self._queue.extend(jobs)

    def poll(self, seconds: float = _POLL_SECONDS) -> list[Reply]:
        """Hand out jobs, and return the replies that have come.

        Args:
            seconds: How long to wait for something to happen; 0 returns at once.

        Raises:
            TimeIsOver: there is no time left to wait.
        """
        self._undelivered += self._assign()
        # Kept where this raises: a task that waits for a reply would wait for ever.
        self._undelivered += self._step(0.0 if self._undelivered else seconds)
        replies, self._undelivered = self._undelivered, []
        return replies

    def forget_queue(self) -> list[int]:
        """Forget the jobs that no worker was given; returns their numbers."""
        numbers = [job.number for job in self._queue]
        self._queue.clear()
        return numbers

    def cancel(self) -> None:
        """Forget every job; workers that were at one are replaced."""
        self._queue.clear()
        self._undelivered.clear()
        for slot in self._slots:
            slot.reserved = slot.timing = False
            if slot.jobs:
                slot.jobs.clear()
                self._replace(slot)

    def close(self) -> None:
        """End every worker, which may be started again. A forked copy of the pool ends nothing."""
        if os.getpid() != self._owner:
            return
        self._queue.clear()
        self._undelivered.clear()
        for slot in self._slots:
            if slot.process is not None:
                slot.process.end()
                slot.process = None
            slot.jobs.clear()
            slot.generation += 1
            slot.start_failures = 0

    def _assign(self) -> list[Reply]:
        """Hand jobs to workers, to those that have least to do first."""
        gone = [job for job in self._queue if job.place is not None and not self.holds(job.place)]
        for job in gone:
            self._queue.remove(job)
        while job_and_slot := self._next_assignment():
            job, slot = job_and_slot
            if slot.process is None or not slot.process.alive:
                # What it had before it is reported when its end is noticed.
                if slot.jobs:
                    break
                self._replace(slot)
                continue
            self._queue.remove(job)
            self._send_job(slot, job)
        return [Reply("again", job.place or NOWHERE, number=job.number) for job in gone]

    def _next_assignment(self) -> tuple[Job, Slot] | None:
        for slot in sorted(self._slots, key=lambda slot: len(slot.jobs)):
            if not slot.ready or len(slot.jobs) >= MOST_AHEAD:
                continue
            for_it = next((job for job in self._queue if job.place == slot.place), None)
            if for_it is not None:
                return for_it, slot
            if slot.reserved or slot is self._device:
                continue
            common = next((job for job in self._queue if job.place is None), None)
            if common is not None and (slot.jobs or self._has_room()):
                return common, slot
        return None

    def _has_room(self) -> bool:
        """Return whether memory is enough for one more worker to begin something."""
        running = sum(bool(slot.jobs) for slot in self._slots)
        return running == 0 or may_build(available_memory(), self._largest, running)

    def _send_job(self, slot: Slot, job: Job) -> None:
        slot.used = True
        slot.jobs.append(job)
        if len(slot.jobs) == 1:
            self._begin(slot, next(iter(job.deadlines)))
        self._send(slot, job.message)

    def _step(self, patience: float) -> list[Reply]:
        """Wait for something to happen, once; returns replies to jobs."""
        if self._is_late():
            raise TimeIsOver("the time is over, and the workers are at something")
        running = [slot for slot in self._slots if slot.waiting and slot.process is not None]
        now = self._clock()
        patience = min([patience, *(slot.deadline - now for slot in running)])
        descriptors = [slot.process for slot in running if slot.process is not None]
        if descriptors:
            select.select(descriptors, [], [], max(0.0, patience))
        return [reply for slot in running for reply in self._attend(slot)]

    def _attend(self, slot: Slot) -> list[Reply]:
        """Take in what one worker has said, or that it is late or dead."""
        replies: list[Reply] = []
        if slot.process is None:
            return replies
        try:
            messages = slot.process.receive()
        except WorkerDied as error:
            return self._died(slot, "died", str(error))
        for message in messages:
            if "phase" in message:
                if message["phase"] not in self._deadlines_of(slot):
                    slot.process.end()
                    unknown = f"announced an unknown phase: {message['phase']!r}"
                    return replies + self._died(slot, "died", unknown)
                slot.begun = True
                self._enter(slot, message["phase"])
            else:
                replies += self._answered(slot, message)
        if slot.waiting and self._clock() > slot.deadline:
            seconds = self._seconds_for(slot)
            slot.process.end()
            late = f"{slot.phase} took more than {seconds:g} s"
            return replies + self._died(slot, "timeout", late)
        return replies

    def _answered(self, slot: Slot, message: Message) -> list[Reply]:
        if slot.jobs:
            job = slot.jobs.popleft()
            # What ran in the worker may have removed it; the worker waits for it.
            self._folder.restore()
            if slot.process is not None:
                self._largest = max(self._largest, resident_bytes(slot.process.pid))
            seconds = self._clock() - slot.since
            kind = "failed" if "failed" in message else "done"
            body, why = message.get("done", {}), message.get("failed", "")
            at = slot.place, slot.phase, seconds
            reply = Reply(kind, *at, body, why, job.number)
            if body.get("spent"):
                # It works no more, through no fault of what it has not begun.
                left = [Reply("again", slot.place, number=other.number) for other in slot.jobs]
                slot.jobs.clear()
                self._replace(slot)
                return [reply, *left]
            if slot.jobs:
                self._begin(slot, next(iter(slot.jobs[0].deadlines)))
            else:
                self._advance_setup(slot)
            return [reply]
        slot.in_setup = False
        if "failed" in message and slot.used:
            # What it did before may have harmed it; a new one tells whether it is the setup.
            self._replace(slot)
            return []
        if "failed" in message:
            raise WorkerStartFailed(
                f"no worker for backend {self._backend!r}: {message['failed']}"
            )
        self._versions = message["done"] or self._versions
        self._advance_setup(slot)
        if slot.ready:
            slot.start_failures = 0
        return []

    def _died(self, slot: Slot, kind: str, message: str) -> list[Reply]:
        """Replace a dead worker; what it was doing is to blame, what it had not begun is not."""
        jobs, place = list(slot.jobs), slot.place
        slot.jobs.clear()
        phase, seconds = slot.phase, self._clock() - slot.since
        if not jobs:
            slot.start_failures += 1
            if slot.start_failures >= _MOST_START_FAILURES:
                raise WorkerStartFailed(
                    f"no worker for backend {self._backend!r}: "
                    f"{slot.start_failures} in a row ended before they were ready, the last one "
                    f"{self._doing(phase)}: {message}"
                )
        kind = kind if slot.begun else "lost"
        self._replace(slot)
        replies = [Reply("again", place, number=job.number) for job in jobs]
        if jobs:
            replies[0] = Reply(kind, place, phase, seconds, {}, message, jobs[0].number)
        return replies

    def _doing(self, phase: str) -> str:
        """Describe a worker's doing in a phase before it is ready."""
        if phase == "start":
            return "while it loaded the backend"
        facts = (fact for _, fact in self.told())
        names = dict.fromkeys(name for fact in facts for name in fact.get("observers", ()))
        made = f"made what observes ({', '.join(names)})"
        return f"while it {made if phase == 'observe' else 'read its task'}"

    def _begin(self, slot: Slot, phase: str) -> None:
        slot.begun = False
        self._enter(slot, phase)

    def _enter(self, slot: Slot, phase: str) -> None:
        slot.phase = phase
        slot.since = self._clock()
        slot.deadline = slot.since + self._seconds_for(slot)

    def _deadlines_of(self, slot: Slot) -> Mapping[str, float]:
        return slot.jobs[0].deadlines if slot.jobs else self._deadlines

    def _seconds_for(self, slot: Slot) -> float:
        return self._deadlines_of(slot)[slot.phase]

    def _replace(self, slot: Slot) -> None:
        if slot.process is not None:
            slot.process.end()
        slot.generation += 1
        self._spawn(slot)

    def _spawn(self, slot: Slot) -> None:
        self._spawned += 1
        backend = import_string("backend", self._backend)
        # What ran in another worker may have removed it.
        self._folder.restore()
        slot.process = WorkerProcess(
            _DEVICE_WORKER if slot is self._device else self._module,
            {} if slot is self._device else {"backend": backend},
            self._threads,
            self._environment,
            self._memory_bytes,
            self._folder.path / f"worker-{self._spawned}",
            (backend,),
        )
        slot.in_setup = slot.used = False
        hello = {"op": "hello", **self._hello(slot.index)}
        if slot is self._device:
            held = {str(index): size for index, size in held_bytes().items()}
            hello |= {"held": held, "replaces": slot.generation > 0}
        slot.setup = deque([hello, *(fact for _, fact in self.told())])
        self._advance_setup(slot)

    def _advance_setup(self, slot: Slot) -> None:
        """Say the next thing that a worker must know, once it has answered everything."""
        if slot.setup and not slot.waiting:
            message = slot.setup.popleft()
            slot.in_setup = True
            self._begin(slot, "start" if message["op"] == "hello" else "task")
            self._send(slot, message)

    def _send(self, slot: Slot, message: Message) -> None:
        if slot.process is None:
            return
        try:
            slot.process.send(message)
        except WorkerDied:
            # What it died of shows when its answer is read.
            slot.deadline = self._clock()
