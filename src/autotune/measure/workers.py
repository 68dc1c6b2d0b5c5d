"""Worker processes of a backend, shared by the tasks that are tuned with it."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from attrs import define, field, frozen

from autotune.backends import Backend
from autotune.ir.workloads import Workload
from autotune.measure.dispatcher import Dispatcher, JobPool
from autotune.measure.pinning import quiet_neighbour_matters, timing_cpus
from autotune.measure.plausibility import Plausibility, measure_rates
from autotune.measure.pool import WorkerPool
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.validation import ReferenceFiles
from autotune.plugins.guarded_parts import create_held_part
from autotune.process.channel import Message
from autotune.process.ending import ending_with
from autotune.process.errors import WorkerStartFailed
from autotune.process.memory import affordable_workers
from autotune.process.private_folder import make_private_folder
from autotune.process.stopwatch import Clock
from autotune.process.timing_lock import TimingLock
from autotune.targets import Target

__all__ = ["MakeWorkers", "MeasureWorkers", "Running", "SharedWorkers", "WorkerSetup", "Workers"]

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


class MakeWorkers(Protocol):
    """Makes workers for a run."""

    def __call__(self, setup: WorkerSetup, *, is_late: Callable[[], bool]) -> MeasureWorkers[Any]:
        """Workers that are not started yet."""


_Pool = TypeVar("_Pool", bound=JobPool)


@define(eq=False)
class Running(Generic[_Pool]):
    """Workers that have been started.

    Attributes:
        pool: Does jobs.
        dispatcher: Gives them their jobs.
        end: Ends them; also called when the interpreter exits, or they are forgotten.
    """

    pool: _Pool
    dispatcher: Dispatcher
    end: Callable[[], object]


class MeasureWorkers(ABC, Generic[_Pool]):
    """Workers that build, check and time the candidates of any number of tasks.

    :class:`Workers` are processes of this machine;
    :class:`~autotune.measure.engines.EngineWorkers` are the machines of an engine.

    Args:
        setup: What they are made for.
        clock: Monotonic seconds.
        is_late: Whether to wait for them no longer: waiting raises ``TimeIsOver`` then.

    Attributes:
        cpus: CPUs of this machine that programs are timed on; empty where others choose.
        free_cpus: CPUs of this machine on which others may build meanwhile.
        timing_lock: Keeps other processes from timing on the same CPUs.
        overlaps: Whether building while something is timed does not disturb.
    """

    cpus: tuple[int, ...] = ()
    free_cpus: tuple[int, ...] = ()
    overlaps: bool

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
        self._running: Running[_Pool] | None = None

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of simultaneous builds."""

    @property
    @abstractmethod
    def simulates(self) -> bool:
        """True if the backend gives times that no clock has shown."""

    @abstractmethod
    def start(self) -> None:
        """Start them, and return at once. Again, it does nothing."""

    @abstractmethod
    def publish(self, files: ReferenceFiles) -> Message:
        """The part of a task's message that says where inputs and outputs are."""

    @abstractmethod
    def plausibility(self, workload: Workload) -> Plausibility | None:
        """Rates that latencies are held to; None where times are simulated."""

    @abstractmethod
    def take_warnings(self) -> list[str]:
        """Return what a person should know beside what jobs said; each message only once."""

    @property
    def is_running(self) -> bool:
        """True if they have been started, and not closed since."""
        return self._running is not None

    @property
    def pool(self) -> _Pool:
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
        return self._started.dispatcher.of_task(f"task {self._tasks}")

    def close(self) -> None:
        """End what was started, and remove every file. Calling it again does nothing."""
        running, self._running = self._running, None
        if running is not None:
            running.end()

    @property
    def _started(self) -> Running[_Pool]:
        if self._running is None:
            raise WorkerStartFailed("the workers have not been started, or were closed")
        return self._running


class Workers(MeasureWorkers[WorkerPool]):
    """Long-lived worker processes on this machine, which build, check and time candidates.

    They are started by :meth:`start`, best called before the host does anything else; they die
    with the host, whatever ends it, and with the thread that started them.

    Attributes:
        on_device: Whether one more process, which owns a device, checks and times.
    """

    def __init__(
        self,
        setup: WorkerSetup,
        clock: Clock = time.monotonic,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(setup, clock, is_late)
        self._count = setup.count or affordable_workers(
            len(os.sched_getaffinity(0)), _WORKER_BYTES
        )
        self.cpus, self.free_cpus = timing_cpus(setup.threads)
        self.overlaps = self.on_device = self._simulates = False

    @property
    def count(self) -> int:
        """Number of processes that build."""
        return self._count

    @property
    def simulates(self) -> bool:
        """See :attr:`MeasureWorkers.simulates`; known once they have been started."""
        return self._simulates

    def start(self) -> None:
        """Start them, and return at once: they import the compiler. Again, it does nothing."""
        if self._running is not None:
            return
        setup = self.setup
        backend: Backend = create_held_part("backend", setup.backend)
        self._simulates = backend.simulated_times
        self.on_device = setup.target.kind in backend.device_kinds
        # What is found out about the machine is so before there are workers: CPUs have to be idle.
        if self.on_device:
            # Launches are recorded in graphs: what builds meanwhile delays no kernel.
            self.free_cpus, self.overlaps = tuple(sorted(os.sched_getaffinity(0))), True
        else:
            self.overlaps = bool(self.free_cpus) and not quiet_neighbour_matters(
                self.cpus[0], self.free_cpus[0]
            )
        if not (self.simulates or self.on_device):
            self.timing_lock = TimingLock(self.cpus)
        if not self.simulates:
            measure_rates(setup.target, setup.threads)
        environment = backend.worker_environment(setup.threads)
        folder = make_private_folder()
        pool = WorkerPool(
            setup.backend,
            setup.threads,
            environment,
            workers=self.count,
            deadlines=setup.protocol.deadlines,
            memory_bytes=setup.protocol.memory_bytes,
            folder=folder,
            clock=self._clock,
            is_late=self._is_late,
            device=self.on_device,
        )
        end = ending_with(self, pool.close, folder.remove)
        self._running = Running(pool, Dispatcher(pool, setup.observers), end)
        pool.start()

    def publish(self, files: ReferenceFiles) -> Message:
        """The part of a task's message that says where inputs and outputs are: their paths."""
        return {"inputs": files.inputs, "outputs": files.outputs}

    def plausibility(self, workload: Workload) -> Plausibility | None:
        """Rates that latencies are held to; None where times are simulated."""
        if self.simulates:
            return None
        return Plausibility.of(workload, self.setup.target, self.setup.threads)

    def take_warnings(self) -> list[str]:
        """Return warnings of other processes; dispatchers take those of jobs."""
        return self.timing_lock.take_warnings()


class SharedWorkers:
    """The workers of a run, by what they are made for; its measurers share them.

    Attributes:
        is_late: Whether to wait for them no longer; the run sets it to what it knows of its time.
    """

    def __init__(self) -> None:
        self.is_late: Callable[[], bool] = lambda: False
        self._workers: list[MeasureWorkers[Any]] = []

    def get(self, setup: WorkerSetup, make: MakeWorkers | None = None) -> MeasureWorkers[Any]:
        """Return workers that are made for this, new ones if there are none.

        Args:
            setup: What they are made for.
            make: Makes new ones; by default processes of this machine.
        """
        found = next((workers for workers in self._workers if workers.setup == setup), None)
        if found is None:
            found = (make or Workers)(setup, is_late=lambda: self.is_late())
            self._workers.append(found)
        return found

    def close(self) -> None:
        """End all of them. Who needs them later starts them again."""
        for workers in self._workers:
            workers.close()
