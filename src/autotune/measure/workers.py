"""Worker processes of a backend, shared by the tasks that are tuned with it."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from attrs import evolve, field, frozen

from autotune.backends import Backend
from autotune.ir.workloads import Workload
from autotune.measure.engines.artefacts import ArtefactStore
from autotune.measure.engines.fingerprint import Fingerprint, same_speed
from autotune.measure.engines.interface import (
    Lease,
    Machine,
    MeasureEngine,
    builders_of,
    choose_fingerprint,
    equal_machines,
)
from autotune.measure.jobs import NOWHERE, Dispatcher, Job, JobPool, Place, Position, Reply
from autotune.measure.pinning import quiet_neighbour_matters, timing_cpus
from autotune.measure.plausibility import SHORTEST_CALL, Plausibility, measure_rates
from autotune.measure.pool import WorkerPool
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing_session import TimingSession
from autotune.measure.validation import ReferenceFiles
from autotune.plugins.guarded_parts import create_held_part
from autotune.process.channel import Message
from autotune.process.ending import ending_with
from autotune.process.errors import TimeIsOver, WorkerStartFailed
from autotune.process.memory import affordable_workers
from autotune.process.private_folder import PrivateFolder, make_private_folder
from autotune.process.stopwatch import Clock
from autotune.process.timing_lock import TimingLock
from autotune.targets import Target

__all__ = [
    "EnginePool",
    "EngineWorkers",
    "MeasureWorkers",
    "SharedWorkers",
    "WorkerSetup",
    "Workers",
]

# What a worker with a compiler, its programs and their arrays may occupy.
_WORKER_BYTES = 1 << 30


@frozen
class WorkerSetup:
    """Facts that worker processes depend on: tasks that agree in it can share them.

    Attributes:
        backend: Name of a registered backend, or an import string ``module:Class``.
        target: What candidates are built for.
        threads: Threads that a candidate may use.
        protocol: How to measure.
        observers: Names of observers.
        count: How many; None for one per usable core, or as many as memory is enough for.
    """

    backend: str
    target: Target
    threads: int
    protocol: MeasureProtocol = field(factory=MeasureProtocol)
    observers: tuple[str, ...] = ()
    count: int | None = None


class MeasureWorkers(ABC):
    """Workers that build, check and time the candidates of any number of tasks.

    :class:`Workers` are processes of this machine;
    :class:`EngineWorkers` are the machines of an engine.

    Args:
        setup: What they are made for.
        clock: Monotonic seconds.
        is_late: Whether to wait for them no longer: waiting raises ``TimeIsOver`` then.

    Attributes:
        simulates: Whether the backend gives times that no clock has shown; known once they are
            started.
        cpus: CPUs of this machine that programs are timed on; empty where others choose.
        free_cpus: CPUs of this machine on which others may build meanwhile.
        timing_lock: Keeps other processes from timing on the same CPUs.
        overlaps: Whether building while something is timed does not disturb.
        session: How what they hold is timed.
        on_this_machine: Whether its rates bound what programs take.
    """

    simulates: bool = False
    session: type[TimingSession] = TimingSession
    cpus: tuple[int, ...] = ()
    free_cpus: tuple[int, ...] = ()
    overlaps = on_this_machine = True

    def __init__(
        self,
        setup: WorkerSetup,
        clock: Clock = time.monotonic,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self.setup = setup
        self.timing_lock = TimingLock()
        self._clock = clock
        self._is_late = is_late
        self._tasks = 0
        # Gives jobs to those that have been started; there are none before and after.
        self._dispatcher: Dispatcher | None = None
        self._end: Callable[[], object] = lambda: None

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of simultaneous builds."""

    @abstractmethod
    def _make_pool(self, folder: PrivateFolder) -> JobPool:
        """The pool that does jobs, not started; its files go to a folder."""

    def start(self) -> None:
        """Start them, and return at once: they import the compiler. Again, it does nothing."""
        if self._dispatcher is not None:
            return
        with ExitStack() as on_failure:
            folder = make_private_folder()
            on_failure.callback(folder.remove)
            pool = self._make_pool(folder)
            on_failure.pop_all()
        self._end = ending_with(self, pool.close, folder.remove)
        self._dispatcher = Dispatcher(pool, list(self.setup.observers))
        pool.start()

    def publish(self, files: ReferenceFiles) -> Message:
        """The part of a task's message that says where inputs and outputs are: their paths."""
        return {"inputs": files.inputs, "outputs": files.outputs}

    def plausibility(self, workload: Workload) -> Plausibility | None:
        """Rates that latencies are held to; None where times are simulated."""
        if self.simulates:
            return None
        if self.on_this_machine:
            return Plausibility.of(workload, self.setup.target, self.setup.threads)
        # The rates of this machine say nothing about others.
        return Plausibility(SHORTEST_CALL, "no call of a function takes less")

    def take_warnings(self) -> list[str]:
        """Return what a person should know beside what jobs said; each message only once."""
        said = self.pool.take_warnings() if self.is_running else []
        return [*self.timing_lock.take_warnings(), *said]

    @property
    def is_running(self) -> bool:
        """True if they have been started, and not closed since."""
        return self._dispatcher is not None

    @property
    def pool(self) -> JobPool:
        """The pool that does jobs.

        Raises:
            WorkerStartFailed: they have not been started, or were closed.
        """
        return self._started.pool

    def admit(self) -> Dispatcher:
        """Gives the jobs of one more task to them.

        Raises:
            WorkerStartFailed: they have not been started, or were closed.
        """
        self._tasks += 1
        return self._started.of_task(f"task {self._tasks}")

    def close(self) -> None:
        """End what was started, and remove every file. Calling it again does nothing."""
        self._dispatcher = None
        self._end()

    @property
    def _started(self) -> Dispatcher:
        if self._dispatcher is None:
            raise WorkerStartFailed("the workers have not been started, or were closed")
        return self._dispatcher


class Workers(MeasureWorkers):
    """Long-lived worker processes on this machine, which build, check and time candidates.

    They are started by :meth:`start`, best called before the host does anything else; they die
    with the host, whatever ends it, and with the thread that started them.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        clock: Clock = time.monotonic,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(setup, clock, is_late)
        cpus = os.sched_getaffinity(0)
        self._count = setup.count or affordable_workers(len(cpus), _WORKER_BYTES)
        self.cpus, self.free_cpus = timing_cpus(setup.threads)

    @property
    def count(self) -> int:
        """Number of processes that build."""
        return self._count

    def _make_pool(self, folder: PrivateFolder) -> WorkerPool:
        setup = self.setup
        backend: Backend = create_held_part("backend", setup.backend)
        self.simulates = backend.simulated_times
        on_device = setup.target.kind in backend.device_kinds
        # What is found out about the machine is so before there are workers: CPUs have to be idle.
        if on_device:
            # Launches are recorded in graphs: what builds meanwhile delays no kernel.
            self.free_cpus, self.overlaps = tuple(sorted(os.sched_getaffinity(0))), True
        else:
            self.overlaps = bool(self.free_cpus) and not quiet_neighbour_matters(
                self.cpus[0], self.free_cpus[0]
            )
        if not (self.simulates or on_device):
            self.timing_lock = TimingLock(self.cpus)
        if not self.simulates:
            measure_rates(setup.target, setup.threads)
        return WorkerPool(
            setup.backend,
            setup.threads,
            backend.worker_environment(setup.threads),
            workers=self.count,
            deadlines=setup.protocol.deadlines,
            memory_bytes=setup.protocol.memory_bytes,
            folder=folder,
            clock=self._clock,
            is_late=self._is_late,
            device=on_device,
        )


class SharedWorkers:
    """The workers of a run, by what they are made for; its measurers share them.

    Attributes:
        is_late: Whether to wait for them no longer; the run sets it to what it knows of its time.
    """

    def __init__(self) -> None:
        self.is_late: Callable[[], bool] = lambda: False
        self._workers: list[MeasureWorkers] = []

    def get(
        self, setup: WorkerSetup, make: Callable[..., MeasureWorkers] = Workers
    ) -> MeasureWorkers:
        """Return workers that are made for this, new ones if there are none.

        Args:
            setup: What they are made for.
            make: Makes new ones, given the setup and ``is_late``.
        """
        found = next((workers for workers in self._workers if workers.setup == setup), None)
        if found is None:
            found = make(setup, is_late=lambda: self.is_late())
            self._workers.append(found)
        return found

    def close(self) -> None:
        """End all of them. Who needs them later starts them again."""
        for workers in self._workers:
            workers.close()


_POLL_SECONDS = 0.05
# A lease is renewed by each job under it, and has to outlast the longest.
_LEASE_MARGIN = 10.0
# Between two timings of the reference program on a machine.
_DRIFT_SECONDS = 30.0
_DAMAGED = "DamagedArtefact"


@frozen
class _Built:
    """A program that was built.

    Attributes:
        body: The builder's answer.
        candidate: What it was built from, in JSON form.
    """

    body: Message = field(repr=False)
    candidate: Message | None = field(repr=False)

    @property
    def artefact(self) -> str:
        digest: str = self.body["artefact"]
        return digest


class EnginePool(JobPool):
    """See :class:`~autotune.measure.jobs.JobPool`; places are machines that time.

    Candidates are built on any machine, and timed on those of one fingerprint. The host chooses
    which of these; without its choice it is the first, so that baselines and winners, which are
    compared with each other, take turns on one machine.

    Args:
        engine: Has been started.
        store: The host's artefacts.
        deadlines: Of the measuring protocol: ``start`` is how long to wait for a machine.
        clock: Monotonic seconds.
        is_late: Whether to wait no longer.
    """

    def __init__(
        self,
        engine: MeasureEngine,
        store: ArtefactStore,
        deadlines: Mapping[str, float],
        *,
        clock: Clock = time.monotonic,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self._engine = engine
        self._store = store
        self._start_seconds = deadlines["start"]
        self._lease_seconds = sum(deadlines.values()) + _LEASE_MARGIN
        # That of most machines, once one has joined.
        self._fingerprint: Fingerprint | None = None
        self._clock = clock
        self._is_late = is_late
        self._racers: list[Machine] = []
        self._built: dict[tuple[str, int], _Built] = {}
        self._in_flight: dict[int, Job] = {}
        self._arrived: list[tuple[Job, Reply]] = []
        self._undelivered: list[Reply] = []
        self._leases: dict[Position, Lease] = {}
        self._checked: dict[Position, float] = {}
        self._warnings: dict[str, bool] = {}
        self._lacking_since: float | None = None

    @property
    def fingerprint(self) -> Fingerprint | None:
        """Fingerprint of the machines that time; None before the first has joined."""
        return self._fingerprint

    @property
    def versions(self) -> Message:
        return dict(self._engine.versions)

    @property
    def lanes(self) -> list[Position]:
        """Names of the machines that time."""
        return [machine.name for machine in self._racers]

    @property
    def idle(self) -> bool:
        return not (self._in_flight or self._undelivered)

    @property
    def is_quiet(self) -> bool:
        return not any(
            job.place is not None and job.place[0] in self._leases
            for job in self._in_flight.values()
        )

    def start(self) -> None:
        self._engine.start(self._store)

    def tell(self, task: str, message: Message, *, replace: bool = False) -> None:
        artefacts = [*message["inputs"], *message["outputs"]] if message.get("stored") else []
        self._engine.tell(task, message, artefacts, replace=replace)
        if replace:
            # Programs that run on other inputs are checked again, hence loaded again.
            self._forget_task(task)

    def release(self, task: str) -> None:
        self._engine.release(task)
        self._forget_task(task)

    def _forget_task(self, task: str) -> None:
        for key in [key for key in self._built if key[0] == task]:
            self._forget(key)

    def _forget(self, key: tuple[str, int]) -> None:
        built = self._built.pop(key, None)
        if built is not None and all(it.artefact != built.artefact for it in self._built.values()):
            self._store.remove(built.artefact)

    def wait_ready(self) -> None:
        self._look_around()
        self._lacking_since = None
        while not self._are_complete():
            self._step(_POLL_SECONDS)

    def _what_is_missing(self, machines: Sequence[Machine]) -> str:
        what = "that builds" if self._racers else "that times"
        wanted = self._fingerprint
        if not self._racers and wanted is not None:
            what = f"of fingerprint {wanted.digest} ({wanted.device})"
        there = ", ".join(machine.name for machine in machines) or "none"
        return "; ".join(
            (
                f"runner {self._engine.name!r} has no machine {what} after "
                f"{self._start_seconds:g} s",
                f"machines: {there}",
                *self._engine.take_warnings(),
            )
        )

    def holds(self, place: Place) -> bool:
        return any(machine.place == place for machine in self._racers)

    def pids(self) -> Mapping[int, int]:
        # What shares a machine with a timing is the engine's business.
        return {}

    def reserve(self, timing: Collection[Position], later: Collection[Position] = ()) -> None:
        for name in [name for name in self._leases if name not in timing]:
            self._leases.pop(name).release()
        for name in sorted(map(str, timing)):
            # Unless the machine goes.
            while self.place_at(name) is not None and not self.try_lease(name):
                self._step(_POLL_SECONDS)

    def _check_drift(self, name: str) -> None:
        """Time the reference program, if that was long ago."""
        now = self._clock()
        if self._engine.simulates or now - self._checked.get(name, now) < _DRIFT_SECONDS:
            self._checked.setdefault(name, now)
            return
        self._checked[name] = now
        seconds, wanted = self._engine.check_speed(name), self._fingerprint
        if seconds is None or wanted is None:
            return
        if not same_speed(seconds, wanted.reference_seconds):
            share = seconds / wanted.reference_seconds - 1
            self._warn(
                f"machine {name!r} takes {share:+.0%} for the reference program, compared with "
                "the beginning of the run: latencies are compared in turns, and what is recorded "
                "is known less well"
            )

    def add(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._add(job)

    def _add(self, job: Job) -> None:
        message = job.message
        key = (message.get("task", ""), message.get("number", -1))
        if message["op"] == "forget":
            for number in message["numbers"]:
                self._forget((key[0], number))
        built = self._built.get(key)
        if message["op"] == "build":
            if built is not None and built.candidate == message["candidate"]:
                now = self._clock()
                body = {**built.body, "span": [now, now]}
                self._in_flight[job.number] = job
                self._arrived.append((job, Reply("done", body=body)))
                return
            return self._submit(job, evolve(job, message={**message, "export": True}))
        if job.place is None or not self.holds(job.place):
            self._undelivered.append(Reply("again", job.place or NOWHERE, number=job.number))
            return
        artefacts: tuple[str, ...] = ()
        if message["op"] == "run" and built is not None:
            message = {
                **message,
                "artefact": built.artefact,
                "candidate": built.candidate,
                "timings": built.body["timings"],
            }
            artefacts = (built.artefact,)
        return self._submit(job, evolve(job, message=message, artefacts=artefacts))

    def _submit(self, job: Job, asked: Job) -> None:
        self._in_flight[job.number] = job
        future = self._engine.submit(asked)
        future.add_done_callback(lambda done: self._arrived.append((job, done.result())))

    def poll(self, seconds: float = _POLL_SECONDS) -> list[Reply]:
        ready = self._undelivered or (self._arrived and self._racers)
        self._step(0.0 if ready else seconds)
        replies, self._undelivered = self._undelivered, []
        return replies

    def _step(self, seconds: float) -> None:
        """Let the engine work, and take in what it says."""
        if self._is_late():
            raise TimeIsOver("the time is over, and the machines are at something")
        self._engine.poll(seconds)
        self._look_around()
        self._take_in()
        if self._in_flight:
            self._are_complete()

    def _are_complete(self) -> bool:
        """Return whether there are machines that build and machines that time.

        Raises:
            WorkerStartFailed: there have not been for long; says what is missing.
        """
        machines = self._engine.machines()
        if self._racers and builders_of(machines):
            self._lacking_since = None
            return True
        if self._lacking_since is None:
            self._lacking_since = self._clock()
        if self._clock() - self._lacking_since > self._start_seconds:
            raise WorkerStartFailed(self._what_is_missing(machines))
        return False

    def _take_in(self) -> None:
        arrived, self._arrived = self._arrived, []
        for job, reply in arrived:
            if not self._racers and "artefact" in reply.body:
                # Built, and no machine is there that could time it: it waits for one.
                self._arrived.append((job, reply))
                continue
            if self._in_flight.pop(job.number, None) is not None:
                self._undelivered.append(self._understood(job, reply))

    def _understood(self, job: Job, reply: Reply) -> Reply:
        """A reply as those of the workers of one machine are."""
        message = job.message
        key = (message.get("task", ""), message.get("number", -1))
        place = job.place or NOWHERE
        if message["op"] == "build" and reply.kind == "done" and "artefact" in reply.body:
            self._built[key] = _Built(reply.body, message["candidate"])
            place = self._first_place
        if reply.kind == "failed" and reply.message.startswith(_DAMAGED):
            # Nobody's fault but that of the way; built again, a limited number of times.
            self._warn(f"machine {str(reply.place[0])!r} got a damaged program: {reply.message}")
            self._forget(key)
            reply = evolve(reply, kind="lost")
        return evolve(reply, number=job.number, place=place)

    @property
    def _first_place(self) -> Place:
        """Machine that times what is built, unless the host chooses; one not held if none is."""
        return self._racers[0].place if self._racers else NOWHERE

    def place_at(self, position: Position) -> Place | None:
        return next((it.place for it in self._racers if it.name == position), None)

    def try_lease(self, position: Position) -> bool:
        lease = self._leases.get(position)
        if lease is not None and lease.is_valid:
            return True
        lease = self._engine.lease(str(position), self._lease_seconds)
        if lease is None:
            return False
        self._leases[position] = lease
        self._check_drift(str(position))
        return True

    def end_lease(self, position: Position) -> None:
        lease = self._leases.pop(position, None)
        if lease is not None:
            lease.release()

    def _look_around(self) -> None:
        """See which machines time now; the first stays the first as long as it is there."""
        machines = self._engine.machines()
        if self._fingerprint is None:
            self._fingerprint = choose_fingerprint(machines)
        if self._fingerprint is None:
            return
        first = self._racers[0].name if self._racers else ""
        found = equal_machines(self._fingerprint, machines)
        alike = next((it for it in machines if it.name == first and it.fingerprint), None)
        if alike is not None and alike not in found:
            # Another of its group comes before it now; what it holds would be lost.
            group = alike.lease_group or alike.name
            found = [it for it in found if (it.lease_group or it.name) != group] + [alike]
        self._racers = sorted(found, key=lambda it: it.name != first)
        for machine in machines:
            mine = machine.fingerprint
            if mine is not None and not mine.equals(self._fingerprint):
                self._warn(
                    f"machine {machine.name!r} times nothing in this run, whose machines differ: "
                    + "; ".join(mine.differences(self._fingerprint))
                )

    def forget_queue(self) -> list[int]:
        # All has been handed to the engine; what has not begun there takes its time.
        return []

    def cancel(self) -> None:
        self.reserve(())
        self._engine.cancel()
        self._in_flight.clear()
        self._arrived.clear()
        self._undelivered.clear()
        self._built.clear()

    def close(self) -> None:
        self.reserve(())
        self._engine.close()

    def take_warnings(self) -> list[str]:
        """Return what a person should know; each message only once."""
        for message in self._engine.take_warnings():
            self._warn(message)
        new = [message for message, taken in self._warnings.items() if not taken]
        self._warnings.update(dict.fromkeys(new, True))
        return new

    def _warn(self, message: str) -> None:
        self._warnings.setdefault(message, False)


class EngineWorkers(MeasureWorkers):
    """The machines of an engine, each of which chooses its own CPUs.

    Args:
        engine: What carries jobs to machines; closed with this.
        setup: What they build and time for.
        clock: Monotonic seconds.
        is_late: Whether to wait no longer.
    """

    def __init__(
        self,
        engine: MeasureEngine,
        setup: WorkerSetup,
        clock: Clock = time.monotonic,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(setup, clock, is_late)
        self.on_this_machine = engine.on_this_machine
        self._engine = engine
        self._store: ArtefactStore | None = None

    @property
    def count(self) -> int:
        """Number of simultaneous builds, 1 at least."""
        return max(1, builders_of(self._engine.machines()))

    @property
    def fingerprint(self) -> Fingerprint:
        """Fingerprint of the machines that time; waits for the first of them.

        Raises:
            WorkerStartFailed: none has come; says what is missing.
        """
        self.start()
        self.pool.wait_ready()
        fingerprint = self.pool.fingerprint if isinstance(self.pool, EnginePool) else None
        if fingerprint is None:
            raise WorkerStartFailed(f"runner {self._engine.name!r} has no machine that times")
        return fingerprint

    def _make_pool(self, folder: PrivateFolder) -> EnginePool:
        self.simulates = self._engine.simulates
        artefacts = Path(folder.path) / "artefacts"
        artefacts.mkdir()
        self._store = ArtefactStore(artefacts)
        return EnginePool(
            self._engine,
            self._store,
            self.setup.protocol.deadlines,
            clock=self._clock,
            is_late=self._is_late,
        )

    def publish(self, files: ReferenceFiles) -> Message:
        """Inputs and outputs as machines find them: by the digests of artefacts."""
        store = self._store
        if store is None:
            raise WorkerStartFailed("the workers have not been started, or were closed")
        # They are named by their content.
        files.fill()

        def kept(paths: tuple[str, ...]) -> list[str]:
            return [store.add_bytes(Path(path).read_bytes()) for path in paths]

        return {"inputs": kept(files.inputs), "outputs": kept(files.outputs), "stored": True}
