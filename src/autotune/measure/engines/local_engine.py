"""The engine ``local``: builds in processes of this machine, and times in another one of them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from attrs import define, evolve, field, frozen

from autotune.measure.engines.artefacts import ArtefactStore
from autotune.measure.engines.fingerprint import Fingerprint, host_fingerprint
from autotune.measure.engines.interface import (
    Machine,
    RunnerContext,
)
from autotune.measure.engines.queued_engine import QueuedEngine
from autotune.measure.jobs import Job, Place, Reply
from autotune.measure.pinning import timing_cpus
from autotune.measure.pool import WorkerPool
from autotune.plugins.options import option, read_options
from autotune.process.channel import Message
from autotune.process.ending import ending_with
from autotune.process.errors import WorkerStartFailed
from autotune.process.memory import affordable_workers
from autotune.process.private_folder import make_private_folder
from autotune.process.timing_lock import TimingLock

__all__ = ["LocalEngine", "LocalOptions", "make_local_engine"]

_TIMER = 0
_WORKER_BYTES = 1 << 30
_IDLE_SECONDS = 0.005
# Builds before each process: a lease waits for what has begun, and it should not wait long.
_AHEAD = 2


@frozen
class LocalOptions:
    """Options of the runner ``local``.

    Attributes:
        builders: Processes that build, apart from the one that times; 0 builds and times in one
            process, which is the usual way on one machine.
    """

    builders: int = option(0, low=0, high=256)


@define(eq=False)
class _Running:
    """Processes that have been started, one of which times.

    Attributes:
        name: Of this machine.
        pool: The processes.
        end: Ends them.
        building: Numbers of builds that they were given.
        timing: Of other jobs.
        fingerprint: Of this machine, once all are up.
        asked: The reply with its speed, while that is waited for.
        drift: See :class:`Machine`.
    """

    name: str
    pool: WorkerPool
    end: Callable[[], object]
    building: set[int] = field(factory=set)
    timing: set[int] = field(factory=set)
    fingerprint: Fingerprint | None = None
    asked: Future[Reply] | None = None
    drift: float = 1.0

    @property
    def place(self) -> Place:
        """The process that times, as it is now."""
        return self.name, self.pool.place(_TIMER)[1]

    @property
    def group(self) -> str:
        """All processes share the processors."""
        return self.name

    @property
    def host(self) -> str:
        """All of them are here."""
        return self.name


class LocalEngine(QueuedEngine[_Running]):
    """This machine behind the contract of engines.

    Args:
        context: Backend, threads, protocol and options.
    """

    name = "local"

    def __init__(self, context: RunnerContext) -> None:
        options = read_options("runner 'local'", LocalOptions, context.options)
        self._builders = options.builders or affordable_workers(
            len(os.sched_getaffinity(0)), _WORKER_BYTES
        )
        self._machine = socket.gethostname() or "this-machine"
        self._running: _Running | None = None
        super().__init__(context)
        cpus = () if self.simulates else timing_cpus(context.threads)[0]
        self._leases.lock = TimingLock(cpus)

    @property
    def on_this_machine(self) -> bool:
        return True

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @property
    def pids(self) -> Mapping[str, int]:
        """Process ids, for people who look at the machine: ``time``, ``build 1`` and so on."""
        found = self._running.pool.pids() if self._running else {}
        return {f"build {at}" if at != _TIMER else "time": pid for at, pid in found.items()}

    @property
    def versions(self) -> Mapping[str, str]:
        return dict(self._running.pool.versions) if self._running else {}

    def start(self, artefacts: ArtefactStore) -> None:
        if self._running is not None:
            return
        context, protocol = self._context, self._context.protocol
        folder, store = make_private_folder(), str(artefacts.folder)
        pool = WorkerPool(
            context.backend,
            context.threads,
            self._backend.worker_environment(context.threads),
            workers=1 + self._builders,
            deadlines=protocol.deadlines,
            memory_bytes=protocol.memory_bytes,
            folder=folder,
            hello=lambda index: {"artefacts": store, "only_times": index == _TIMER},
        )
        end = ending_with(self, pool.close, folder.remove)
        self._running = _Running(self._machine, pool, end)
        pool.reserve((), (_TIMER,))
        pool.start()

    def machines(self) -> Sequence[Machine]:
        timer = self._timer(self._machine)
        if timer is None:
            return []
        return [
            Machine(
                timer.name,
                frozenset(("build", "time")),
                timer.fingerprint,
                slots=self._builders,
                lease_group=timer.group,
                load=len(self._queue) + len(timer.building) + len(timer.timing),
                incarnation=timer.place[1],
                drift=timer.drift,
            )
        ]

    def tell(
        self, task: str, message: Message, artefacts: Sequence[str] = (), *, replace: bool = False
    ) -> None:
        # Every process reads the host's own store.
        self._started.pool.tell(task, message, replace=replace)

    def release(self, task: str) -> None:
        if self._running is not None:
            self._running.pool.release(task)

    @property
    def _started(self) -> _Running:
        if self._running is None:
            raise WorkerStartFailed("runner 'local' has not been started, or was closed")
        return self._running

    def _timer(self, machine: str) -> _Running | None:
        running = self._running
        is_known = running is not None and running.fingerprint is not None
        return running if is_known and machine == self._machine else None

    def _give(self, timer: _Running, job: Job) -> None:
        timer.timing.add(job.number)
        incarnation = 0 if job.place is None else job.place[1]
        timer.pool.add([evolve(job, place=(_TIMER, incarnation))])

    def _give_build(self, job: Job) -> bool:
        running = self._started
        is_full = len(running.building) >= _AHEAD * self._builders
        # Nor while it is found out how fast this machine is.
        if is_full or running.fingerprint is None or self._is_quiet(running.host):
            return False
        running.building.add(job.number)
        running.pool.add([job])
        return True

    def _is_building(self, host: str) -> bool:
        return bool(self._started.building)

    def _work(self, seconds: float) -> None:
        running, began = self._started, time.monotonic()
        replies = running.pool.poll(seconds)
        for reply in replies:
            self._take(running, reply)
        self._join_when_ready(running)
        if not replies and time.monotonic() - began < _IDLE_SECONDS:
            # Nothing is under way that could be waited for.
            time.sleep(min(_IDLE_SECONDS, seconds))

    def _drop_jobs(self) -> None:
        running = self._started
        running.pool.cancel()
        running.pool.reserve((), (_TIMER,))
        running.building.clear()
        running.timing.clear()
        running.asked = None

    def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.end()

    def _take(self, running: _Running, reply: Reply) -> None:
        running.building.discard(reply.number)
        running.timing.discard(reply.number)
        index, incarnation = reply.place
        place = running.name, incarnation if index == _TIMER else 0
        self._ledger.answer(reply.number, evolve(reply, place=place))

    def _join_when_ready(self, running: _Running) -> None:
        """Take part once all processes are up, with the fingerprint that this machine has then."""
        if running.fingerprint is not None or not running.pool.is_ready:
            return
        seconds: float | None = 0.0
        if not self.simulates:
            running.asked = running.asked or self._ask_speed(running)
            if not running.asked.done():
                return
            seconds, running.asked = running.asked.result().body.get("seconds"), None
        if seconds is not None:
            context, versions = self._context, self.versions
            names = ("backend_version", "compiler_version")
            compiler = " ".join(str(versions.get(name, "")) for name in names)
            running.fingerprint = host_fingerprint(
                context.threads, compiler, context.protocol.identity, float(seconds)
            )


def make_local_engine(context: RunnerContext) -> LocalEngine:
    """The runner ``local`` of a run.

    Raises:
        InvalidValueError: an option is unknown or has no such value.
    """
    return LocalEngine(context)
