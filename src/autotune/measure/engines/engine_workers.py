"""The machines of an engine in place of the workers of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from attrs import define

from autotune.ir.workloads import Workload
from autotune.measure.dispatcher import Dispatcher
from autotune.measure.engines.artefacts import ArtefactStore
from autotune.measure.engines.engine_pool import EnginePool
from autotune.measure.engines.fingerprint import Fingerprint
from autotune.measure.engines.interface import MeasureEngine
from autotune.measure.plausibility import SHORTEST_CALL, Plausibility
from autotune.measure.validation import ReferenceFiles
from autotune.measure.workers import WorkerSetup
from autotune.process.channel import Message
from autotune.process.ending import ending_with
from autotune.process.errors import WorkerStartFailed
from autotune.process.private_folder import make_private_folder
from autotune.process.stopwatch import Clock
from autotune.process.timing_lock import TimingLock

__all__ = ["EngineWorkers"]


@define(eq=False)
class _Running:
    pool: EnginePool
    store: ArtefactStore
    dispatcher: Dispatcher
    end: Callable[[], object]


class EngineWorkers:
    """See :class:`~autotune.measure.workers.MeasureWorkers`.

    Args:
        engine: What carries jobs to machines; closed with this.
        setup: What they build and time for.
        clock: Monotonic seconds.
        is_late: Whether to wait no longer.
    """

    cpus: tuple[int, ...] = ()
    """Each machine chooses its own."""
    free_cpus: tuple[int, ...] = ()
    overlaps = True
    timing_lock = TimingLock()
    """Of no CPU: leases do that."""

    def __init__(
        self,
        engine: MeasureEngine,
        setup: WorkerSetup,
        clock: Clock = time.monotonic,
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self.setup = setup
        self._engine = engine
        self._clock = clock
        self._is_late = is_late
        self._tasks = 0
        self._running: _Running | None = None

    @property
    def count(self) -> int:
        """Number of simultaneous builds."""
        return self._started.pool.builders if self._running else 1

    @property
    def simulates(self) -> bool:
        """True if times are simulated."""
        return self._engine.simulates

    @property
    def is_running(self) -> bool:
        """True if it has been started, and not closed since."""
        return self._running is not None

    @property
    def pool(self) -> EnginePool:
        """The machines.

        Raises:
            WorkerStartFailed: they have not been started, or were closed.
        """
        return self._started.pool

    @property
    def fingerprint(self) -> Fingerprint:
        """That of the machines that time; waits for the first of them.

        Raises:
            WorkerStartFailed: none has come; says what is missing.
        """
        self.start()
        pool = self.pool
        pool.wait_ready()
        if pool.fingerprint is None:
            raise WorkerStartFailed(f"runner {self._engine.name!r} has no machine that times")
        return pool.fingerprint

    def start(self) -> None:
        """Start the engine, and return at once. Again, it does nothing."""
        if self._running is not None:
            return
        folder = make_private_folder()
        artefacts = Path(folder.path) / "artefacts"
        artefacts.mkdir()
        store = ArtefactStore(artefacts)
        pool = EnginePool(
            self._engine,
            store,
            self.setup.protocol.deadlines,
            clock=self._clock,
            is_late=self._is_late,
        )
        end = ending_with(self, pool.close, folder.remove)
        dispatcher = Dispatcher(pool, self.setup.observers)
        self._running = _Running(pool, store, dispatcher, end)
        self._engine.start(store)

    def admit(self) -> Dispatcher:
        """Gives the jobs of one more task to the machines."""
        self._tasks += 1
        return self._started.dispatcher.of_task(f"task {self._tasks}")

    def publish(self, files: ReferenceFiles) -> Message:
        """Inputs and outputs as machines find them: by the digests of artefacts."""
        store = self._started.store
        # They are named by their content.
        files.fill()

        def kept(paths: tuple[str, ...]) -> list[str]:
            return [store.add_bytes(Path(path).read_bytes()) for path in paths]

        return {"inputs": kept(files.inputs), "outputs": kept(files.outputs), "stored": True}

    def plausibility(self, workload: Workload) -> Plausibility | None:
        """Rates that latencies are held to: those of this machine say nothing about others."""
        if self.simulates:
            return None
        if self._engine.on_this_machine:
            return Plausibility.of(workload, self.setup.target, self.setup.threads)
        return Plausibility(SHORTEST_CALL, "no call of a function takes less")

    def take_warnings(self) -> list[str]:
        """Return what a person should know of machines; each message only once."""
        return self._running.pool.take_warnings() if self._running else []

    def close(self) -> None:
        """End what was started. Calling it again does nothing."""
        running, self._running = self._running, None
        if running is not None:
            running.end()

    @property
    def _started(self) -> _Running:
        if self._running is None:
            raise WorkerStartFailed("the runner has not been started, or was closed")
        return self._running
