"""The runner ``rpc``: builds here, and times on machines that run only TVM's RPC server."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from attrs import evolve

from autotune.backends.native import NativeBackend
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.measure.engines import (
    ArtefactStore,
    Fingerprint,
    Machine,
    Reply,
    Role,
    RunnerContext,
)
from autotune.measure.engines.local_engine import ThisMachine
from autotune.measure.engines.supervised import Member, Node, SupervisedEngine
from autotune.measure.engines.supervisor import Notify, Supervisor, SupervisorSetup
from autotune.measure.pinning import timing_cpus
from autotune.measure.pool import WorkerPool
from autotune.process.channel import Message
from autotune.process.errors import TimeIsOver, WorkerStartFailed
from autotune.process.memory import affordable_workers
from autotune.process.private_folder import PrivateFolder
from autotune.process.timing_lock import TimingLock
from autotune_tvm.backend import TVMBackend
from autotune_tvm.rpc.machine import RemoteMachine
from autotune_tvm.rpc.options import RPCOptions, read_rpc_options
from autotune_tvm.rpc.toolchain import Toolchain
from autotune_tvm.rpc.tracker import Tracker, TrackerError

__all__ = ["RPCEngine"]

_WORKER_BYTES = 1 << 30
_SENDING = ("task", "load")
# For what a process is at when it is not needed any more: its server survives the end then.
_FINISHING_SECONDS = 2.0
# How often to ask the tracker for servers that have come, or come back.
_LOOK_SECONDS = 5.0
_PATIENCE = 5.0
# How long the first server that has joined waits for the others.
_GATHERING_SECONDS = 5.0
# How long to go on without a single server, beyond what a session may last: as long as that a
# program which hangs may keep its server.
_MOST_SECONDS_WITHOUT = 60.0
_BACKENDS = {
    TVMBackend.name: "autotune_tvm.rpc.backend:RPCBackend",
    NativeBackend.name: "autotune_tvm.rpc.native:NativeRPCBackend",
}


class ServerPool(WorkerPool):
    """The process that holds the session with a server, and is let finish what it is at.

    A server whose client is killed between a request and its answer serves no more.
    """

    def cancel(self) -> None:
        self._finish()
        super().cancel()

    def close(self) -> None:
        self._finish()
        super().close()

    def _finish(self) -> None:
        """Wait for a while until the process is at nothing; replies are dropped."""
        end = time.monotonic() + _FINISHING_SECONDS
        while (self.awaited() or not self.idle) and (left := end - time.monotonic()) > 0:
            try:
                self.poll(left)
            except (WorkerStartFailed, TimeIsOver):
                return


class ServerSupervisor(Supervisor):
    """Processes that build for servers, or the one that holds the session with a server.

    Args:
        setup: As of other supervisors.
        notify: As of other supervisors.
        servers: Options, and what is known of the servers.
        name: Of the machine.
    """

    def __init__(
        self, setup: SupervisorSetup, notify: Notify, servers: RPCServers, name: str
    ) -> None:
        self._servers = servers
        self._name = name
        super().__init__(setup, notify)

    def _make_pool(self, folder: PrivateFolder) -> WorkerPool:
        setup = self._setup
        told = {"artefacts": setup.store, "only_times": setup.times, "threads": setup.threads}
        environment = TVMBackend().worker_environment(setup.threads)
        return (ServerPool if setup.times else WorkerPool)(
            _BACKENDS[setup.backend],
            setup.threads,
            {**environment, **self._servers.options.environment()},
            workers=setup.workers,
            deadlines=setup.deadlines,
            memory_bytes=setup.memory_bytes,
            folder=folder,
            hello=lambda _index: {**told, "expected": self._expected},
            module="autotune_tvm.rpc.worker" if setup.times else "autotune.measure.worker",
        )

    @property
    def _expected(self) -> Message | None:
        """Machine that its server has to be like, if there was one before."""
        known = self._servers.known.get(self._name)
        return None if known is None else known.to_json()

    @property
    def _processes(self) -> Message:
        found = super()._processes
        # One that was replaced has yet to get a server.
        return {**found, "ready": self._pool.is_ready} if self._setup.times else found

    def _identity(self) -> tuple[str, Fingerprint]:
        group, found = super()._identity()
        if not self._setup.times:
            return group, found
        machine = RemoteMachine.from_json(self._pool.versions["machine"])
        self._servers.known.setdefault(self._name, machine)
        compiler = f"{TVMBackend.version} {TVMBackend().compiler_version()}"
        fingerprint = Fingerprint(
            device=f"{machine.device} ({machine.architecture})",
            cores=self._setup.threads,
            driver=machine.kernel,
            compiler=f"{compiler}; server: {machine.runtime or 'unknown'}",
            protocol=self._setup.protocol,
            clocks=f"{machine.clocks} MHz" if machine.clocks else "",
        )
        return machine.lease_group, fingerprint

    def _take_reply(self, reply: Reply) -> None:
        known = self._servers.known.get(self._name)
        if known is not None and "seconds" in reply.body:
            least = min(known.reference_seconds, float(reply.body["seconds"]))
            self._servers.known[self._name] = evolve(known, reference_seconds=least)
        # Nothing of the program runs while it is sent: what ends then is the way to the server.
        is_lost = reply.kind in ("died", "timeout") and reply.phase in _SENDING
        super()._take_reply(evolve(reply, kind="lost") if is_lost and known else reply)

    def _why(self, error: Exception) -> str:
        """Reason that a process gave, without the names of classes that only we know."""
        text: Any = str(error)
        for sign in ("TrackerError: ", "ProgramFailed: ", "ServerLost: "):
            text = text.rpartition(sign)[2]
        return str(text)


class RPCServers(ThisMachine):
    """This machine, which builds, and the servers of one key of a tracker.

    Args:
        threads: Threads that programs run on.
        options: Options of the runner.

    Attributes:
        known: The machine of each server that was greeted, by name.
    """

    name = "rpc"

    def __init__(self, threads: int, options: RPCOptions) -> None:
        super().__init__()
        self.options = options
        self.known: dict[str, RemoteMachine] = {}
        self._threads = threads
        self._wanted = 0

    def connect(self) -> None:
        """Find the servers.

        Raises:
            WorkerStartFailed: there is no tracker, or none of the servers; says why.
        """
        self._wanted = 0
        try:
            self.look(_PATIENCE)
        except TrackerError as error:
            raise WorkerStartFailed(str(error)) from error

    def look(self, patience: float) -> int:
        """Ask the tracker for servers; returns how many are free.

        Raises:
            TrackerError: there is no tracker, or no server.
        """
        with Tracker(self.options.address, patience) as tracker:
            found = tracker.servers(self.options.key)
        count = len(found.servers)
        self._wanted = max(self._wanted, min(count, self.options.servers or count))
        return found.free

    def nodes(self) -> Sequence[Node]:
        names = [f"{self.options.key}/{number + 1}" for number in range(self._wanted)]
        [here] = super().nodes()
        builds, times = frozenset[Role](("build",)), frozenset[Role](("time",))
        return [
            evolve(here, roles=builds),
            *(Node(name, self._threads, roles=times) for name in names),
        ]

    def _make_supervisor(self, node: Node, setup: SupervisorSetup, notify: Notify) -> Supervisor:
        return ServerSupervisor(setup, notify, self, node.name)


class RPCEngine(SupervisedEngine):
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

    def __init__(self, context: RunnerContext) -> None:
        options = read_rpc_options(context.options)
        check_context(context)
        Toolchain(options.cc).check()
        self._servers = RPCServers(context.threads, options)
        builders = affordable_workers(len(os.sched_getaffinity(0)), _WORKER_BYTES)
        super().__init__(context, self._servers, builders=builders)
        # Servers on this host choose the CPUs that programs of this host would be timed on.
        self._leases.lock = TimingLock(timing_cpus(context.threads)[0])
        self._looked = self._last_seen = time.monotonic()
        self._gathered = False
        self._joined_first: float | None = None

    def start(self, artefacts: ArtefactStore) -> None:
        if not self.is_running:
            self._looked = self._last_seen = time.monotonic()
            self._gathered, self._joined_first = False, None
        super().start(artefacts)

    def machines(self) -> Sequence[Machine]:
        return super().machines() if self._have_gathered() else []

    @property
    def _holders(self) -> list[Member]:
        return [it for _, it in sorted(self._members.items()) if it.setup.times]

    def _have_gathered(self) -> bool:
        """Return whether the servers of the beginning have joined, or been waited for long enough.

        A race takes the machines that most are like.
        """
        if not self._gathered and self.is_running:
            since = self._joined_first
            is_late = since is not None and time.monotonic() - since > _GATHERING_SECONDS
            self._gathered = is_late or all(it.is_ready or not it.handle for it in self._holders)
        return self._gathered

    def _may_start(self, member: Member, now: float) -> bool:
        # The tracker says when a server is back.
        return not member.epoch if member.setup.times else super()._may_start(member, now)

    def _is_given_up(self, member: Member) -> bool:
        return not member.setup.times and super()._is_given_up(member)

    def _look_at_nodes(self) -> None:
        """Use servers that have come, and try again where one was lost.

        Raises:
            WorkerStartFailed: none of the servers of the beginning has joined, and the last one
                has not because of this; or there has been none for too long.
        """
        self._look_for_servers()
        super()._look_at_nodes()
        holders, now = self._holders, time.monotonic()
        if any(it.is_up for it in holders):
            self._last_seen = now
        if self._joined_first is None and any(it.is_ready for it in holders):
            self._joined_first = now
        if any(it.handle for it in holders):
            return
        if self._joined_first is None:
            raise WorkerStartFailed(holders[-1].why)
        most = self._servers.options.session_timeout + _MOST_SECONDS_WITHOUT
        if now - self._last_seen > most:
            raise WorkerStartFailed(f"no RPC server for {most:.0f} s: {holders[-1].why}")

    def _look_for_servers(self) -> None:
        holders, now = self._holders, time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        if any(it.jobs for it in holders):
            return
        lost = [it for it in holders if it.handle is None]
        try:
            free = self._servers.look(1.0)
        except TrackerError as error:
            self._warn(f"{error}; what has a server goes on")
            for member in lost:
                member.why = str(error)
        else:
            for member in lost[:free]:
                self._supervise(member, now)


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
