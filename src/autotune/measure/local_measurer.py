"""Measuring on this machine, in worker processes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from attrs import define, field, frozen

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.measure.jobs import Place, Steps
from autotune.measure.lanes import Lanes
from autotune.measure.measurer import (
    Collecting,
    LoadedProgram,
    Measurer,
    MeasurerContext,
    OnKnown,
    OnLeaderTimed,
)
from autotune.measure.pinning import confined
from autotune.measure.pool import MOST_AHEAD
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing_session import TimingSession
from autotune.measure.trial import (
    Batch,
    Building,
    Leader,
    Span,
    Trial,
    held_together,
    mark_duplicates,
)
from autotune.measure.validation import ReferenceFiles, reserve_reference
from autotune.measure.workers import (
    MeasureWorkers,
    SharedWorkers,
    Workers,
    WorkerSetup,
)
from autotune.plugins.options import NoOptions, read_options
from autotune.process.ending import ending_with
from autotune.process.errors import TimeIsOver, WorkerStartFailed
from autotune.process.interrupts import unless_done
from autotune.process.stopwatch import Clock
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.targets import Target

if TYPE_CHECKING:
    from typing_extensions import Self

_Found = TypeVar("_Found")

# How many candidates per worker are built before they are timed: enough to keep the workers
# busy to the end of a chunk, few enough that built programs do not fill the memory.
_CHUNK_PER_WORKER = 8
# And how many per machine that times: built programs wait for machines, not the other way round.
_AHEAD_PER_LANE = 4


def make_local_measurer(context: MeasurerContext) -> LocalMeasurer:
    """A :class:`~autotune.measure.LocalMeasurer` for the context's workload.

    Raises:
        InvalidValueError: an option is given.
    """
    read_options("measurer 'local'", NoOptions, context.options)
    return LocalMeasurer.of(context)


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
        shared: Has the workers, which other tasks may use too; without it they are the
            measurer's own.

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
        clock: Clock = time.monotonic,
        shared: SharedWorkers | None = None,
    ) -> None:
        for name, value in (("threads", threads), ("workers", workers)):
            if value is not None and value < 1:
                raise InvalidValueError(f"{name} must be at least 1, not {value}")
        protocol = protocol or MeasureProtocol()
        setup = WorkerSetup(backend, target, threads, protocol, tuple(observers), workers)
        self._shares = shared is not None
        self._workers: MeasureWorkers = (
            Workers(setup, clock) if shared is None else shared.get(setup)
        )
        self._workload, self._program, self._seed = workload, program, seed
        self._seconds = ActivitySeconds(clock)
        self._batches: deque[Batch] = deque()
        self._client: TaskClient | None = None

    @classmethod
    def of(cls, context: MeasurerContext) -> Self:
        """The measurer of a context, whose options are checked."""
        setup = context.setup
        return cls(
            setup.backend,
            setup.target,
            setup.threads,
            context.workload,
            context.program,
            protocol=setup.protocol,
            workers=setup.count,
            seed=context.seed,
            observers=setup.observers,
            shared=context.workers,
        )

    @property
    def seconds(self) -> Mapping[str, float]:
        """Wall seconds so far, by ``start`` (waiting for workers), ``build`` and ``run``."""
        return dict(self._seconds.taken)

    @property
    def shares_workers(self) -> bool:
        """See :attr:`Measurer.shares_workers`."""
        return self._shares

    @property
    def versions(self) -> Mapping[str, str]:
        """``backend_version`` and ``compiler_version`` as the workers found them, once ready."""
        return dict(self._workers.pool.versions) if self._workers.is_running else {}

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers, for people who look at the machine."""
        return list(self._workers.pool.pids().values()) if self._workers.is_running else []

    def start(self) -> None:
        """Start the workers, which import the compiler, and return at once."""
        self._workers.start()
        if self._client is None:
            self._client = TaskClient(
                self._workers, self._workload, self._program, self._seed, self._seconds
            )

    def wait_ready(self) -> None:
        """Wait until the workers can build; inputs and what is right come before something runs.

        Raises:
            WorkerStartFailed: the workers cannot be brought up.
        """
        self.start()
        self._make_ready(self._started().inputs or "search")

    def submit(self, candidates: Sequence[Candidate]) -> None:
        """See :meth:`Measurer.submit`."""
        self._make_ready("search")
        client = self._started()
        unique = {candidate.digest: candidate for candidate in candidates}
        trials = {digest: client.trial(candidate) for digest, candidate in unique.items()}
        self._batches.append(Batch([trials[candidate.digest] for candidate in candidates]))
        client.build_ahead(self._batches)
        client.fill_inputs()

    def collect(self, collecting: Collecting) -> list[Outcome]:
        """See :meth:`Measurer.collect`; what was submitted later may be measured meanwhile."""
        if not self._batches:
            raise InvalidValueError("no submitted batch is left to collect")
        client, batch = self._started(), self._batches[0]
        with unless_done(self._give_up):
            try:
                self._run(
                    Collection(client, self._batches, collecting, client.uses_lanes),
                    lambda: batch.tell(collecting.on_outcome),
                    lambda: len(batch.delivered) == len(batch.in_order),
                    lambda: batch.tell_rest(collecting.on_outcome),
                )
            finally:
                self._batches.popleft()
                batch.abandon()
            client.forget(batch.trials)
            client.build_ahead(self._batches)
        return batch.delivered

    @property
    def lanes(self) -> int:
        """See :attr:`Measurer.lanes`."""
        return max(1, len(self._workers.pool.lanes)) if self._workers.is_running else 1

    def collect_known(self, collecting: Collecting, count: int, on_known: OnKnown) -> int:
        """See :meth:`Measurer.collect_known`."""
        told = 0

        def tell() -> None:
            nonlocal told
            for batch in self._batches:
                for candidate, outcome in batch.take_known():
                    told += 1
                    on_known(candidate, outcome)
            while self._batches and self._batches[0].is_taken:
                self._batches.popleft()

        collection = Collection(self._started(), self._batches, collecting, on_lanes=True)
        with unless_done(self._give_up):
            self._run(collection, tell, lambda: told >= count or not self._batches, tell)
        return told

    def _run(
        self,
        collection: Collection,
        tell: Callable[[], None],
        is_over: Callable[[], bool],
        tell_rest: Callable[[], None],
    ) -> None:
        """Measure what was submitted, until it is over or there was enough."""
        try:
            collection.run(tell, is_over)
        except (KeyboardInterrupt, TimeIsOver):
            # What has been timed is worth telling, also without its turns beside the best.
            collection.finish_early()
            tell_rest()
            raise

    def measure_baselines(
        self, programs: Sequence[Candidate | None], best: float | None = None
    ) -> list[Outcome]:
        """See :meth:`Measurer.measure_baselines`."""
        self._make_ready("search")
        client = self._started()
        client.lanes.rest()
        trials = [client.trial(program, always=True) for program in programs]
        timing, io_bytes = client.new_session(), client.workload.io_bytes
        with unless_done(self._give_up):
            client.await_built(trials)
            mark_duplicates(trials)
            while waiting := [trial for trial in trials if timing.is_untimed(trial)]:
                client.await_built(waiting)
                with client.undisturbed(trials):
                    for trial in waiting:
                        if trial.outcome is not None:
                            continue
                        if best is None:
                            client.carry_out(timing.screen(trial))
                        else:
                            client.carry_out(timing.screen_baseline(trial, best, io_bytes))
            with client.undisturbed(trials):
                client.carry_out(timing.settle())
            for trial in trials:
                trial.take_from_original()
            client.forget(trials)
        return [trial.outcome for trial in trials if trial.outcome is not None]

    def rematch(self, candidates: Sequence[Candidate | None]) -> list[Outcome]:
        """See :meth:`Measurer.rematch`."""
        with unless_done(self._give_up):
            client, timing = self._begin_rematch()
            trials = [client.trial(candidate, always=True) for candidate in candidates]
            while waiting := [trial for trial in trials if trial.outcome is None]:
                client.await_built(waiting)
                with client.undisturbed(waiting):
                    again = [trial for trial in waiting if trial.outcome is None]
                    client.carry_out(timing.rematch(again))
        return [trial.outcome for trial in trials if trial.outcome is not None]

    def hold(self, candidate: Candidate | None) -> LoadedProgram:
        """See :meth:`Measurer.hold`."""
        with unless_done(self._give_up):
            client, timing = self._begin_rematch()
            trial = client.trial(candidate, always=True)
            while trial.outcome is None and not trial.samples:
                client.await_built([trial])
                if trial.outcome is None:
                    with client.undisturbed([trial]):
                        client.carry_out(timing.check(trial))
        return HeldTrial(trial, timing, client)

    def _begin_rematch(self) -> tuple[TaskClient, TimingSession]:
        """End all jobs, and give the workers new inputs."""
        self._batches.clear()
        self.start()
        client = self._started()
        client.lanes.rest()
        client.dispatcher.drain()
        # Workers forget what they hold when they are given other inputs.
        client.forget_leaders()
        self._make_ready("rematch")
        return client, client.new_session()

    def take_build_spans(self) -> list[Span]:
        """See :meth:`Measurer.take_build_spans`."""
        return self._client.building.take_spans() if self._client is not None else []

    def take_warnings(self) -> list[str]:
        """See :meth:`Measurer.take_warnings`."""
        if self._client is None:
            return []
        return [*self._client.dispatcher.take_warnings(), *self._workers.take_warnings()]

    def close(self) -> None:
        """Free what is kept for the task; ends every process, unless others may use it too.

        Calling it again does nothing.
        """
        if self._client is not None:
            self._client.lanes.stop()
            self._client.close()
            self._client = None
        if not self._shares:
            self._workers.close()
        self._batches.clear()

    def _make_ready(self, inputs: str) -> None:
        """Have workers that know the task, with one or the other inputs."""
        self.start()
        with self._seconds.timed("start"):
            self._started().give_inputs(inputs)
            self._workers.pool.wait_ready()

    def _give_up(self) -> None:
        """Cancel what was begun and is not done, because of an error or an interrupt."""
        client = self._client
        if client is not None:
            if client.lanes.is_used:
                # What is built is forgotten, too, and no copy of the best can be had any more.
                client.lanes.stop()
                client.forget_leaders()
            self._batches.clear()
            client.building.abandon()
            client.dispatcher.cancel()

    def _started(self) -> TaskClient:
        if self._client is None:
            raise WorkerStartFailed("the measurer has not been started, or was closed")
        return self._client


@define(eq=False)
class ActivitySeconds:
    """Wall seconds by activity.

    Attributes:
        clock: Monotonic seconds.
        taken: Seconds so far.
    """

    clock: Clock
    taken: dict[str, float] = field(factory=lambda: dict.fromkeys(("start", "build", "run"), 0.0))

    @contextmanager
    def timed(self, activity: str) -> Iterator[None]:
        """Count what is done inside."""
        begin = self.clock()
        try:
            yield
        finally:
            self.taken[activity] += self.clock() - begin


# How often to ask whether another process has ended its turn.
_TURN_SECONDS = 0.02


class TaskClient:
    """Client of the workers for one task.

    Args:
        workers: The workers, which have been started and know nothing of it yet.
        workload: What candidates compute.
        program: The imported program's text form, if there is one.
        seed: Seed of the random inputs, and of the order of turns.
        seconds: Counts wall seconds.

    Attributes:
        dispatcher: Gives them the jobs of the task.
        building: Has them build.
        timing: The session of the search.
        lanes: Time candidates on several machines at once, where there are several.
        close: Frees what workers and host keep for the task.
        inputs: What the workers run programs on: ``search``, ``rematch``, or "" for nothing yet.
    """

    def __init__(
        self,
        workers: MeasureWorkers,
        workload: Workload,
        program: str | None,
        seed: int,
        seconds: ActivitySeconds,
    ) -> None:
        self.workers, self.workload, self.seconds = workers, workload, seconds
        self.dispatcher = workers.admit()
        self.building = Building(self.dispatcher, workers.setup.protocol)
        self.inputs = ""
        self._program, self._seed = program, seed
        self._rng = np.random.default_rng(seed)
        self._plausibility = workers.plausibility(workload)
        self._reference: ReferenceFiles | None = None
        self._files = ExitStack()
        self._trials = 0
        self.timing = self.new_session()
        self.lanes = Lanes(self.dispatcher, self.timing, self._session_of_lane)
        self.close = ending_with(self, self.dispatcher.release, self._files.close)

    def new_session(self) -> TimingSession:
        """Start another session of timing with the workers."""
        return self._session(self._rng)

    def _session_of_lane(self, lane: int) -> TimingSession:
        # Lanes take their turns at the same time: each has a generator of its own.
        return self._session(np.random.default_rng([self._seed, lane]))

    def _session(self, rng: np.random.Generator) -> TimingSession:
        workers, protocol = self.workers, self.workers.setup.protocol
        pool = self.dispatcher.pool
        return workers.session(pool, protocol, rng, plausibility=self._plausibility)

    def trial(self, candidate: Candidate | None, *, always: bool = False) -> Trial:
        """A trial with a number of its own."""
        self._trials += 1
        return Trial(self._trials, candidate, always)

    def give_inputs(self, kind: str) -> None:
        """Tell the workers what to run programs on, if they run them on something else.

        They forget then what they hold of this task, and can build; before something runs,
        :meth:`fill_inputs` has to be called.

        Args:
            kind: ``search``, or ``rematch`` for other inputs.
        """
        if self.inputs == kind:
            return
        setup, seed = self.workers.setup, self._seed + (kind == "rematch")
        files = reserve_reference(self.workload, seed)
        # To the end: a worker may still be about to read those before these.
        self._files.callback(files.close)
        message = {
            "op": "task",
            "task": self.dispatcher.task,
            "workload": self.workload.to_json(),
            "program": self._program,
            "target": setup.target.to_json(),
            "threads": setup.threads,
            "cpus": list(self.workers.cpus),
            "protocol": setup.protocol.to_json(),
            "seed": seed,
            "quick": kind == "search",
            "observers": list(setup.observers),
            **self.workers.publish(files),
        }
        self.dispatcher.pool.tell(self.dispatcher.task, message, replace=True)
        self.inputs, self._reference = kind, files

    def fill_inputs(self) -> None:
        """Have the inputs, and what is right; best called while workers build.

        Again, it does nothing.

        Raises:
            WorkerStartFailed: there is no memory for them.
        """
        if self._reference is not None:
            with self.seconds.timed("start"):
                self._reference.fill()

    def holds(self, trial: Trial) -> bool:
        """Return whether a living worker has the program of a trial."""
        return trial.place is not None and self.dispatcher.pool.holds(trial.place)

    def remember(self, trials: Sequence[Trial]) -> None:
        """Tell the workers which programs need not be compiled again."""
        known = [
            trial.lowered
            for trial in trials
            if trial.lowered and trial.outcome is not None and not trial.outcome.retriable
        ]
        if known:
            task = self.dispatcher.task
            self.dispatcher.pool.tell(task, {"op": "known", "task": task, "programs": known})

    def forget(self, trials: Sequence[Trial]) -> None:
        """Let workers free the programs of trials that are over.

        In one message each: a worker is only given a few at a time, and builds are to follow.
        """
        seconds = self.workers.setup.protocol.deadlines["load"]
        numbers: dict[Place, list[int]] = {}
        for trial in trials:
            if trial.place is not None and self.holds(trial) and trial is not self.timing.leader:
                numbers.setdefault(trial.place, []).append(trial.number)
                trial.place = None
        for place, those in numbers.items():
            message = {"op": "forget", "numbers": those}
            self.dispatcher.post(message, {"load": seconds}, lambda _reply: None, place)

    def forget_leaders(self) -> None:
        """Compare nothing with the best program so far, which workers do not hold any more."""
        self.timing.lead(None)
        self.lanes.forget()

    def carry_out(self, steps: Steps[_Found]) -> _Found:
        """Do steps of timing; best :meth:`undisturbed`."""
        return self.dispatcher.carry_out(steps)

    @property
    def uses_lanes(self) -> bool:
        """True if several machines time at the same time, now or before."""
        return self.lanes.is_used or self.lanes.count > 1

    def build_ahead(self, batches: deque[Batch]) -> None:
        """Begin to build what comes next, unless a timing would be disturbed by it."""
        for batch in list(batches) if self.workers.overlaps else list(batches)[:1]:
            if not batch.chunk:
                self.building.begin(batch.next_chunk(_CHUNK_PER_WORKER * self.workers.count))

    def await_built(self, trials: Sequence[Trial]) -> None:
        """Have programs built; inputs are filled in meanwhile."""
        self.building.begin(trials)
        self.fill_inputs()
        with self.seconds.timed("build"):
            self.building.await_all(trials)

    def hold(self, leader: Leader | None, on_timed: OnLeaderTimed | None = None) -> None:
        """Have the best candidate ready to be timed beside others.

        One that was not timed in this session is timed first, and is the best one only if that
        shows it.
        """
        if leader is None or self.timing.leads(leader.candidate.digest):
            return
        trial = self.trial(leader.candidate, always=True)
        self.await_built([trial])
        if trial.outcome is None:
            with self.undisturbed([trial]):
                self.carry_out(self.timing.install(trial, leader.latency))
        trial.abandoned = trial.outcome is None
        if leader.latency is None and trial.outcome is not None and trial.outcome.ok:
            self.forget([trial])
            if on_timed is not None:
                on_timed(trial.latency)

    @contextmanager
    def undisturbed(self, trials: Sequence[Trial], later: Sequence[Trial] = ()) -> Iterator[None]:
        """Time is taken inside: whatever would share CPUs with it waits.

        Other processes that time on these CPUs are waited for, and wait.

        Args:
            trials: What is timed.
            later: What may be timed next: the workers that hold it begin nothing that would have
                to be waited for then.
        """
        workers = self.workers
        pool, lock = workers.pool, workers.timing_lock
        self.fill_inputs()
        with self.seconds.timed("run"):
            try:
                while not lock.acquire():
                    self.dispatcher.pump(0.0)
                    time.sleep(_TURN_SECONDS)
                leader = self.timing.leader
                timed = {it.place[0] for it in (*trials, leader) if it is not None and it.place}
                soon = {trial.place[0] for trial in later if trial.place is not None}
                pool.reserve(timed if workers.overlaps else range(workers.count), soon)
                self.dispatcher.settle_down()
                builders = [pid for index, pid in pool.pids().items() if index not in timed]
                with confined(builders if workers.overlaps else [], workers.free_cpus):
                    yield
            finally:
                pool.reserve(())
                lock.release()


@frozen(eq=False)
class HeldTrial(LoadedProgram):
    """A trial that a worker holds.

    Attributes:
        trial: The trial; it has an outcome if it failed.
        timing: Times it.
        client: Keeps other work away meanwhile.
    """

    trial: Trial
    timing: TimingSession
    client: TaskClient

    @property
    def failure(self) -> Outcome | None:
        return self.trial.outcome

    def turn(self, placement: int) -> float | None:
        if self.trial.outcome is not None:
            return None
        with self.client.undisturbed([self.trial]):
            seconds = self.client.carry_out(self.timing.turn(self.trial, placement))
        if seconds is None and self.trial.outcome is None:
            self.trial.fail("crash", "the worker that held it ended")
        return seconds


# How many candidates a machine takes at a time.
_MOST_TOGETHER = 8


@define(eq=False)
class Collection:
    """Building and timing of what was submitted, until there is enough of it.

    On one machine a chunk is built, each candidate in the worker that will run it, checked, and
    then timed in turns with the best one. Among several machines programs travel by the hash of
    their content, so that none is bound to a machine before it is loaded there: a machine that is
    done takes the next program that is built, and none waits for a slower one. A machine without
    anything to time may build meanwhile.

    Attributes:
        client: The task.
        batches: What was submitted and not collected, in order.
        collecting: What is to be called, but for outcomes.
        on_lanes: Whether several machines time.
    """

    client: TaskClient
    batches: deque[Batch]
    collecting: Collecting
    on_lanes: bool
    _done: list[Trial] = field(factory=list, init=False)
    _looked_up: set[tuple[int, str]] = field(factory=set, init=False)

    def run(self, tell: Callable[[], None], is_over: Callable[[], bool]) -> None:
        """Build and time, until it is over or there was enough.

        Args:
            tell: Called whenever outcomes may have become known.
            is_over: Whether all is known that was asked for.
        """
        client, collecting = self.client, self.collecting
        self._lead()
        tell()
        while not is_over():
            if collecting.enough():
                self._take(client.lanes.rest(collecting.on_comparison))
                tell()
                break
            if self.on_lanes:
                self._serve_lanes()
            else:
                self._time_chunk(tell)
            tell()
        client.remember(self._done)
        client.lanes.release_leases()

    def finish_early(self) -> None:
        """End after an interrupt what has been timed, and what has the same program."""
        self.client.lanes.stop()
        self.client.timing.finish_early()
        for trial in self._open():
            trial.take_from_original()

    def _lead(self) -> None:
        """Have the best candidate ready, unless lanes have found a faster one since."""
        client, leader = self.client, self.collecting.leader
        if leader is not None and self.on_lanes:
            timing = client.timing
            is_older = leader.latency is not None and timing.latency <= leader.latency
            if timing.leader is not None and is_older:
                return
            client.lanes.rest()
        client.hold(leader, self.collecting.on_leader_timed)

    def _time_chunk(self, tell: Callable[[], None]) -> None:
        """Time a chunk of the first batch, and have the next one built."""
        client, batch, timing = self.client, self.batches[0], self.client.timing
        chunk, enough = batch.chunk, self.collecting.enough
        while group := self._next_group(chunk):
            client.hold(timing.lost_leader)
            with client.undisturbed(group, later=batch.open_chunk):
                for trial in group:
                    client.carry_out(timing.screen(trial))
                    tell()
                    if enough():
                        break
            if enough():
                break
        client.hold(timing.lost_leader)
        with client.undisturbed(batch.open_chunk):
            client.carry_out(timing.settle(self.collecting.on_comparison))
        for trial in chunk:
            trial.take_from_original()
        tell()
        client.remember(chunk)
        client.forget(chunk)
        batch.chunk = []
        client.build_ahead(self.batches)

    def _next_group(self, chunk: Sequence[Trial]) -> list[Trial]:
        """Built candidates of one worker that are to be timed now; none when all are timed.

        What is timed keeps its worker from building, and that of the best candidate. So nothing
        is timed before most workers have begun the last that they build of the chunk, and where
        builds disturb, before all is built.
        """
        client = self.client
        while True:
            client.timing.release_lost()
            for trial in chunk:
                if client.building.measured_later(trial, chunk):
                    client.building.take_over(trial)
                self._look_up(trial)
            untimed = [trial for trial in chunk if client.timing.is_untimed(trial)]
            built = [trial for trial in untimed if client.holds(trial)]
            overlaps = client.workers.overlaps and built
            by_a_few = client.workers.count // 2 * MOST_AHEAD if overlaps else 0
            if len(untimed) - len(built) <= by_a_few:
                return held_together(built, client.timing.leader)
            with client.seconds.timed("build"):
                client.building.attend(untimed)

    def _look_up(self, trial: Trial) -> None:
        """Find out whether a candidate's program has been measured, by this run or before."""
        if trial.outcome is not None or trial.samples:
            return
        if trial.duplicate_of is not None:
            if trial.duplicate_of.is_inconclusive:
                self.client.building.reassign_duplicate(trial)
            return
        for digest in filter(None, (trial.lowered, trial.binary)):
            if (trial.number, digest) in self._looked_up:
                continue
            self._looked_up.add((trial.number, digest))
            found = self.collecting.recall(digest)
            if found is not None:
                trial.take(found)
                return

    def _open(self) -> Iterator[Trial]:
        """Trials without an outcome, in order of submission."""
        return (it for batch in self.batches for it in batch.in_order if it.outcome is None)

    def _waiting(self) -> list[Trial]:
        """Return as many of them as there is room for, without those that lanes are at."""
        lanes = self.client.lanes
        most = _CHUNK_PER_WORKER * self.client.workers.count + _AHEAD_PER_LANE * lanes.count
        waiting = (trial for trial in self._open() if not lanes.is_timing(trial))
        return list(islice(dict.fromkeys(waiting), most))

    def _ready(self) -> Iterator[Trial]:
        for trial in self._waiting():
            if trial.duplicate_of is not None or self.client.holds(trial):
                self._look_up(trial)
                if self.client.timing.is_untimed(trial) and self.client.holds(trial):
                    yield trial

    def _serve_lanes(self) -> None:
        """Hand out what is built, and wait a moment for what may happen."""
        client, lanes = self.client, self.client.lanes
        self._feed()
        with client.seconds.timed("run" if lanes.busy else "build"):
            client.building.request(self._waiting())
            self._take(lanes.serve(self.collecting.on_comparison))

    def _feed(self) -> None:
        """Give each idle machine what is to be timed next."""
        client, lanes, timing = self.client, self.client.lanes, self.client.timing
        if timing.leader is not None and lanes.are_unable:
            timing.lead(None)
        idle = lanes.idle()
        ready = list(self._ready()) if idle else []
        if timing.leader is None and ready:
            # It is timed alone: others are timed beside it.
            with client.undisturbed(ready[:1]):
                client.carry_out(timing.screen(ready.pop(0)))
                client.carry_out(timing.settle(self.collecting.on_comparison))
        if timing.leader is None:
            return
        for position in idle:
            if not ready:
                lanes.release_leases()
                return
            # Several share the turns of the best one; where few are left, each machine has one.
            count = max(1, min(_MOST_TOGETHER, len(ready) // lanes.count))
            if lanes.begin(position, ready[:count]):
                del ready[:count]

    def _take(self, trials: list[Trial]) -> None:
        """Free the programs of trials that are over."""
        for trial in self._open():
            trial.take_from_original()
        over = [trial for trial in trials if trial.outcome is not None]
        self._done += over
        self.client.forget(over)
