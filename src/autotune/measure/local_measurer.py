"""Measuring on this machine, in worker processes."""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from autotune.backends import Backend
from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.measure.batch import Batch
from autotune.measure.building import Span
from autotune.measure.held import HeldTrial
from autotune.measure.measurer import Collecting, LoadedProgram, Measurer, OnLeaderTimed
from autotune.measure.pinning import confined, quiet_neighbour_matters, timing_cpus
from autotune.measure.plausibility import Plausibility
from autotune.measure.pool import MOST_AHEAD, Place, WorkerPool
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing_session import TimingSession
from autotune.measure.trial import Leader, Trial, mark_duplicates
from autotune.measure.validation import write_reference
from autotune.measure.workers import Workers
from autotune.plugins.held import create_held_part
from autotune.process.errors import WorkerStartFailed
from autotune.process.memory import affordable_workers, default_memory_limit
from autotune.process.private_folder import PrivateFolder, make_private_folder
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.targets import Target

# How many candidates per worker are built before they are timed: enough to keep the workers
# busy to the end of a chunk, few enough that built programs do not fill the memory.
_CHUNK_PER_WORKER = 8
# What a worker with a compiler, its programs and their arrays may occupy.
_WORKER_BYTES = 1 << 30


class LocalMeasurer(Measurer):
    """Measures in long-lived worker processes on this machine.

    Candidates are built in parallel, each in the worker that will run it, beside the host;
    then they are checked and timed one after the other. Workers are started by :meth:`start`,
    best called before the host does anything else; they die with the host, whatever ends it, and
    with the thread that started them.

    Args:
        backend: Name of a registered backend, or an import string ``module:Class``.
        target: What candidates are built for.
        threads: Threads that a candidate may use.
        workload: What candidates compute.
        program: The imported program's text form, if there is one.
        protocol: How to measure.
        workers: Number of worker processes; by default one per usable core, or as many as memory
            is enough for.
        seed: Seed of the random inputs.
        observers: Names of observers.
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
        workers: int | None = None,
        seed: int = 0,
        observers: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if workers is None:
            workers = affordable_workers(len(os.sched_getaffinity(0)), _WORKER_BYTES)
        for name, value in (("threads", threads), ("workers", workers)):
            if value < 1:
                raise InvalidValueError(f"{name} must be at least 1, not {value}")
        self._backend = backend
        self._target = target
        self._threads = threads
        self._workload = workload
        self._program = program
        self._protocol = protocol or MeasureProtocol()
        self._worker_count = workers
        self._seed = seed
        self._observers = tuple(observers)
        self._clock = clock
        self._cpus, self._free_cpus = timing_cpus(threads)
        self._overlaps = False
        self._seconds = {"start": 0.0, "build": 0.0, "run": 0.0}
        self._trials = 0
        self._batches: deque[Batch] = deque()
        self._workers: Workers | None = None
        self._cleanup: Callable[[], object] | None = None
        # Which inputs the workers have: those of the search, or those of a rematch.
        self._inputs: str | None = None

    @property
    def seconds(self) -> Mapping[str, float]:
        """Wall seconds so far, by ``start`` (waiting for workers), ``build`` and ``run``."""
        return dict(self._seconds)

    @property
    def versions(self) -> Mapping[str, str]:
        """``backend_version`` and ``compiler_version`` as the workers found them, once ready."""
        return dict(self._workers.pool.versions) if self._workers is not None else {}

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers, for people who look at the machine."""
        return list(self._workers.pool.pids().values()) if self._workers is not None else []

    def start(self) -> None:
        """Start the workers, which import the compiler, and return at once."""
        if self._workers is not None:
            return
        # Programs that leave cores free are timed on theirs while others build. Tried before
        # there are workers: the CPUs have to be idle for it.
        self._overlaps = bool(self._free_cpus) and not quiet_neighbour_matters(
            self._cpus[0], self._free_cpus[0]
        )
        backend: Backend = create_held_part("backend", self._backend)
        environment = backend.worker_environment(self._threads)
        folder = make_private_folder()
        memory = self._protocol.memory_bytes
        pool = WorkerPool(
            self._backend,
            self._threads,
            environment,
            workers=self._worker_count,
            deadlines=self._protocol.deadlines,
            memory_bytes=default_memory_limit() if memory is None else memory,
            folder=folder,
            clock=self._clock,
        )
        # Before there are workers, like all that is found out about the machine.
        plausibility = (
            None
            if backend.simulated_times
            else Plausibility.of(self._workload, self._target, self._threads)
        )
        self._workers = Workers.of(
            pool, self._cpus, self._protocol, self._seed, self._observers, plausibility
        )
        # Also runs when the interpreter exits or the measurer is forgotten.
        self._cleanup = weakref.finalize(
            self, _clean_up, pool, folder, self._workers.files, os.getpid()
        )
        pool.start()

    def wait_ready(self) -> None:
        """Prepare inputs and reference outputs, and wait until the workers have them.

        Raises:
            WorkerStartFailed: the workers cannot be brought up.
        """
        self.start()
        with self._timed("start"):
            self._give_inputs("search", self._seed)
            self._started().pool.wait_ready()

    def submit(self, candidates: Sequence[Candidate]) -> None:
        """See :meth:`Measurer.submit`."""
        self.wait_ready()
        unique = {candidate.digest: candidate for candidate in candidates}
        trials = {digest: self._trial(candidate) for digest, candidate in unique.items()}
        self._batches.append(Batch([trials[candidate.digest] for candidate in candidates]))
        self._build_ahead()

    def collect(self, collecting: Collecting) -> list[Outcome]:
        """See :meth:`Measurer.collect`."""
        if not self._batches:
            raise InvalidValueError("no submitted batch is left to collect")
        workers, batch = self._started(), self._batches[0]
        with self._cancelling():
            try:
                self._hold(collecting.leader, collecting.on_leader_timed)
                while not batch.is_over and not collecting.enough():
                    self._time(batch, collecting)
            except KeyboardInterrupt:
                # What has been timed is worth telling, also without its turns beside the best.
                workers.timing.finish_early()
                batch.tell_rest(collecting.on_outcome)
                raise
            finally:
                self._batches.popleft()
                batch.abandon()
            self._forget(batch.trials)
            self._build_ahead()
        return batch.delivered

    def measure_baselines(self, programs: Sequence[Candidate | None]) -> list[Outcome]:
        """See :meth:`Measurer.measure_baselines`."""
        self.wait_ready()
        workers = self._started()
        trials = [self._trial(program, always=True) for program in programs]
        timing = workers.new_session()
        with self._cancelling():
            self._await_built(trials)
            mark_duplicates(trials)
            while waiting := [trial for trial in trials if timing.is_untimed(trial)]:
                self._await_built(waiting)
                with self._undisturbed(trials):
                    for trial in waiting:
                        if trial.outcome is None:
                            timing.screen(trial)
            with self._undisturbed(trials):
                timing.settle()
            for trial in trials:
                trial.take_from_original()
            self._forget(trials)
        return [trial.outcome for trial in trials if trial.outcome is not None]

    def rematch(self, candidates: Sequence[Candidate | None]) -> list[Outcome]:
        """See :meth:`Measurer.rematch`."""
        trials = [self._trial(candidate, always=True) for candidate in candidates]
        with self._cancelling():
            timing = self._begin_rematch()
            while waiting := [trial for trial in trials if trial.outcome is None]:
                self._await_built(waiting)
                with self._undisturbed(waiting):
                    timing.rematch([trial for trial in waiting if trial.outcome is None])
        return [trial.outcome for trial in trials if trial.outcome is not None]

    def hold(self, candidate: Candidate | None) -> LoadedProgram:
        """See :meth:`Measurer.hold`."""
        trial = self._trial(candidate, always=True)
        with self._cancelling():
            timing = self._begin_rematch()
            while trial.outcome is None and not trial.samples:
                self._await_built([trial])
                if trial.outcome is None:
                    with self._undisturbed([trial]):
                        timing.check(trial)
        return HeldTrial(trial, timing, self._undisturbed)

    def _begin_rematch(self) -> TimingSession:
        """End all jobs, and give the workers new inputs."""
        self._batches.clear()
        self.wait_ready()
        workers = self._started()
        workers.dispatcher.drain()
        # Workers forget what they hold when they are given other inputs.
        workers.timing.lead(None)
        self._give_inputs("rematch", self._seed + 1)
        return workers.new_session()

    def take_build_spans(self) -> list[Span]:
        """See :meth:`Measurer.take_build_spans`."""
        return self._workers.building.take_spans() if self._workers is not None else []

    def take_warnings(self) -> list[str]:
        """See :meth:`Measurer.take_warnings`."""
        return self._workers.dispatcher.take_warnings() if self._workers is not None else []

    def close(self) -> None:
        """End every process and remove every file. Calling it again does nothing."""
        if self._cleanup is not None:
            self._cleanup()
        self._workers = None
        self._inputs = None
        self._batches.clear()

    def _trial(self, candidate: Candidate | None, *, always: bool = False) -> Trial:
        self._trials += 1
        return Trial(self._trials, candidate, always)

    def _build_ahead(self) -> None:
        """Begin to build what comes next, unless a timing would be disturbed by it."""
        for batch in list(self._batches) if self._overlaps else list(self._batches)[:1]:
            if not batch.chunk:
                self._started().building.add(
                    batch.next_chunk(_CHUNK_PER_WORKER * self._worker_count)
                )

    def _hold(self, leader: Leader | None, on_timed: OnLeaderTimed | None = None) -> None:
        """Have the best candidate ready to be timed beside others.

        One that was not timed in this session is timed first, and is the best one only if that
        shows it.
        """
        timing = self._started().timing
        if leader is None or timing.leads(leader.candidate.digest):
            return
        trial = self._trial(leader.candidate, always=True)
        self._await_built([trial])
        if trial.outcome is None:
            with self._undisturbed([trial]):
                timing.install(trial, leader.latency)
        trial.abandoned = trial.outcome is None
        if leader.latency is None and trial.outcome is not None and trial.outcome.ok:
            self._forget([trial])
            if on_timed is not None:
                on_timed(trial.latency)

    def _time(self, batch: Batch, collecting: Collecting) -> None:
        """Time a chunk; tells outcomes in order as soon as they are known."""
        timing, chunk = self._started().timing, batch.chunk
        while group := self._next_group(chunk, collecting):
            self._hold(timing.lost_leader)
            with self._undisturbed(group, later=_open(chunk)):
                for trial in group:
                    timing.screen(trial)
                    batch.tell(collecting.on_outcome)
                    if collecting.enough():
                        break
            if collecting.enough():
                break
        self._hold(timing.lost_leader)
        with self._undisturbed(_open(chunk)):
            timing.settle(collecting.on_comparison)
        for trial in chunk:
            trial.take_from_original()
        batch.tell(collecting.on_outcome)
        self._started().remember(chunk)
        self._forget([trial for trial in chunk if trial is not timing.leader])
        batch.chunk = []
        self._build_ahead()

    def _next_group(self, chunk: Sequence[Trial], collecting: Collecting) -> list[Trial]:
        """Built candidates of one worker that are to be timed now; none when all are timed.

        What is timed keeps its worker from building, and that of the best candidate. So nothing
        is timed before most workers have begun the last that they build of the chunk, and where
        builds disturb, before all is built.
        """
        workers = self._started()
        while True:
            workers.timing.release_lost()
            for trial in chunk:
                self._look_up(trial, collecting)
            untimed = [trial for trial in chunk if workers.timing.is_untimed(trial)]
            built = [trial for trial in untimed if workers.holds(trial)]
            by_a_few = self._worker_count // 2 * MOST_AHEAD if self._overlaps and built else 0
            if len(untimed) - len(built) <= by_a_few:
                return self._held_by_one(built)
            with self._timed("build"):
                workers.building.attend(untimed)

    def _held_by_one(self, built: Sequence[Trial]) -> list[Trial]:
        """Those that one worker holds; what the best candidate's holds comes last.

        That worker is needed for the others, too, which may build again after their turn.
        """
        leader = self._started().timing.leader
        busy = None if leader is None else leader.place
        places = [trial.place for trial in built]
        first = next((place for place in places if place != busy), busy)
        return [trial for trial in built if trial.place == first]

    def _look_up(self, trial: Trial, collecting: Collecting) -> None:
        """Find out whether a candidate's program has been measured, by this run or before."""
        if trial.outcome is not None or trial.samples:
            return
        if trial.duplicate_of is not None:
            if trial.duplicate_of.is_inconclusive:
                self._started().building.reassign_duplicate(trial)
            return
        for digest in filter(None, (trial.lowered, trial.binary)):
            found = collecting.recall(digest)
            if found is not None:
                trial.take(found)
                return

    def _await_built(self, trials: Sequence[Trial]) -> None:
        with self._timed("build"):
            self._started().building.await_all(trials)

    def _forget(self, trials: Sequence[Trial]) -> None:
        """Let workers free the programs of trials that are over.

        In one message each: a worker is only given a few at a time, and builds are to follow.
        """
        workers, seconds = self._started(), self._protocol.deadlines["load"]
        numbers: dict[Place, list[int]] = {}
        for trial in trials:
            if (
                trial.place is not None
                and workers.holds(trial)
                and trial is not workers.timing.leader
            ):
                numbers.setdefault(trial.place, []).append(trial.number)
                trial.place = None
        for place, those in numbers.items():
            message = {"op": "forget", "numbers": those}
            workers.dispatcher.post(message, {"load": seconds}, _ignore, place)

    @contextmanager
    def _undisturbed(self, trials: Sequence[Trial], later: Sequence[Trial] = ()) -> Iterator[None]:
        """Time is taken inside: whatever would share CPUs with it waits.

        Args:
            trials: What is timed.
            later: What may be timed next: the workers that hold it begin nothing that would have
                to be waited for then.
        """
        workers = self._started()
        with self._timed("run"):
            leader = workers.timing.leader
            timed = {it.place[0] for it in (*trials, leader) if it is not None and it.place}
            soon = {trial.place[0] for trial in later if trial.place is not None}
            workers.pool.reserve(timed if self._overlaps else range(self._worker_count), soon)
            try:
                workers.dispatcher.settle_down()
                builders = [
                    pid for index, pid in workers.pool.pids().items() if index not in timed
                ]
                with confined(builders if self._overlaps else [], self._free_cpus):
                    yield
            finally:
                workers.pool.reserve(())

    @contextmanager
    def _cancelling(self) -> Iterator[None]:
        """What is left undone inside, because of an error or an interrupt, is given up."""
        is_done = False
        try:
            yield
            is_done = True
        finally:
            if not is_done and self._workers is not None:
                self._batches.clear()
                self._workers.building.abandon()
                self._workers.dispatcher.cancel()

    def _give_inputs(self, kind: str, seed: int) -> None:
        """Tell the workers what to run programs on, if they run them on something else."""
        if self._inputs == kind:
            return
        workers = self._started()
        files = write_reference(self._workload, seed)
        # To the end: a worker may still be about to read those before these.
        workers.files.callback(files.close)
        message = {
            "op": "task",
            "workload": self._workload.to_json(),
            "program": self._program,
            "target": self._target.to_json(),
            "threads": self._threads,
            "cpus": workers.cpus,
            "protocol": self._protocol.to_json(),
            "seed": seed,
            "observers": list(self._observers),
            "inputs": files.inputs,
            "outputs": files.outputs,
        }
        workers.pool.tell(message, replace=True)
        self._inputs = kind

    def _started(self) -> Workers:
        if self._workers is None:
            raise WorkerStartFailed("the measurer has not been started, or was closed")
        return self._workers

    @contextmanager
    def _timed(self, activity: str) -> Iterator[None]:
        begin = self._clock()
        try:
            yield
        finally:
            self._seconds[activity] += self._clock() - begin


def _open(chunk: Sequence[Trial]) -> list[Trial]:
    """Those that have no outcome yet."""
    return [trial for trial in chunk if trial.outcome is None]


def _ignore(_reply: object) -> None:
    """Ignore a reply."""


def _clean_up(pool: WorkerPool, folder: PrivateFolder, files: ExitStack, owner: int) -> None:
    # A forked copy of the host has these objects too, but not these processes.
    if os.getpid() == owner:
        pool.close()
        files.close()
        folder.remove()
