"""The runner ``rpc``: builds here, and times on machines that run only TVM's RPC server."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from autotune.backends.native import NativeBackend
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.measure.engines import (
    NOWHERE,
    ArtefactStore,
    Fingerprint,
    Job,
    Machine,
    Place,
    QueuedEngine,
    Reply,
    RunnerContext,
)
from autotune.measure.pinning import timing_cpus
from autotune.measure.pool import WorkerPool
from autotune.process.channel import Message
from autotune.process.ending import ending_with
from autotune.process.errors import TimeIsOver, WorkerStartFailed
from autotune.process.memory import affordable_workers
from autotune.process.private_folder import PrivateFolder, make_private_folder
from autotune.process.timing_lock import TimingLock
from autotune_tvm.backend import TVMBackend
from autotune_tvm.rpc.machine import RemoteMachine
from autotune_tvm.rpc.options import RPCOptions, read_rpc_options
from autotune_tvm.rpc.toolchain import Toolchain
from autotune_tvm.rpc.tracker import Tracker, TrackerError

_SENDING = ("task", "load")


@define(eq=False)
class ServerSlot:
    """A machine of the runner ``rpc``.

    Attributes:
        name: Of the machine.
        boot: Identity of this host, or "".
        folder: Of its process.
        pool: Its process, which is ended where there is no server, and started again later.
        machine: What the server said of itself; None until it has.
        fingerprint: Made from that.
        joining: The reply with the speed of its machine, while that is waited for.
        drift: Of the reference program.
        up: The incarnation that had a server last.
        jobs: Numbers of jobs that it owes an answer.
        gone: Why there is no process, or "".
        retry_at: When to try again, in monotonic seconds.
    """

    name: str
    boot: str
    folder: PrivateFolder
    pool: WorkerPool = field(init=False)
    machine: RemoteMachine | None = None
    fingerprint: Fingerprint | None = None
    joining: Future[Reply] | None = None
    drift: float = 1.0
    up: int = -1
    jobs: set[int] = field(factory=set)
    gone: str = ""
    retry_at: float = 0.0

    def start(self) -> None:
        """Start the process, which asks for a server like the one before."""
        self.gone = ""
        self.pool.start()

    def greeting(self, _index: int) -> Message:
        """First message to the process: what its server has to be like."""
        return {"expected": None if self.machine is None else self.machine.to_json()}

    @property
    def place(self) -> Place:
        """The process, as it is now."""
        return self.name, self.pool.place(0)[1]

    @property
    def group(self) -> str:
        """Lease group of its machine."""
        return "" if self.machine is None else self.machine.lease_group

    @property
    def host(self) -> str:
        """Name of this host, where its server runs here too, and "" elsewhere."""
        is_here = self.machine is not None and self.machine.boot == self.boot
        return self.boot if is_here else ""

    @property
    def is_up(self) -> bool:
        """True if its process, as it is now, has a server."""
        return not self.gone and self.up == self.place[1]

    @property
    def is_starting(self) -> bool:
        """True if its process has yet to get a server, or to say that it got none."""
        return not self.gone and not self.is_up

    def submit(self, job: Job) -> None:
        """Have a job done by the process as it is now."""
        self.jobs.add(job.number)
        self.pool.add([evolve(job, place=self.pool.place(0))])

    def poll(self) -> list[Reply]:
        """Replies that have come; where no process can be started any more, ``again`` to all."""
        if self.gone:
            return []
        before = self.place
        try:
            replies = self.pool.poll(0.0)
        except WorkerStartFailed as error:
            return self.end(_reason(error))
        self.jobs -= {reply.number for reply in replies}
        if self.place == before and not self.is_up and self.pool.is_ready:
            self.up = before[1]
            if self.fingerprint is None:
                self.machine = RemoteMachine.from_json(self.pool.versions["machine"])
        return [self._placed(reply) for reply in replies]

    def _placed(self, reply: Reply) -> Reply:
        # Nothing of the program runs while it is sent: what ends then is the way to the server.
        is_lost = reply.kind in ("died", "timeout") and reply.phase in _SENDING
        place = self.name, reply.place[1]
        return evolve(reply, kind="lost" if is_lost else reply.kind, place=place)

    def finish(self, seconds: float) -> None:
        """Wait for so long until the process is at nothing; replies are dropped.

        A server whose client is killed between a request and its answer serves no more.
        """
        end = time.monotonic() + seconds
        while self.pool.awaited() or not self.pool.idle:
            left = end - time.monotonic()
            if left <= 0:
                return
            try:
                self.pool.poll(left)
            except (WorkerStartFailed, TimeIsOver):
                return

    def end(self, why: str) -> list[Reply]:
        """End the process; the replies to what it was given."""
        place, self.gone, self.joining = self.place, why, None
        self.pool.close()
        given, self.jobs = sorted(self.jobs), set()
        return [Reply("again", place, number=number) for number in given]


def _reason(error: BaseException) -> str:
    """Reason that a process gave, without the names of classes that only we know."""
    text: Any = str(error)
    for sign in ("TrackerError: ", "ProgramFailed: ", "ServerLost: "):
        text = text.rpartition(sign)[2]
    return str(text)


__all__ = ["RPCEngine", "make_rpc_engine"]

_WORKER_BYTES = 1 << 30
# For what a process is at when it is not needed any more: its server survives the end then.
_FINISHING_SECONDS = 2.0
_POLL_SECONDS = 0.05
_AHEAD = 2
# How often to ask the tracker for servers that have come, or come back.
_LOOK_SECONDS = 5.0
_PATIENCE = 5.0
# How long the first server that has joined waits for the others.
_GATHERING_SECONDS = 5.0
# How long to go on without a single server, beyond what a session may last: as long as that a
# program which hangs may keep its server.
_MOST_SECONDS_WITHOUT = 60.0


@define(eq=False)
class _Running:
    """Processes that have been started.

    Attributes:
        builders: Processes that build.
        store: What jobs need, and what builds make.
        slots: Places for servers.
        end: Ends them.
    """

    builders: WorkerPool
    store: ArtefactStore
    slots: list[ServerSlot]
    end: Callable[[], object]


class RPCEngine(QueuedEngine[ServerSlot]):
    """Servers of one key of TVM's RPC tracker.

    Each is held by a process here, which can be ended at a deadline; the server frees itself when
    its session is over. Programs are built in processes of this host, for the servers' machines;
    where a server is on this host too, nothing is built while there is a lease to time.

    Args:
        context: Backend, target, threads, protocol and options.

    Raises:
        InvalidValueError: an option makes no sense, or something is asked for that servers
            cannot do.
        UnsupportedTarget: nothing can be built for the target.
    """

    name = "rpc"

    def __init__(self, context: RunnerContext) -> None:
        self._options = read_rpc_options(context.options)
        check_context(context)
        Toolchain(self._options.cc).check()
        super().__init__(context)
        self._builders = affordable_workers(len(os.sched_getaffinity(0)), _WORKER_BYTES)
        self._boot = boot_of_this_host()
        # Servers on this host choose the CPUs that programs of this host would be timed on.
        self._leases.lock = TimingLock(timing_cpus(context.threads)[0])
        self._building: set[int] = set()
        self._warnings: list[str] = []
        self._looked = self._last_seen = time.monotonic()
        self._gathered = False
        self._joined_first: float | None = None
        self._running: _Running | None = None

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @property
    def versions(self) -> Mapping[str, str]:
        return dict(self._running.builders.versions) if self._running is not None else {}

    def start(self, artefacts: ArtefactStore) -> None:
        """Start processes for every server that the tracker has with the key.

        Raises:
            WorkerStartFailed: there is no tracker, or none of the servers; says why.
        """
        if self._running is not None:
            return
        try:
            with Tracker(self._options.address, _PATIENCE) as tracker:
                found = len(tracker.servers(self._options.key).servers)
        except TrackerError as error:
            raise WorkerStartFailed(str(error)) from error
        folder, slots = make_private_folder(), list[ServerSlot]()
        builders = worker_pool(
            self._context, self._options, folder, artefacts, workers=self._builders
        )
        end = ending_with(self, partial(_end, slots), builders.close, folder.remove)
        self._running = _Running(builders, artefacts, slots, end)
        builders.start()
        self._looked = self._last_seen = time.monotonic()
        self._add_slots(self._wanted(found))

    def machines(self) -> Sequence[Machine]:
        if self._running is None:
            return []
        found = []
        if self._running.builders.versions and self._have_gathered():
            builder = Machine(
                f"{socket.gethostname()} (builds)",
                frozenset(("build",)),
                slots=self._builders,
                load=len(self._building) + len(self._queue),
            )
            found.append(builder)
        for slot in self._running.slots if self._have_gathered() else []:
            if slot.is_up and slot.machine is not None and slot.fingerprint is not None:
                found.append(
                    Machine(
                        slot.name,
                        frozenset(("time",)),
                        slot.fingerprint,
                        lease_group=slot.machine.lease_group,
                        load=len(slot.jobs),
                        incarnation=slot.place[1],
                        drift=slot.drift,
                    )
                )
        return found

    def tell(
        self, task: str, message: Message, artefacts: Sequence[str] = (), *, replace: bool = False
    ) -> None:
        # Every process reads the host's own store; arrays are sent to servers from there.
        for pool in self._pools():
            pool.tell(task, message, replace=replace)

    def release(self, task: str) -> None:
        for pool in self._pools():
            pool.release(task)

    def take_warnings(self) -> list[str]:
        new, self._warnings = self._warnings, []
        return [*new, *super().take_warnings()]

    def _timer(self, machine: str) -> ServerSlot | None:
        slots = self._running.slots if self._running is not None else []
        return next((it for it in slots if it.name == machine and it.is_up), None)

    def _give(self, timer: ServerSlot, job: Job) -> None:
        timer.submit(job)

    def _give_build(self, job: Job) -> bool:
        running = self._started
        is_full = len(self._building) >= _AHEAD * self._builders
        is_joining = any(slot.joining is not None for slot in running.slots)
        if is_full or is_joining or self._is_quiet(self._boot):
            return False
        self._building.add(job.number)
        running.builders.add([job])
        return True

    def _is_building(self, host: str) -> bool:
        return bool(self._building)

    def _work(self, seconds: float) -> None:
        self._take_builds()
        for slot in self._started.slots:
            self._attend(slot)
            self._join(slot)
        self._require_servers()
        self._look_for_servers()
        if not self._ledger.has_arrived and seconds:
            self._wait(seconds)

    def _drop_jobs(self) -> None:
        slots = self._started.slots
        for slot in slots:
            slot.finish(_FINISHING_SECONDS)
        for pool in self._pools():
            pool.cancel()
        self._building.clear()
        for slot in slots:
            slot.jobs.clear()
            slot.joining = None

    def _end(self) -> None:
        running, self._running = self._running, None
        self._building.clear()
        self._gathered, self._joined_first = False, None
        if running is not None:
            running.end()

    def _have_gathered(self) -> bool:
        """Return whether the servers of the beginning have joined, or been waited for long enough.

        A race takes the machines that most are like.
        """
        if not self._gathered and self._running is not None:
            slots = self._running.slots
            since = self._joined_first
            is_late = since is not None and time.monotonic() - since > _GATHERING_SECONDS
            self._gathered = is_late or all(slot.fingerprint or slot.gone for slot in slots)
        return self._gathered

    @property
    def _started(self) -> _Running:
        if self._running is None:
            raise WorkerStartFailed("runner 'rpc' has not been started, or was closed")
        return self._running

    def _pools(self) -> list[WorkerPool]:
        if self._running is None:
            return []
        return [self._running.builders, *(slot.pool for slot in self._running.slots)]

    def _wanted(self, found: int) -> int:
        """Number of servers to have, of those that there are."""
        return min(found, self._options.servers or found)

    def _add_slots(self, wanted: int) -> None:
        running = self._started
        while len(running.slots) < wanted:
            name = f"{self._options.key}/{len(running.slots) + 1}"
            slot = ServerSlot(name, self._boot, make_private_folder())
            slot.pool = worker_pool(
                self._context, self._options, slot.folder, running.store, slot.greeting
            )
            for task, message in running.builders.told():
                slot.pool.tell(task, message)
            running.slots.append(slot)
            slot.start()

    def _take_builds(self) -> None:
        for reply in self._started.builders.poll(0.0):
            self._building.discard(reply.number)
            self._ledger.answer(reply.number, evolve(reply, place=NOWHERE))

    def _attend(self, slot: ServerSlot) -> None:
        """Take in what a server's process has said, or that there is none any more."""
        before = slot.place
        for reply in slot.poll():
            self._ledger.answer(reply.number, reply)
        if slot.place != before:
            self._leases.drop(slot.name)
        if slot.gone and slot.retry_at <= time.monotonic():
            if not slot.retry_at:
                self._warnings.append(f"machine {slot.name} of runner 'rpc' is gone: {slot.gone}")
            slot.retry_at = time.monotonic() + _LOOK_SECONDS
        if slot.is_up:
            slot.retry_at = 0.0
            self._last_seen = time.monotonic()

    def _join(self, slot: ServerSlot) -> None:
        """Have a server take part once it is known how fast its machine is when it is quiet."""
        if slot.fingerprint is not None or slot.machine is None or not slot.is_up:
            return
        if slot.joining is None:
            if self._is_quiet_beside(slot):
                slot.joining = self._ask_speed(slot)
        elif slot.joining.done():
            body, slot.joining = slot.joining.result().body, None
            if "seconds" in body:
                slot.machine = evolve(slot.machine, reference_seconds=float(body["seconds"]))
                slot.fingerprint = self._fingerprint(slot.machine)
                self._joined_first = self._joined_first or time.monotonic()

    def _is_quiet_beside(self, slot: ServerSlot) -> bool:
        """Return whether nothing that was started here keeps its machine from its usual speed."""
        running = self._started
        others = [other for other in running.slots if other is not slot]
        if any(other.joining is not None for other in others):
            return False
        if not slot.host:
            return True
        settled = not any(other.is_starting for other in others)
        idle = not self._building and not any(other.jobs for other in others)
        return settled and idle and running.builders.is_ready

    def _fingerprint(self, machine: RemoteMachine) -> Fingerprint:
        context = self._context
        compiler = f"{TVMBackend.version} {TVMBackend().compiler_version()}"
        return Fingerprint(
            device=f"{machine.device} ({machine.architecture})",
            cores=context.threads,
            driver=machine.kernel,
            compiler=f"{compiler}; server: {machine.runtime or 'unknown'}",
            protocol=context.protocol.identity,
            reference_seconds=machine.reference_seconds,
            clocks=f"{machine.clocks} MHz" if machine.clocks else "",
        )

    def _require_servers(self) -> None:
        """Raise where none of the servers of the beginning has joined.

        Raises:
            WorkerStartFailed: says why the last one has not.
        """
        slots = self._started.slots
        if self._joined_first is None and all(slot.gone for slot in slots):
            raise WorkerStartFailed(slots[-1].gone)

    def _look_for_servers(self) -> None:
        """Use servers that have come, and try again where one was lost.

        Raises:
            WorkerStartFailed: there has been none for too long.
        """
        slots, now = self._started.slots, time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        lost = [slot for slot in slots if slot.gone]
        if any(slot.jobs for slot in slots):
            return
        try:
            with Tracker(self._options.address, 1.0) as tracker:
                servers = tracker.servers(self._options.key)
        except TrackerError as error:
            self._say_once(f"{error}; what has a server goes on")
            for slot in lost:
                slot.gone = str(error)
        else:
            for slot in lost[: servers.free]:
                slot.start()
            self._add_slots(self._wanted(len(servers.servers)))
        most = self._options.session_timeout + _MOST_SECONDS_WITHOUT
        if all(slot.gone for slot in slots) and now - self._last_seen > most:
            raise WorkerStartFailed(f"no RPC server for {most:.0f} s: {slots[-1].gone}")

    def _say_once(self, warning: str) -> None:
        if warning not in self._warnings:
            self._warnings.append(warning)

    def _wait(self, seconds: float) -> None:
        """Until a process has said something."""
        processes = [process for pool in self._pools() for process in pool.awaited()]
        if processes:
            select.select(processes, [], [], seconds)
        else:
            time.sleep(seconds)


def make_rpc_engine(context: RunnerContext) -> RPCEngine:
    """The runner ``rpc`` of a run.

    Raises:
        InvalidValueError: an option is unknown, missing, or makes no sense.
    """
    return RPCEngine(context)


def _end(slots: Sequence[ServerSlot]) -> None:
    for slot in slots:
        slot.finish(_FINISHING_SECONDS)
        slot.end("it is over")
        slot.folder.remove()


_BACKENDS = {
    TVMBackend.name: "autotune_tvm.rpc.backend:RPCBackend",
    NativeBackend.name: "autotune_tvm.rpc.native:NativeRPCBackend",
}
_BUILDER, _HOLDER = "autotune.measure.worker", "autotune_tvm.rpc.worker"


def worker_pool(
    context: RunnerContext,
    options: RPCOptions,
    folder: PrivateFolder,
    store: ArtefactStore,
    hello: Callable[[int], Message] | None = None,
    *,
    workers: int = 1,
) -> WorkerPool:
    """Processes that build, or that hold sessions with servers; not started.

    Args:
        context: Of the runner.
        options: Of the runner.
        folder: For temporary files.
        store: What builds make, and what jobs need.
        hello: What else is in the first message to a process that holds a session; None for
            processes that build.
        workers: How many.
    """
    holds = hello is not None
    told = {"artefacts": str(store.folder), "only_times": holds, "threads": context.threads}
    environment = TVMBackend().worker_environment(context.threads)
    return WorkerPool(
        _BACKENDS[context.backend],
        context.threads,
        {**environment, **options.environment()},
        workers=workers,
        deadlines=context.protocol.deadlines,
        memory_bytes=context.protocol.memory_bytes,
        folder=folder,
        hello=lambda index: {**told, **(hello(index) if hello is not None else {})},
        module=_HOLDER if holds else _BUILDER,
    )


def check_context(context: RunnerContext) -> None:
    """Refuse what servers cannot do.

    Raises:
        InvalidValueError: says what that is.
        UnsupportedTarget: nothing can be built for the target.
    """
    if context.backend not in _BACKENDS:
        raise InvalidValueError(
            f"runner 'rpc' sends programs of backends {' and '.join(map(repr, _BACKENDS))} to "
            f"TVM's servers, not those of {context.backend!r}"
        )
    if context.target.kind != "cpu":
        raise UnsupportedTarget(
            f"runner 'rpc' runs programs on CPUs only so far; target {context.target.name!r} is "
            f"of kind {context.target.kind!r}"
        )
    backend = TVMBackend() if context.backend == TVMBackend.name else NativeBackend()
    backend.check_target(context.target)
    if context.protocol.cold:
        raise InvalidValueError(
            "runner 'rpc' does not empty the caches of servers: measure warm, without cold=true"
        )
    if context.observers:
        raise InvalidValueError(
            f"observers ({', '.join(context.observers)}) read counters of this machine, and "
            "programs of runner 'rpc' do not run on it"
        )


def boot_of_this_host() -> str:
    """Identity of this host as it runs now, as servers on it say, too; "" if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
