"""The engine ``local``: builds in processes of this machine, and times in another one of them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from operator import itemgetter

from attrs import define, frozen

from autotune.backends import Backend
from autotune.measure.engines.artefacts import ArtefactStore
from autotune.measure.engines.fingerprint import Fingerprint
from autotune.measure.engines.interface import (
    EngineJob,
    EngineReply,
    Lease,
    Machine,
    MeasureEngine,
    RunnerContext,
)
from autotune.measure.engines.leases import LeaseTable
from autotune.measure.engines.ledger import JobLedger
from autotune.measure.engines.reference_program import host_fingerprint
from autotune.measure.jobs import Job, Reply
from autotune.measure.pinning import timing_cpus
from autotune.measure.pool import WorkerPool
from autotune.plugins.guarded_parts import create_held_part
from autotune.plugins.options import option, read_options
from autotune.process.channel import Message
from autotune.process.ending import ending_with
from autotune.process.errors import WorkerStartFailed
from autotune.process.memory import affordable_workers, default_memory_limit
from autotune.process.private_folder import PrivateFolder, make_private_folder
from autotune.process.timing_lock import TimingLock

__all__ = ["LocalEngine", "LocalOptions", "make_local_engine"]

_TIMER = 0
_WORKER_BYTES = 1 << 30
_POLL_SECONDS, _IDLE_SECONDS = 0.05, 0.005
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
    """Processes that have been started, their folder, and what ends them."""

    pool: WorkerPool
    folder: PrivateFolder
    end: Callable[[], object]


class LocalEngine(MeasureEngine):
    """This machine behind the contract of engines.

    Nothing builds while there is a lease to time: all share the processors.

    Args:
        context: Backend, threads, protocol and options.
    """

    name = "local"

    def __init__(self, context: RunnerContext) -> None:
        options = read_options("runner 'local'", LocalOptions, context.options)
        self._context = context
        self._builders = options.builders or affordable_workers(
            len(os.sched_getaffinity(0)), _WORKER_BYTES
        )
        self._backend: Backend = create_held_part("backend", context.backend)
        self._machine = socket.gethostname() or "this-machine"
        self._ledger = JobLedger(self.name)
        cpus = () if self._backend.simulated_times else timing_cpus(context.threads)[0]
        self._leases = LeaseTable(lock=TimingLock(cpus))
        self._wants_lease = False
        # Builds that no process was given, by priority and number.
        self._queue: list[tuple[int, int, Job]] = []
        self._building: set[int] = set()
        self._timing: set[int] = set()
        self._fingerprint: Fingerprint | None = None
        self._drift = 1.0
        self._running: _Running | None = None

    @property
    def on_this_machine(self) -> bool:
        return True

    @property
    def simulates(self) -> bool:
        return self._backend.simulated_times

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
        memory = protocol.memory_bytes
        pool = WorkerPool(
            context.backend,
            context.threads,
            self._backend.worker_environment(context.threads),
            workers=1 + self._builders,
            deadlines=protocol.deadlines,
            memory_bytes=default_memory_limit() if memory is None else memory,
            folder=folder,
            clock=time.monotonic,
            hello=lambda index: {"artefacts": store, "only_times": index == _TIMER},
        )
        end = ending_with(self, pool.close, folder.remove)
        self._running = _Running(pool, folder, end)
        pool.reserve((), (_TIMER,))
        pool.start()

    def machines(self) -> Sequence[Machine]:
        if self._running is None or self._fingerprint is None:
            return []
        _, incarnation = self._running.pool.place(_TIMER)
        return [
            Machine(
                self._machine,
                frozenset(("build", "time")),
                self._fingerprint,
                slots=self._builders,
                lease_group=self._machine,
                load=len(self._queue) + len(self._building) + len(self._timing),
                incarnation=incarnation,
                drift=self._drift,
            )
        ]

    def tell(
        self, task: str, message: Message, artefacts: Sequence[str] = (), *, replace: bool = False
    ) -> None:
        # Every process reads the host's own store.
        self._pool.tell(task, message, replace=replace)

    def release(self, task: str) -> None:
        if self._running is not None:
            self._running.pool.release(task)

    def submit(self, job: EngineJob) -> Future[EngineReply]:
        number, future = self._ledger.open()
        if self._running is None:
            self._ledger.answer(number, EngineReply("again"))
        elif job.kind == "build":
            self._queue.append((-job.priority, number, Job(number, job.message, job.deadlines)))
            self._queue.sort(key=itemgetter(0, 1))
            self._hand_out()
        elif job.machine == self._machine and self._leases.renew(self._machine):
            self._timing.add(number)
            place = (_TIMER, job.incarnation)
            self._pool.add([Job(number, job.message, job.deadlines, place)])
        else:
            self._ledger.answer(number, EngineReply("again", job.machine or ""))
        return future

    def poll(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._running is not None:
            self._leases.tend()
            self._hand_out()
            left = max(0.0, end - time.monotonic())
            began = time.monotonic()
            for reply in self._pool.poll(min(left, _POLL_SECONDS)):
                self._take(reply)
            self._join_when_ready()
            if self._ledger.deliver() or time.monotonic() >= end:
                return
            if time.monotonic() - began < _IDLE_SECONDS:
                # Nothing is under way that could be waited for.
                time.sleep(min(_IDLE_SECONDS, left))
        self._ledger.deliver()

    def lease(self, machine: str, seconds: float) -> Lease | None:
        if machine != self._machine or self._fingerprint is None:
            return None
        # Builds that have begun end first, and no other begins.
        self._wants_lease = True
        if self._building:
            return None
        token = self._leases.acquire(self._machine, machine, seconds, on_this_host=True)
        return None if token is None else Lease(self, machine, token)

    def holds_lease(self, lease: Lease) -> bool:
        return self._leases.holds(lease.token)

    def release_lease(self, lease: Lease) -> None:
        self._leases.release(lease.token)
        self._wants_lease = False

    def cancel(self) -> None:
        if self._running is not None:
            self._pool.cancel()
            self._pool.reserve((), (_TIMER,))
        self._forget_all()

    def check_speed(self, machine: str) -> float | None:
        fingerprint = self._fingerprint
        if machine != self._machine or fingerprint is None or self.simulates:
            return None
        seconds = self._ask_speed()
        if seconds is not None:
            self._drift = seconds / fingerprint.reference_seconds
        return seconds

    def take_warnings(self) -> list[str]:
        return [*self._leases.take_warnings(), *self._ledger.take_warnings()]

    def close(self) -> None:
        running, self._running = self._running, None
        self._forget_all()
        self._leases.clear()
        self._fingerprint = None
        if running is not None:
            running.end()

    def _forget_all(self) -> None:
        self._queue.clear()
        self._building.clear()
        self._timing.clear()
        self._wants_lease = False
        self._ledger.give_back_all()

    @property
    def _pool(self) -> WorkerPool:
        if self._running is None:
            raise WorkerStartFailed("runner 'local' has not been started, or was closed")
        return self._running.pool

    def _hand_out(self) -> None:
        """Give builds to processes, unless somebody times or is to do so next."""
        while self._queue and not self._wants_lease:
            if len(self._building) >= _AHEAD * self._builders:
                return
            _, number, job = self._queue.pop(0)
            self._building.add(number)
            self._pool.add([job])

    def _take(self, reply: Reply) -> None:
        self._building.discard(reply.number)
        self._timing.discard(reply.number)
        index, incarnation = reply.place
        self._ledger.answer(
            reply.number,
            EngineReply(
                reply.kind,
                self._machine,
                incarnation if index == _TIMER else 0,
                reply.phase,
                reply.seconds,
                reply.body,
                reply.message,
            ),
        )

    def _join_when_ready(self) -> None:
        """Take part once all processes are up, with the fingerprint that this machine has then."""
        if self._fingerprint is not None or not self._pool.is_ready:
            return
        seconds: float | None = 0.0 if self.simulates else self._ask_speed()
        if seconds is not None:
            context, versions = self._context, self.versions
            names = ("backend_version", "compiler_version")
            compiler = " ".join(str(versions.get(name, "")) for name in names)
            self._fingerprint = host_fingerprint(
                context.threads, compiler, context.protocol.identity, seconds
            )

    def _ask_speed(self) -> float | None:
        """Time the reference program in the process that times; None if that ends meanwhile."""
        number, future = self._ledger.open()
        seconds = self._context.protocol.deadlines["run"]
        place = self._pool.place(_TIMER)
        self._pool.add([Job(number, {"op": "speed"}, {"run": seconds}, place)])
        while not future.done():
            for reply in self._pool.poll():
                self._take(reply)
            self._ledger.deliver()
        body = future.result().body
        return float(body["seconds"]) if "seconds" in body else None


def make_local_engine(context: RunnerContext) -> LocalEngine:
    """The runner ``local`` of a run.

    Raises:
        InvalidValueError: an option is unknown or has no such value.
    """
    return LocalEngine(context)
