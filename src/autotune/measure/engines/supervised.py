"""Machines with supervisors behind the contract of engines."""

from __future__ import annotations

import os
import time
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Protocol

from attrs import define, evolve, field, frozen

from autotune.backends import Backend
from autotune.measure.engines.artefacts import ArtefactStore, DamagedArtefact
from autotune.measure.engines.fingerprint import Fingerprint
from autotune.measure.engines.interface import (
    Lease,
    Machine,
    MeasureEngine,
    Role,
    RunnerContext,
)
from autotune.measure.engines.ledger import JobLedger, LeaseTable
from autotune.measure.engines.supervisor import SupervisorSetup, decoded, host_identity
from autotune.measure.jobs import NOWHERE, Job, Place, Reply
from autotune.plugins.guarded_parts import create_held_part
from autotune.process.channel import ATTACHMENTS, Message, encode
from autotune.process.errors import WorkerStartFailed

__all__ = ["Cluster", "Node", "OnEvent", "Supervised", "SupervisedEngine"]

# Builds before each process: a lease waits for what has begun, and it should not wait long.
_AHEAD = 2
# A supervisor ends what is late by itself; this much later, it is not to be reached.
_GRACE_SECONDS = 10.0
_POLL_SECONDS, _LOOK_SECONDS = 0.05, 0.25
_SLOW_START_SECONDS = 30.0
# How long builds of a host are held back after somebody has asked for a lease.
_WISH_SECONDS = 1.0
# Supervisors of one machine that may end in a row before they are ready, and the rest after each.
_MOST_FAILURES, _REST_SECONDS = 3, 1.0

OnEvent = Callable[[bytes, str], None]
"""Called on any thread with what :meth:`Supervisor.take` gave, or with why nothing more comes."""


@frozen
class Node:
    """A node that takes part now.

    Attributes:
        name: Unique, and the same as long as it takes part.
        cpus: Processors that it offers.
        gpus: GPUs that it offers.
        gpu_model: What they are; "" where that is not known.
        roles: What it is for.
    """

    name: str
    cpus: int
    gpus: int = 0
    gpu_model: str = ""
    roles: frozenset[Role] = frozenset(("build", "time"))


class Supervised(Protocol):
    """The host's handle of one supervisor."""

    def send(self, command: bytes, contents: Sequence[object]) -> None:
        """See :meth:`Supervisor.send`; contents are what :meth:`Cluster.put` gave."""

    def kill(self) -> None:
        """End it with all that it has started. It is not waited for."""


class Cluster(Protocol):
    """Nodes, and what starts supervisors there. No supervisor is started or asked again.

    Attributes:
        is_here: Whether supervisors are in this process, and use the host's store.
    """

    name: str
    is_here: bool

    def connect(self) -> None:
        """Join.

        Raises:
            WorkerStartFailed: there is no such cluster; says what was tried.
        """

    def nodes(self) -> Sequence[Node]:
        """Nodes that take part now; returns at once.

        Raises:
            WorkerStartFailed: the cluster is gone.
        """

    def supervise(
        self, node: Node, setup: SupervisorSetup, cpus: int, gpus: int, on_event: OnEvent
    ) -> Supervised:
        """Start a supervisor on a node, and return at once.

        Args:
            node: Where.
            setup: What it is made for.
            cpus: Processors that nothing else of the cluster gets meanwhile.
            gpus: GPUs, likewise.
            on_event: Told what happens, at least every few seconds.
        """

    def put(self, content: bytes) -> object:
        """Have a content ready to be sent any number of times."""

    def close(self) -> None:
        """Leave."""


@define(eq=False)
class Member:
    """A supervisor, and those that have taken its place since.

    Attributes:
        name: Of the machine.
        node: Where it is.
        setup: What it is made for.
        handle: The supervisor; None while there is none.
        epoch: Names this supervisor among all of the engine.
        base: Incarnation of its first timing process.
        status: What it said last of its workers.
        jobs: What it has before it: the number of each job, and when it is given up.
        heard: When it said something last.
        reference: Seconds of the reference program when it joined; None before.
        asked: The reply with them, while that is waited for.
        drift: See :class:`Machine`.
        why: Why there is no supervisor any more.
        failures: How many supervisors in a row have ended before they were ready.
        rests_until: When the next one may be started.
    """

    name: str
    node: Node
    setup: SupervisorSetup
    handle: Supervised | None = None
    epoch: int = 0
    base: int = 0
    status: Message = field(factory=dict)
    jobs: dict[int, float] = field(factory=dict)
    heard: float = 0.0
    reference: float | None = None
    asked: Future[Reply] | None = None
    drift: float = 1.0
    why: str = ""
    failures: int = 0
    rests_until: float = 0.0
    _sequence: int = 0

    @property
    def is_up(self) -> bool:
        """True if its processes do."""
        return self.handle is not None and bool(self.status.get("ready"))

    @property
    def is_ready(self) -> bool:
        """True if it takes jobs of others than this engine."""
        return self.is_up and not (self.setup.times and self.reference is None)

    @property
    def host(self) -> str:
        """Host that it is on, where builds disturb what times; "" where that is not known yet."""
        return str(self.status.get("group", ""))

    @property
    def group(self) -> str:
        """Names what it shares with others."""
        # GPUs of one host time at the same time; builds of that host disturb neither of them.
        return f"{self.host} {self.name}" if self.setup.times and self.setup.device else self.host

    @property
    def generation(self) -> int:
        """Number of times that the first process of this supervisor has been replaced."""
        return int(self.status.get("generation", 0))

    @property
    def place(self) -> Place:
        """See :class:`Machine`."""
        return self.name, self.base + self.generation

    @property
    def fingerprint(self) -> Fingerprint | None:
        """Of what times; None before it has joined."""
        found = self.status.get("fingerprint")
        if not found or self.reference is None:
            return None
        return Fingerprint(**{**found, "reference_seconds": self.reference})

    def begin(self, handle: Supervised, epoch: int, now: float) -> None:
        """Have another supervisor from now on."""
        self.base += self.generation + 1 if self.epoch else 0
        self.handle, self.epoch, self.heard = handle, epoch, now
        self.status, self._sequence, self.drift = {}, 0, 1.0
        self.reference = self.asked = None

    def send(self, message: Message, contents: Mapping[str, object]) -> None:
        """Command something.

        Args:
            message: What to do.
            contents: What the cluster has for each artefact that it needs.
        """
        if self.handle is None:
            return
        command = {**message, "sequence": self._sequence, "artefacts": list(contents)}
        self._sequence += 1
        self.handle.send(encode(command), list(contents.values()))

    def machine(self) -> Machine:
        """Machine as which it takes part."""
        return Machine(
            self.name,
            frozenset(("time",) if self.setup.times else ("build",)),
            self.fingerprint,
            slots=self.setup.workers,
            lease_group=self.group,
            load=len(self.jobs),
            incarnation=self.place[1],
            drift=self.drift,
        )


class SupervisedEngine(MeasureEngine):
    """Machines of a cluster, on each of which a supervisor has isolated workers.

    On each node one supervisor builds, and one per device times, which has it for itself; what
    shares a host shares one timing lease. Builds wait in a queue, as nothing builds on a host
    while there is a lease to time there: those that have begun end first, and no other begins.

    Args:
        context: Backend, threads and protocol.
        cluster: Carries messages.
        builders: Processes that build on each node; 0 for one per processor that it offers.
        timers: Most machines that time; 0 for all.
        silence: Seconds after which a supervisor that sends nothing is given up. One of this
            process never falls silent; one that hangs is late with a job.
    """

    def __init__(
        self,
        context: RunnerContext,
        cluster: Cluster,
        *,
        builders: int = 0,
        timers: int = 0,
        silence: float = 30.0,
    ) -> None:
        self.name = cluster.name
        self._context = context
        self._backend: Backend = create_held_part("backend", context.backend)
        self._ledger = JobLedger(self.name)
        self._leases = LeaseTable(here=host_identity())
        # By priority and number.
        self._queue: list[tuple[int, int, Job]] = []
        self._wishes: dict[str, float] = {}
        self._cluster = cluster
        self._silence = silence
        # What each supervisor said, by its epoch; as of OnEvent.
        self._events: SimpleQueue[tuple[int, bytes, str]] = SimpleQueue()
        self._builders = builders
        self._timers = timers
        self._members: dict[str, Member] = {}
        self._warnings: dict[str, bool] = {}
        self._cancelled: set[int] = set()
        # Setup messages of tasks, each with what the cluster has of the artefacts.
        self._told: dict[str, list[tuple[Message, Mapping[str, object]]]] = {}
        self._store: ArtefactStore | None = None
        self._epochs = 0
        self._next_look = 0.0

    @property
    def is_running(self) -> bool:
        """True if it has been started, and not closed since."""
        return self._store is not None

    @property
    def simulates(self) -> bool:
        return self._backend.simulated_times

    @property
    def versions(self) -> Mapping[str, str]:
        ready = sorted(self._ready, key=lambda it: it.setup.times)
        return dict(ready[0].status["versions"]) if ready else {}

    @property
    def pids(self) -> Mapping[str, Sequence[int]]:
        """Process ids of each machine's workers there, the supervisor's first."""
        return {it.name: [it.status["supervisor"], *it.status["pids"]] for it in self._ready}

    def start(self, artefacts: ArtefactStore) -> None:
        if self._store is not None:
            return
        self._cluster.connect()
        self._store = artefacts
        self._next_look = 0.0
        self._look_at_nodes()

    def machines(self) -> Sequence[Machine]:
        if self._store is None:
            return []
        return [it.machine() for it in self._ready]

    def tell(
        self, task: str, message: Message, artefacts: Sequence[str] = (), *, replace: bool = False
    ) -> None:
        contents = self._contents(artefacts)
        if replace:
            self._told[task] = []
        self._told.setdefault(task, []).append((message, contents))
        command = {"do": "tell", "task": task, "message": message, "replace": replace}
        for member in self._members.values():
            # What only builds reads no arrays.
            member.send(command, contents if member.setup.times else {})

    def release(self, task: str) -> None:
        if self._told.pop(task, None) is not None:
            for member in self._members.values():
                member.send({"do": "release", "task": task}, {})

    def take_warnings(self) -> list[str]:
        new = [message for message, taken in self._warnings.items() if not taken]
        self._warnings.update(dict.fromkeys(new, True))
        return [*new, *self._leases.take_warnings(), *self._ledger.take_warnings()]

    def submit(self, job: Job) -> Future[Reply]:
        number, future = self._ledger.open()
        job = evolve(job, number=number)
        timer = None if job.place is None else self._timer(str(job.place[0]))
        if self.is_running and job.place is None:
            insort(self._queue, (-job.priority, number, job))
            self._hand_out()
        elif timer is None or timer.place != job.place or not self._leases.renew(timer.name):
            self._ledger.answer(number, Reply("again", job.place or NOWHERE))
        else:
            self._send_job(timer, job, timer.generation)
        return future

    def poll(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.is_running:
            self._leases.tend()
            self._hand_out()
            self._look_at_nodes()
            self._take_events(min(max(0.0, end - time.monotonic()), _POLL_SECONDS))
            for _, member in sorted(self._members.items()):
                self._join(member)
            self._give_up_the_silent()
            if self._ledger.deliver() or time.monotonic() >= end:
                return
        self._ledger.deliver()

    def lease(self, machine: str, seconds: float) -> Lease | None:
        timer = self._timer(machine)
        if timer is None:
            return None
        self._wishes[timer.host] = time.monotonic()
        if any(it.jobs for it in self._ready if it.host == timer.host and not it.setup.times):
            return None
        token = self._leases.acquire(timer.group, machine, seconds, timer.host)
        return None if token is None else Lease(self, machine, token)

    def holds_lease(self, lease: Lease) -> bool:
        return self._leases.holds(lease.token)

    def release_lease(self, lease: Lease) -> None:
        self._leases.release(lease.token)
        self._wishes.clear()

    def cancel(self) -> None:
        for member in self._members.values():
            if member.jobs:
                self._cancelled.update(member.jobs)
                member.jobs.clear()
                member.send({"do": "cancel"}, {})
        self._forget_jobs()

    def check_speed(self, machine: str) -> float | None:
        timer = self._timer(machine)
        if timer is None or timer.reference is None or self.simulates:
            return None
        asked = self._ask_speed(timer)
        while not asked.done():
            self.poll(_POLL_SECONDS)
        seconds = asked.result().body.get("seconds")
        if seconds is None:
            return None
        timer.drift = float(seconds) / timer.reference
        return float(seconds)

    def close(self) -> None:
        if not self.is_running:
            return
        self._leases.clear()
        self._store = None
        for member in self._members.values():
            if member.handle is not None:
                member.handle.kill()
        self._members.clear()
        self._told.clear()
        self._cluster.close()
        self._forget_jobs()

    def _forget_jobs(self) -> None:
        self._queue.clear()
        self._wishes.clear()
        self._ledger.give_back_all()

    @property
    def _ready(self) -> list[Member]:
        """Members that take jobs, by name."""
        return [it for _, it in sorted(self._members.items()) if it.is_ready]

    def _timer(self, machine: str) -> Member | None:
        member = self._members.get(machine)
        times = member is not None and member.setup.times and member.is_ready
        return member if times else None

    def _ask_speed(self, timer: Member) -> Future[Reply]:
        """Have the reference program timed; whoever calls has a lease, or it is not needed."""
        number, future = self._ledger.open()
        run = {"run": self._context.protocol.deadlines["run"]}
        job = Job({"op": "speed"}, run, timer.place, number=number)
        self._send_job(timer, job, timer.generation)
        return future

    def _join(self, member: Member) -> None:
        """Have a machine take part once it is known how fast it is when it is quiet."""
        if not (member.setup.times and member.is_up) or member.reference is not None:
            return
        if self.simulates:
            member.reference = 0.0
        elif member.asked is None:
            beside = self._beside(member)
            if all(it.is_up for it in beside) and not any(it.jobs for it in beside):
                member.asked = self._ask_speed(member)
        elif member.asked.done():
            seconds = member.asked.result().body.get("seconds")
            member.asked = None
            if seconds is not None:
                member.reference = float(seconds)

    def _beside(self, member: Member) -> list[Member]:
        """Members that have something to do on the host of one, or may turn out to."""
        is_here = self._cluster.is_here and member.host == self._leases.here
        return [
            it
            for it in self._members.values()
            if it is not member
            and it.handle is not None
            and it.status
            and (it.node == member.node or it.host == member.host or is_here and not it.host)
        ]

    def _is_quiet(self, host: str) -> bool:
        """Return whether nothing may be built on a host now."""
        wished = self._wishes.get(host, float("-inf"))
        return (
            time.monotonic() - wished < _WISH_SECONDS
            or self._leases.is_timed(host)
            or any(
                it.host == host
                and it.setup.times
                and it.is_up
                and not it.is_ready
                and all(other.is_up for other in self._beside(it))
                for it in self._members.values()
            )
        )

    def _hand_out(self) -> None:
        while self._queue and self._give_build(self._queue[0][2]):
            self._queue.pop(0)

    @property
    def _started(self) -> ArtefactStore:
        if self._store is None:
            raise WorkerStartFailed(f"runner {self.name!r} has not been started, or was closed")
        return self._store

    def _look_at_nodes(self) -> None:
        """Take in nodes that have come, and give up those that have gone.

        Raises:
            WorkerStartFailed: no supervisor is left that could be started again.
        """
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        nodes = sorted(self._cluster.nodes(), key=lambda it: it.name)
        names = [node.name for node in nodes]
        for name, member in sorted(self._members.items()):
            if member.node.name not in names:
                self._lose(member, "its node has left the cluster")
                del self._members[name]
        for node in nodes:
            self._admit(node)
        members = [it for _, it in sorted(self._members.items())]
        if nodes and not members:
            self._warn(
                f"no node of {self._cluster.name!r} offers a processor or a GPU so far; nodes: "
                f"{', '.join(names)}"
            )
        # No node comes that would do instead of this machine.
        lacks = any if self._cluster.is_here else all
        if members and lacks(self._is_given_up(it) for it in members):
            raise WorkerStartFailed("; ".join(self._warnings))
        for member in members:
            if member.handle is None and self._may_start(member, now):
                self._supervise(member, now)

    def _may_start(self, member: Member, now: float) -> bool:
        """Return whether another supervisor is started for a member without any."""
        return not self._is_given_up(member) and now >= member.rests_until

    def _is_given_up(self, member: Member) -> bool:
        """Return whether no other supervisor is ever started for a member."""
        return member.failures >= _MOST_FAILURES

    def _supervise(self, member: Member, now: float) -> None:
        """Start a supervisor for a member, and tell it of all tasks."""
        self._epochs += 1
        epoch, times = self._epochs, member.setup.times
        gpus = 1 if times and member.setup.device else 0
        # What times owns all processors of its node, so that nothing else is run or timed there;
        # builds take none from it, as they are held back meanwhile.
        cpus = member.node.cpus if times and not gpus else 0

        def on_event(data: bytes, end: str) -> None:
            # On any thread.
            self._events.put((epoch, data, end))

        handle = self._cluster.supervise(member.node, member.setup, cpus, gpus, on_event)
        member.begin(handle, epoch, now)
        for task, told in self._told.items():
            for message, contents in told:
                command = {"do": "tell", "task": task, "message": message, "replace": False}
                member.send(command, contents if times else {})

    def _give_build(self, job: Job) -> bool:
        """Give a build to a process, unless none has room for it where building is allowed."""
        free = [
            it
            for it in self._ready
            if not it.setup.times
            and len(it.jobs) < _AHEAD * it.setup.workers
            and not self._is_quiet(it.host)
        ]
        if not free:
            return False
        member = min(free, key=lambda it: len(it.jobs) / it.setup.workers)
        self._send_job(member, job, None)
        return True

    def _send_job(self, member: Member, job: Job, generation: int | None) -> None:
        try:
            # Checked here: what has been damaged since must not get to where a good copy was.
            contents = self._contents(job.artefacts)
        except DamagedArtefact as error:
            message = f"{type(error).__name__}: {error}"
            self._ledger.answer(job.number, Reply("failed", member.place, message=message))
            return
        before = max([time.monotonic(), *member.jobs.values()])
        enough = sum(job.deadlines.values()) + sum(member.setup.deadlines.values())
        member.jobs[job.number] = before + enough + _GRACE_SECONDS
        command = {
            "do": "job",
            "number": job.number,
            "message": job.message,
            "deadlines": dict(job.deadlines),
            "generation": generation,
        }
        member.send(command, contents)

    def _contents(self, artefacts: Sequence[str]) -> dict[str, object]:
        """The cluster's handles of artefacts; supervisors of this process find them themselves."""
        store = self._started
        if self._cluster.is_here:
            return {}
        return {it: self._cluster.put(store.content(it)) for it in artefacts}

    def _take_events(self, seconds: float) -> None:
        try:
            event = self._events.get(timeout=seconds) if seconds else self._events.get_nowait()
            while True:
                self._take(*event)
                event = self._events.get_nowait()
        except Empty:
            return

    def _take(self, epoch: int, data: bytes, end: str) -> None:
        alive = (it for it in self._members.values() if it.handle is not None)
        member = next((it for it in alive if it.epoch == epoch), None)
        if end:
            if member is not None:
                self._lose(member, end)
            return
        message = decoded(data)
        contents = iter(message.get(ATTACHMENTS, ()))
        if member is not None:
            self._take_status(member, message["status"])
        for reply in message["replies"]:
            content = next(contents) if reply["has_content"] else None
            self._take_reply(member, reply, content)

    def _take_status(self, member: Member, status: Message) -> None:
        member.heard = time.monotonic()
        if "failure" in status:
            self._lose(member, status["failure"])
            return
        member.status = status
        if not member.is_up:
            self._leases.drop(member.name)
            return
        member.failures = 0
        niceness, mine = status["niceness"], os.getpriority(os.PRIO_PROCESS, 0)
        if member.setup.times and niceness > mine:
            self._warn(
                f"machine {member.name!r} gives way to others while it times (niceness "
                f"{niceness}, here {mine}): start its node with RAY_worker_niceness=0 in the "
                "environment"
            )

    def _take_reply(self, member: Member | None, reply: Message, content: bytes | None) -> None:
        number = reply["number"]
        if number in self._cancelled:
            self._cancelled.discard(number)
            return
        if member is None or number not in member.jobs:
            # Of a supervisor that has been given up, or a second one.
            self._ledger.drop()
            return
        del member.jobs[number]
        # A process that answered with an end has been replaced; the status may come later.
        kind, message = reply["kind"], reply["message"]
        if content is not None:
            kind, message = self._keep(reply["body"]["artefact"], content, kind, message)
        place = member.name, member.base + reply["generation"]
        phase, seconds, body = (reply[key] for key in ("phase", "seconds", "body"))
        self._ledger.answer(number, Reply(kind, place, phase, seconds, body, message))

    def _keep(self, digest: str, content: bytes, kind: str, message: str) -> tuple[str, str]:
        """Put what was built into the host's store; how the job ended then."""
        store = self._started
        try:
            if store.has(digest):
                store.path(digest)
        except DamagedArtefact:
            store.remove(digest)
        try:
            store.receive(digest, content)
        except DamagedArtefact as error:
            return "lost", str(error)
        return kind, message

    def _give_up_the_silent(self) -> None:
        now = time.monotonic()
        for _, member in sorted(self._members.items()):
            if member.handle is None:
                continue
            if member.jobs and now > next(iter(member.jobs.values())):
                self._lose(member, "it did not end a job that was late")
            elif self._cluster.is_here:
                continue
            elif not member.status:
                # What owns a device or a node begins once that is free, however long that takes.
                if now - member.heard > _SLOW_START_SECONDS:
                    what = "GPU" if member.setup.device else "processors"
                    self._warn(
                        f"machine {member.name!r} has not started for {_SLOW_START_SECONDS:g} s: "
                        f"it waits for the {what} of its node, which another run or another user "
                        "of the cluster has"
                    )
            else:
                limit = self._silence if member.is_up else member.setup.deadlines["start"]
                if now - member.heard > limit:
                    self._lose(member, f"it said nothing for {limit:g} s")

    def _lose(self, member: Member, why: str) -> None:
        """Give up a supervisor: what it was at may be to blame, the rest is not."""
        self._leases.drop(member.name)
        jobs, member.jobs = list(member.jobs), {}
        place = member.place
        for position, number in enumerate(jobs):
            kind = "lost" if member.is_up and not position else "again"
            self._ledger.answer(number, Reply(kind, place, message=why))
        if member.handle is None:
            return
        member.handle.kill()
        member.handle = None
        member.why = why.strip().splitlines()[-1][:300]
        member.rests_until = time.monotonic() + _REST_SECONDS
        if not member.status.get("ready"):
            member.failures += 1
        what = "is given up" if self._is_given_up(member) else "is lost"
        self._warn(f"machine {member.name!r} {what}: {member.why}")

    def _admit(self, node: Node) -> None:
        """Have members for a node, unless it offers nothing, as the head of a cluster may."""
        if not node.cpus and not node.gpus:
            return
        builds = f"{node.name} (builds)"
        if "build" in node.roles and builds not in self._members:
            count = self._builders or max(1, node.cpus)
            self._members[builds] = Member(builds, node, self._setup(count, times=False))
        if "time" not in node.roles:
            return
        if self._context.target.kind == "cuda":
            model = node.gpu_model or "GPU"
            for number in range(node.gpus):
                self._admit_timer(f"{node.name} gpu {number}", node, model)
        elif node.cpus >= self._context.threads:
            self._admit_timer(node.name, node, "")
        else:
            self._warn(
                f"machine {node.name!r} only builds: it offers {node.cpus} processors, and "
                f"programs use {self._context.threads}"
            )

    def _admit_timer(self, name: str, node: Node, device: str) -> None:
        timers = sum(it.setup.times for it in self._members.values())
        if name not in self._members and not (self._timers and timers >= self._timers):
            self._members[name] = Member(name, node, self._setup(1, times=True, device=device))

    def _setup(self, workers: int, *, times: bool, device: str = "") -> SupervisorSetup:
        context = self._context
        return SupervisorSetup(
            backend=context.backend,
            threads=context.threads,
            protocol=context.protocol.identity,
            deadlines=dict(context.protocol.deadlines),
            workers=workers,
            times=times,
            memory_bytes=context.protocol.memory_bytes,
            device=device,
            store=str(self._started.folder) if self._cluster.is_here else "",
        )

    def _warn(self, message: str) -> None:
        self._warnings.setdefault(message, False)
