"""Measuring on this machine, in worker processes."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from attrs import define, field

from autotune.errors import InvalidValueError
from autotune.isolation.channel import Message
from autotune.isolation.errors import WorkerStartFailed
from autotune.isolation.memory import default_memory_limit
from autotune.isolation.private_folder import PrivateFolder, make_private_folder
from autotune.measure.backend_lookup import find_backend
from autotune.measure.measurer import Measurer, OnOutcome
from autotune.measure.pool import Job, Place, Reply, WorkerPool
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.validation import write_reference
from autotune.records import Outcome
from autotune.sketches import Candidate
from autotune.targets import Target
from autotune.workloads import Workload

# How many candidates per worker are built before they are timed: enough to keep the workers
# busy to the end of a chunk, few enough that built programs do not fill the memory.
_CHUNK_PER_WORKER = 8
_MOST_BUILDS = 3
_BUILD_PHASES = ("build", "observe")
_TIMING_PHASES = ("load", "verify", "run", "observe")


class LocalMeasurer(Measurer):
    """Measures in long-lived worker processes on this machine.

    The candidates of a batch are built in parallel, each in the worker that will run it, and
    then checked and timed one after the other while nothing is built: timings have the machine
    to themselves. Workers are started by :meth:`start`, best called before the host does
    anything else; they die with the host, whatever ends it, and with the thread that started
    them.

    Args:
        backend: Name of a registered backend, or an import string ``module:Class``.
        target: What candidates are built for.
        threads: Threads that a candidate may use.
        workload: What candidates compute.
        program: The imported program's text form, if there is one.
        protocol: How to measure.
        observers: Names of what reads something of each candidate beside its latency.
        workers: Number of worker processes; by default one per usable core.
        seed: Seed of the random inputs.
        clock: Monotonic seconds.

    Raises:
        InvalidValueError: the number of threads or workers is not positive.
    """

    def __init__(
        self,
        backend: str,
        target: Target,
        threads: int,
        workload: Workload,
        program: str | None = None,
        *,
        protocol: MeasureProtocol | None = None,
        observers: Sequence[str] = (),
        workers: int | None = None,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if workers is None:
            workers = len(os.sched_getaffinity(0))
        for name, value in (("threads", threads), ("workers", workers)):
            if value < 1:
                raise InvalidValueError(f"{name} must be at least 1, not {value}")
        self._backend = backend
        self._target = target
        self._threads = threads
        self._workload = workload
        self._program = program
        self._protocol = protocol or MeasureProtocol()
        self._observers = tuple(observers)
        self._observing = bool(observers)
        self._warnings: dict[str, bool] = {}
        self._workers = workers
        self._seed = seed
        self._clock = clock
        self._seconds = {"start": 0.0, "build": 0.0, "run": 0.0}
        self._batches = 0
        self._pool: WorkerPool | None = None
        self._folder: Path | None = None
        self._cleanup: Callable[[], object] | None = None
        self._has_task = False

    @property
    def seconds(self) -> Mapping[str, float]:
        """Wall seconds so far, by ``start`` (waiting for workers), ``build`` and ``run``."""
        return dict(self._seconds)

    @property
    def versions(self) -> Mapping[str, str]:
        """``backend_version`` and ``compiler_version`` as the workers found them, once ready."""
        return dict(self._pool.versions) if self._pool is not None else {}

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers, for people who look at the machine."""
        return self._pool.pids() if self._pool is not None else []

    def start(self) -> None:
        """Start the workers, which import the compiler, and return at once."""
        if self._pool is not None:
            return
        environment = find_backend(self._backend).worker_environment(self._threads)
        folder = make_private_folder()
        memory = self._protocol.memory_bytes
        pool = WorkerPool(
            self._backend,
            self._threads,
            environment,
            workers=self._workers,
            deadlines=self._protocol.deadlines,
            memory_bytes=default_memory_limit() if memory is None else memory,
            folder=folder.path,
            clock=self._clock,
        )
        self._pool, self._folder = pool, folder.path
        # Also runs when the interpreter exits or the measurer is forgotten.
        self._cleanup = weakref.finalize(self, _clean_up, pool, folder, os.getpid())
        pool.start()

    def wait_ready(self) -> None:
        """Prepare inputs and reference outputs, and wait until the workers have them.

        Raises:
            WorkerStartFailed: the workers cannot be brought up.
        """
        self.start()
        with self._timed("start"):
            pool, folder = self._started()
            if not self._has_task:
                files = write_reference(self._workload, self._seed, folder)
                pool.set_task(
                    {
                        "op": "task",
                        "workload": self._workload.to_json(),
                        "program": self._program,
                        "target": self._target.to_json(),
                        "threads": self._threads,
                        "inputs": files.inputs,
                        "outputs": files.outputs,
                        "observers": self._observers,
                    }
                )
                self._has_task = True
            pool.wait_ready()

    def measure(
        self,
        candidates: Sequence[Candidate],
        on_outcome: OnOutcome | None = None,
        *,
        incumbent: float | None = None,
    ) -> list[Outcome]:
        """See :meth:`Measurer.measure`."""
        unique: dict[str, int] = {}
        positions = [unique.setdefault(candidate.digest, len(unique)) for candidate in candidates]
        firsts = [candidates[positions.index(number)] for number in range(len(unique))]
        outcomes: list[Outcome] = []
        known: list[Outcome] = []
        for outcome in self._outcomes(firsts, self._protocol, incumbent):
            known.append(outcome)
            while len(outcomes) < len(candidates) and positions[len(outcomes)] < len(known):
                outcomes.append(known[positions[len(outcomes)]])
                if on_outcome is not None:
                    on_outcome(len(outcomes) - 1, outcomes[-1])
        return outcomes

    def measure_baseline(self) -> Outcome:
        """The outcome of the untuned program, which gets longer deadlines."""
        return next(self._outcomes([None], self._protocol.for_baseline(), None))

    def take_warnings(self) -> list[str]:
        """See :meth:`Measurer.take_warnings`."""
        fresh = [message for message, taken in self._warnings.items() if not taken]
        self._warnings = dict.fromkeys(self._warnings, True)
        return fresh

    def close(self) -> None:
        """End every process and remove every file. Calling it again does nothing."""
        if self._cleanup is not None:
            self._cleanup()
        self._pool = None
        self._has_task = False

    def _outcomes(
        self,
        candidates: Sequence[Candidate | None],
        protocol: MeasureProtocol,
        incumbent: float | None,
    ) -> Iterator[Outcome]:
        """Outcomes in order, chunk by chunk."""
        self.wait_ready()
        step = _CHUNK_PER_WORKER * self._workers
        for start in range(0, len(candidates), step):
            self._batches += 1
            chunk = _Chunk(self._batches, candidates[start : start + step], protocol)
            for number in range(len(chunk.candidates)):
                while number not in chunk.outcomes:
                    self._build(chunk)
                    if number not in chunk.outcomes and number in chunk.places:
                        self._run(chunk, number, incumbent)
                outcome = chunk.outcomes[number]
                if outcome.latency is not None:
                    incumbent = min(outcome.latency, incumbent or outcome.latency)
                yield outcome

    def _build(self, chunk: _Chunk) -> None:
        """Build, on all workers, what is neither built nor known to be bad."""
        pool, _ = self._started()
        missing = chunk.missing(pool)
        if not missing:
            return
        jobs = [chunk.build_job(number, self._observing) for number in missing]
        with self._timed("build"), closing(pool.run(jobs)) as replies:
            for reply in replies:
                observing = self._observing
                if self._is_lost(reply):
                    chunk.lose(reply.number)
                    if observing != self._observing:
                        return  # the other jobs say that they are to be observed
                elif reply.kind == "done" and "outcome" not in reply.body:
                    chunk.places[reply.number] = reply.place
                else:
                    chunk.outcomes[reply.number] = _outcome_of(reply)

    def _run(self, chunk: _Chunk, number: int, incumbent: float | None) -> None:
        """Check and time one built candidate while everything else is still."""
        pool, _ = self._started()
        with self._timed("run"):
            # A worker that was replaced imports its compiler first: that would disturb.
            pool.wait_ready()
            job = chunk.run_job(number, incumbent, self._observing)
            with closing(pool.run([job])) as replies:
                for reply in replies:
                    if self._is_lost(reply):
                        chunk.lose(number)
                    else:
                        chunk.outcomes[number] = _outcome_of(reply)

    def _is_lost(self, reply: Reply) -> bool:
        """Whether a worker ended without the candidate's fault; listens to its warnings."""
        for message in reply.body.get("warnings", ()):
            self._warnings.setdefault(message, False)
        if reply.phase != "observe" or reply.kind not in ("died", "timeout"):
            return reply.kind == "lost"
        # Other workers may have been told to observe before: they say nothing new.
        if self._observing:
            self._observing = False
            names = ", ".join(self._observers)
            self._warnings.setdefault(
                f"a worker was lost while it asked observers ({names}): {reply.message}; "
                "nothing is observed from here on",
                False,
            )
        return True

    def _started(self) -> tuple[WorkerPool, Path]:
        if self._pool is None or self._folder is None:
            raise WorkerStartFailed("the measurer has not been started, or was closed")
        return self._pool, self._folder

    @contextmanager
    def _timed(self, activity: str) -> Iterator[None]:
        begin = self._clock()
        try:
            yield
        finally:
            self._seconds[activity] += self._clock() - begin


@define
class _Chunk:
    """Candidates that are built together, and what is known of them, by position."""

    batch: int
    candidates: Sequence[Candidate | None]
    protocol: MeasureProtocol
    outcomes: dict[int, Outcome] = field(factory=dict)
    places: dict[int, Place] = field(factory=dict)
    losses: dict[int, int] = field(factory=dict)

    def missing(self, pool: WorkerPool) -> list[int]:
        """Positions without an outcome that no living worker has built."""
        return [
            number
            for number in range(len(self.candidates))
            if number not in self.outcomes
            and (number not in self.places or not pool.holds(self.places[number]))
        ]

    def build_job(self, number: int, observe: bool) -> Job:
        """The order to build a candidate."""
        candidate = self.candidates[number]
        message: Message = {
            "op": "build",
            "batch": self.batch,
            "handle": number,
            "candidate": None if candidate is None else candidate.to_json(),
            "observe": observe,
        }
        deadlines = {phase: self.protocol.deadlines[phase] for phase in _BUILD_PHASES}
        return Job(number, message, deadlines)

    def run_job(self, number: int, incumbent: float | None, observe: bool) -> Job:
        """The order to check and time a built candidate, to the worker that has it."""
        message: Message = {
            "op": "run",
            "handle": number,
            "protocol": self.protocol.to_json(),
            "incumbent": incumbent,
            "observe": observe,
        }
        deadlines = {phase: self.protocol.deadlines[phase] for phase in _TIMING_PHASES}
        return Job(number, message, deadlines, self.places[number])

    def lose(self, number: int) -> None:
        """A worker ended while it did nothing with this candidate: try again, but not for ever."""
        self.places.pop(number, None)
        self.losses[number] = self.losses.get(number, 0) + 1
        if self.losses[number] >= _MOST_BUILDS:
            self.outcomes[number] = Outcome(
                "crash", message=f"{_MOST_BUILDS} workers that were given it ended by themselves"
            )


def _outcome_of(reply: Reply) -> Outcome:
    """What a reply says about a candidate."""
    if reply.kind == "done":
        return Outcome.from_json(reply.body["outcome"])
    timings = {reply.phase: reply.seconds}
    if reply.kind == "timeout":
        return Outcome("timeout", timings=timings, message=reply.message)
    message = f"worker failed during {reply.phase}: {reply.message}"
    return Outcome("crash", timings=timings, message=message)


def _clean_up(pool: WorkerPool, folder: PrivateFolder, owner: int) -> None:
    # A forked copy of the host has these objects too, but not these processes.
    if os.getpid() == owner:
        pool.close()
        folder.remove()
