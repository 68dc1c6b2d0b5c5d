"""Measuring on this machine, in worker processes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice

import numpy as np
from attrs import define, field, frozen

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.measure.jobs import Dispatcher, Place, Steps
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
from autotune.measure.timing_session import OnComparison, TimingSession
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
    setup = context.setup
    return LocalMeasurer(
        setup.backend,
        setup.target,
        setup.threads,
        context.workload,
        context.program,
        protocol=setup.protocol,
        observers=setup.observers,
        seed=context.seed,
        shared=context.workers,
    )


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
        self._task = TaskInputs(workload, program, seed)
        self._protocol = protocol
        self._clock = clock
        self._seconds = {"start": 0.0, "build": 0.0, "run": 0.0}
        self._trials = 0
        self._batches: deque[Batch[Trial]] = deque()
        self._client: TaskClient | None = None

    @property
    def seconds(self) -> Mapping[str, float]:
        """Wall seconds so far, by ``start`` (waiting for workers), ``build`` and ``run``."""
        return dict(self._seconds)

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
            self._client = TaskClient.of(self._workers, self._task)

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
        unique = {candidate.digest: candidate for candidate in candidates}
        trials = {digest: self._trial(candidate) for digest, candidate in unique.items()}
        self._batches.append(Batch([trials[candidate.digest] for candidate in candidates]))
        self._build_ahead()
        self._fill_inputs()

    def collect(self, collecting: Collecting) -> list[Outcome]:
        """See :meth:`Measurer.collect`."""
        if not self._batches:
            raise InvalidValueError("no submitted batch is left to collect")
        client, batch = self._started(), self._batches[0]
        if self._uses_lanes:
            return self._collect_on_lanes(batch, collecting)
        with unless_done(self._give_up):
            try:
                self._hold(collecting.leader, collecting.on_leader_timed)
                while not batch.is_over and not collecting.enough():
                    self._time(batch, collecting)
            except (KeyboardInterrupt, TimeIsOver):
                # What has been timed is worth telling, also without its turns beside the best.
                client.timing.finish_early()
                batch.tell_rest(collecting.on_outcome)
                raise
            finally:
                self._batches.popleft()
                batch.abandon()
            client.forget(batch.trials)
            self._build_ahead()
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

        self._started()
        self._run_lanes(collecting, tell, lambda: told >= count or not self._batches)
        return told

    def _collect_on_lanes(self, batch: Batch[Trial], collecting: Collecting) -> list[Outcome]:
        """As :meth:`collect`; what was submitted later is measured meanwhile, too."""
        try:
            self._run_lanes(
                collecting,
                lambda: batch.tell(collecting.on_outcome),
                lambda: len(batch.delivered) == len(batch.in_order),
                lambda: batch.tell_rest(collecting.on_outcome),
            )
        finally:
            if self._batches and self._batches[0] is batch:
                self._batches.popleft()
            batch.abandon()
        return batch.delivered

    def _run_lanes(
        self,
        collecting: Collecting,
        tell: Callable[[], None],
        is_over: Callable[[], bool],
        tell_rest: Callable[[], None] | None = None,
    ) -> None:
        """Have all machines time what was submitted, until it is over or there was enough."""
        client = self._started()
        with unless_done(self._give_up):
            run = LaneRun(
                client,
                self._batches,
                lambda trial: self._look_up(trial, collecting),
                self._window,
                self._timed,
                self._undisturbed,
            )
            try:
                self._lead_lanes(collecting)
                run.collect(collecting, tell, is_over)
            except (KeyboardInterrupt, TimeIsOver):
                client.lanes.stop()
                run.take_from_originals()
                (tell_rest or tell)()
                raise
            run.end()

    @property
    def _uses_lanes(self) -> bool:
        """True if several machines time at the same time, now or before."""
        return self._started().lanes.is_used or len(self._workers.pool.lanes) > 1

    @property
    def _window(self) -> int:
        """Number of candidates that are built or timed at the same time."""
        return _CHUNK_PER_WORKER * self._workers.count + _AHEAD_PER_LANE * self.lanes

    def _lead_lanes(self, collecting: Collecting) -> None:
        """Have the best candidate ready, unless lanes have found a faster one since."""
        client, leader = self._started(), collecting.leader
        timing = client.timing
        if leader is None:
            return
        is_older = leader.latency is not None and timing.latency <= leader.latency
        if timing.leader is None or not is_older:
            client.lanes.rest()
            self._hold(leader, collecting.on_leader_timed)

    def measure_baselines(
        self, programs: Sequence[Candidate | None], best: float | None = None
    ) -> list[Outcome]:
        """See :meth:`Measurer.measure_baselines`."""
        self._make_ready("search")
        self._started().lanes.rest()
        trials = [self._trial(program, always=True) for program in programs]
        timing = self._started().new_session()
        with unless_done(self._give_up):
            self._await_built(trials)
            mark_duplicates(trials)
            while waiting := [trial for trial in trials if timing.is_untimed(trial)]:
                self._await_built(waiting)
                with self._undisturbed(trials):
                    for trial in waiting:
                        if trial.outcome is not None:
                            continue
                        if best is None:
                            self._do(timing.screen(trial))
                        else:
                            io_bytes = self._task.workload.io_bytes
                            self._do(timing.screen_baseline(trial, best, io_bytes))
            with self._undisturbed(trials):
                self._do(timing.settle())
            for trial in trials:
                trial.take_from_original()
            self._started().forget(trials)
        return [trial.outcome for trial in trials if trial.outcome is not None]

    def rematch(self, candidates: Sequence[Candidate | None]) -> list[Outcome]:
        """See :meth:`Measurer.rematch`."""
        trials = [self._trial(candidate, always=True) for candidate in candidates]
        with unless_done(self._give_up):
            timing = self._begin_rematch()
            while waiting := [trial for trial in trials if trial.outcome is None]:
                self._await_built(waiting)
                with self._undisturbed(waiting):
                    again = [trial for trial in waiting if trial.outcome is None]
                    self._do(timing.rematch(again))
        return [trial.outcome for trial in trials if trial.outcome is not None]

    def hold(self, candidate: Candidate | None) -> LoadedProgram:
        """See :meth:`Measurer.hold`."""
        trial = self._trial(candidate, always=True)
        with unless_done(self._give_up):
            timing = self._begin_rematch()
            while trial.outcome is None and not trial.samples:
                self._await_built([trial])
                if trial.outcome is None:
                    with self._undisturbed([trial]):
                        self._do(timing.check(trial))
        return HeldTrial(trial, timing, self._undisturbed, self._started().dispatcher)

    def _begin_rematch(self) -> TimingSession:
        """End all jobs, and give the workers new inputs."""
        self._batches.clear()
        self.start()
        client = self._started()
        client.lanes.rest()
        client.dispatcher.drain()
        # Workers forget what they hold when they are given other inputs.
        client.timing.lead(None)
        client.lanes.forget()
        self._make_ready("rematch")
        return client.new_session()

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
        with self._timed("start"):
            self._started().give_inputs(inputs)
            self._workers.pool.wait_ready()

    def _fill_inputs(self) -> None:
        """Have what programs run on, and what is right; best called while workers build."""
        with self._timed("start"):
            self._started().fill_inputs()

    def _trial(self, candidate: Candidate | None, *, always: bool = False) -> Trial:
        self._trials += 1
        return Trial(self._trials, candidate, always)

    def _build_ahead(self) -> None:
        """Begin to build what comes next, unless a timing would be disturbed by it."""
        for batch in list(self._batches) if self._workers.overlaps else list(self._batches)[:1]:
            if not batch.chunk:
                self._started().building.add(
                    batch.next_chunk(_CHUNK_PER_WORKER * self._workers.count)
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
                self._do(timing.install(trial, leader.latency))
        trial.abandoned = trial.outcome is None
        if leader.latency is None and trial.outcome is not None and trial.outcome.ok:
            self._started().forget([trial])
            if on_timed is not None:
                on_timed(trial.latency)

    def _time(self, batch: Batch[Trial], collecting: Collecting) -> None:
        """Time a chunk; tells outcomes in order as soon as they are known."""
        client, chunk = self._started(), batch.chunk
        timing = client.timing
        while group := self._next_group(chunk, collecting):
            self._hold(timing.lost_leader)
            with self._undisturbed(group, later=batch.open_chunk):
                self._screen(group, batch, collecting)
            if collecting.enough():
                break
        self._hold(timing.lost_leader)
        with self._undisturbed(batch.open_chunk):
            self._do(timing.settle(collecting.on_comparison))
        for trial in chunk:
            trial.take_from_original()
        batch.tell(collecting.on_outcome)
        client.remember(chunk)
        client.forget([trial for trial in chunk if trial is not timing.leader])
        batch.chunk = []
        self._build_ahead()

    def _screen(self, group: Sequence[Trial], batch: Batch[Trial], collecting: Collecting) -> None:
        """Check and time a group briefly."""
        timing = self._started().timing
        for trial in group:
            self._do(timing.screen(trial))
            batch.tell(collecting.on_outcome)
            if collecting.enough():
                break

    def _next_group(self, chunk: Sequence[Trial], collecting: Collecting) -> list[Trial]:
        """Built candidates of one worker that are to be timed now; none when all are timed.

        What is timed keeps its worker from building, and that of the best candidate. So nothing
        is timed before most workers have begun the last that they build of the chunk, and where
        builds disturb, before all is built.
        """
        client = self._started()
        while True:
            client.timing.release_lost()
            for trial in chunk:
                if client.building.measured_later(trial, chunk):
                    client.building.take_over(trial)
                self._look_up(trial, collecting)
            untimed = [trial for trial in chunk if client.timing.is_untimed(trial)]
            built = [trial for trial in untimed if client.holds(trial)]
            overlaps = self._workers.overlaps and built
            by_a_few = self._workers.count // 2 * MOST_AHEAD if overlaps else 0
            if len(untimed) - len(built) <= by_a_few:
                return held_together(built, client.timing.leader)
            with self._timed("build"):
                client.building.attend(untimed)

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
        building = self._started().building
        building.begin(trials)
        self._fill_inputs()
        with self._timed("build"):
            building.await_all(trials)

    @contextmanager
    def _undisturbed(self, trials: Sequence[Trial], later: Sequence[Trial] = ()) -> Iterator[None]:
        """See :func:`undisturbed`; this is accounted as running."""
        self._fill_inputs()
        with self._timed("run"), undisturbed(self._started(), self._workers, trials, later):
            yield

    def _do(self, steps: Steps[None] | Steps[bool]) -> None:
        """Carry out steps of timing."""
        self._started().dispatcher.carry_out(steps)

    def _give_up(self) -> None:
        """Cancel what was begun and is not done, because of an error or an interrupt."""
        client = self._client
        if client is not None:
            if client.lanes.is_used:
                # What is built is forgotten, too, and no copy of the best can be had any more.
                client.lanes.stop()
                client.lanes.forget()
                client.timing.lead(None)
            self._batches.clear()
            client.building.abandon()
            client.dispatcher.cancel()

    def _started(self) -> TaskClient:
        if self._client is None:
            raise WorkerStartFailed("the measurer has not been started, or was closed")
        return self._client

    @contextmanager
    def _timed(self, activity: str) -> Iterator[None]:
        begin = self._clock()
        try:
            yield
        finally:
            self._seconds[activity] += self._clock() - begin


@frozen
class TaskInputs:
    """A task as it is described to workers.

    Attributes:
        workload: What candidates compute.
        program: The imported program's text form, if there is one.
        seed: Seed of the random inputs, and of the order of turns.
    """

    workload: Workload
    program: str | None
    seed: int


@define(eq=False)
class TaskClient:
    """Client of the workers for one task.

    Attributes:
        workers: The workers.
        task: Its description.
        dispatcher: Gives them the jobs of the task.
        building: Has them build.
        new_session: Starts another session of timing with them.
        timing: The session of the search.
        lanes: Time candidates on several machines at once, where there are several.
        close: Frees what workers and host keep for the task.
        inputs: What the workers run programs on: ``search``, ``rematch``, or "" for nothing yet.
    """

    workers: MeasureWorkers
    task: TaskInputs
    dispatcher: Dispatcher
    building: Building
    new_session: Callable[[], TimingSession]
    timing: TimingSession
    lanes: Lanes
    close: Callable[[], object]
    _files: ExitStack
    inputs: str = field(default="", init=False)
    _reference: ReferenceFiles | None = field(default=None, init=False)

    @staticmethod
    def of(workers: MeasureWorkers, task: TaskInputs) -> TaskClient:
        """A task that workers which have been started know nothing of yet."""
        setup = workers.setup
        dispatcher, rng = workers.admit(), np.random.default_rng(task.seed)
        plausibility = workers.plausibility(task.workload)

        def new_session(lane: int | None = None) -> TimingSession:
            # Lanes take their turns at the same time: each has a generator of its own.
            own = rng if lane is None else np.random.default_rng([task.seed, lane])
            pool = dispatcher.pool
            return TimingSession(pool, setup.protocol, own, plausibility=plausibility)

        timing = new_session()
        files = ExitStack()
        client = TaskClient(
            workers,
            task,
            dispatcher,
            Building(dispatcher, setup.protocol),
            new_session,
            timing,
            Lanes(dispatcher, timing, new_session),
            lambda: None,
            files,
        )
        client.close = ending_with(client, dispatcher.release, files.close)
        return client

    def give_inputs(self, kind: str) -> None:
        """Tell the workers what to run programs on, if they run them on something else.

        They forget then what they hold of this task, and can build; before something runs,
        :meth:`fill_inputs` has to be called.

        Args:
            kind: ``search``, or ``rematch`` for other inputs.
        """
        if self.inputs == kind:
            return
        task, setup = self.task, self.workers.setup
        seed = task.seed + (kind == "rematch")
        files = reserve_reference(task.workload, seed)
        # To the end: a worker may still be about to read those before these.
        self._files.callback(files.close)
        message = {
            "op": "task",
            "task": self.dispatcher.task,
            "workload": task.workload.to_json(),
            "program": task.program,
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
        """Have the inputs, and what is right. Again, it does nothing.

        Raises:
            WorkerStartFailed: there is no memory for them.
        """
        if self._reference is not None:
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
            self.dispatcher.post(message, {"load": seconds}, _ignore, place)


def _ignore(_reply: object) -> None:
    """Ignore a reply."""


# How often to ask whether another process has ended its turn.
_TURN_SECONDS = 0.02


@contextmanager
def undisturbed(
    client: TaskClient,
    workers: MeasureWorkers,
    trials: Sequence[Trial],
    later: Sequence[Trial] = (),
) -> Iterator[None]:
    """Time is taken inside: whatever would share CPUs with it waits.

    Other processes that time on these CPUs are waited for, and wait.

    Args:
        client: The task.
        workers: Those of the task.
        trials: What is timed.
        later: What may be timed next: the workers that hold it begin nothing that would have
            to be waited for then.
    """
    pool = workers.pool
    try:
        while not workers.timing_lock.acquire():
            client.dispatcher.pump(0.0)
            time.sleep(_TURN_SECONDS)
        leader = client.timing.leader
        timed = {it.place[0] for it in (*trials, leader) if it is not None and it.place}
        soon = {trial.place[0] for trial in later if trial.place is not None}
        pool.reserve(timed if workers.overlaps else range(workers.count), soon)
        client.dispatcher.settle_down()
        builders = [pid for index, pid in pool.pids().items() if index not in timed]
        with confined(builders if workers.overlaps else [], workers.free_cpus):
            yield
    finally:
        pool.reserve(())
        workers.timing_lock.release()


@frozen(eq=False)
class HeldTrial(LoadedProgram):
    """A trial that a worker holds.

    Attributes:
        trial: The trial; it has an outcome if it failed.
        timing: Times it.
        undisturbed: Keeps other work away while time is taken.
        dispatcher: Has the worker time it.
    """

    trial: Trial
    timing: TimingSession
    undisturbed: Callable[[Sequence[Trial]], AbstractContextManager[None]]
    dispatcher: Dispatcher

    @property
    def failure(self) -> Outcome | None:
        return self.trial.outcome

    def turn(self, placement: int) -> float | None:
        if self.trial.outcome is not None:
            return None
        with self.undisturbed([self.trial]):
            seconds = self.dispatcher.carry_out(self.timing.turn(self.trial, placement))
        if seconds is None and self.trial.outcome is None:
            self.trial.fail("crash", "the worker that held it ended")
        return seconds


# How many candidates a machine takes at a time.
_MOST_TOGETHER = 8


class LaneRun:
    """State of building and timing while outcomes of a task are collected from lanes.

    Programs travel by the hash of their content, so that none is bound to a machine before it is
    loaded there: a machine that is done takes the next program that is built, and none waits for
    a slower one. A machine without anything to time may build meanwhile.

    Args:
        client: The task.
        batches: What was submitted and not collected, in order.
        look_up: Finds out whether the program of a trial has been measured before.
        most: How many candidates are built or timed at the same time.
        timed: Counts what is done inside as ``build`` or ``run``.
        undisturbed: Inside, what would disturb the timing of trials waits.
    """

    def __init__(
        self,
        client: TaskClient,
        batches: Iterable[Batch[Trial]],
        look_up: Callable[[Trial], None],
        most: int,
        timed: Callable[[str], AbstractContextManager[None]],
        undisturbed: Callable[[Sequence[Trial]], AbstractContextManager[None]],
    ) -> None:
        self._client = client
        self._batches = batches
        self._look_up = look_up
        self._most = most
        self._timed = timed
        self._undisturbed = undisturbed
        self._done: list[Trial] = []
        self._looked_up: set[int] = set()

    def collect(
        self, collecting: Collecting, tell: Callable[[], None], is_over: Callable[[], bool]
    ) -> None:
        """Have all machines build and time, until it is over or there was enough.

        Args:
            collecting: What is to be called, but for outcomes.
            tell: Called whenever outcomes may have become known.
            is_over: Whether all is known that was asked for.
        """
        lanes, timing = self._client.lanes, self._client.timing
        tell()
        while not is_over() and not collecting.enough():
            if timing.leader is None:
                self._find_first_leader(collecting.on_comparison)
            with self._timed("run" if lanes.busy else "build"):
                self._step(collecting.on_comparison)
            tell()
        if collecting.enough():
            self._take(lanes.rest(collecting.on_comparison))
            tell()

    def _find_first_leader(self, on_comparison: OnComparison | None) -> None:
        """Time the next candidate that is built alone: others are timed beside it."""
        trial, timing = next(self._ready(), None), self._client.timing
        if trial is None:
            return
        dispatcher = self._client.dispatcher
        with self._undisturbed([trial]):
            dispatcher.carry_out(timing.screen(trial))
            dispatcher.carry_out(timing.settle(on_comparison))

    def _step(self, on_comparison: OnComparison | None) -> None:
        """Hand out what is built, and wait a moment for what may happen."""
        lanes, timing = self._client.lanes, self._client.timing
        if timing.leader is not None:
            if lanes.are_unable:
                timing.lead(None)
            self._feed()
        self._client.building.request(self._waiting())
        self._take(lanes.serve(on_comparison))

    def end(self) -> None:
        """Let machines do other things, and tell them which programs are known now."""
        self._client.remember(self._done)
        self._done = []
        self._client.lanes.release_leases()

    def take_from_originals(self) -> None:
        """End those whose program another trial has measured."""
        for trial in self._open():
            trial.take_from_original()

    def _open(self) -> Iterator[Trial]:
        """Trials without an outcome, in order of submission."""
        return (it for batch in self._batches for it in batch.in_order if it.outcome is None)

    def _waiting(self) -> list[Trial]:
        """As many of them as there is room for, without those that lanes are at."""
        lanes = self._client.lanes
        waiting = (trial for trial in self._open() if not lanes.is_timing(trial))
        return list(islice(dict.fromkeys(waiting), self._most))

    def _ready(self) -> Iterator[Trial]:
        for trial in self._waiting():
            if trial.duplicate_of is not None:
                self._look_up(trial)
            elif self._client.holds(trial):
                if trial.number not in self._looked_up:
                    self._looked_up.add(trial.number)
                    self._look_up(trial)
                if trial.outcome is None:
                    yield trial

    def _feed(self) -> None:
        """Give each idle machine what is to be timed next."""
        lanes = self._client.lanes
        idle = lanes.idle()
        ready = list(self._ready()) if idle else []
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
        self.take_from_originals()
        over = [trial for trial in trials if trial.outcome is not None]
        self._done += over
        self._client.forget(over)
