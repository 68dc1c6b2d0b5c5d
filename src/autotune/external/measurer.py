"""The measurer ``external``: candidates are commands or functions of the user's own."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from attrs import evolve, frozen

from autotune.errors import InvalidValueError, one_line
from autotune.external.candidates import CUT_OFF, ExternalTrial, Runner
from autotune.external.given import given_program
from autotune.external.program import ExternalProgram
from autotune.external.worker import MODULE
from autotune.measure import (
    Collecting,
    LoadedProgram,
    MeasureProtocol,
    Measurer,
    MeasurerContext,
    SharedWorkers,
    TimeIsOver,
    WorkerStartFailed,
)
from autotune.measure.jobs import Dispatcher
from autotune.measure.pool import WorkerPool
from autotune.measure.racing import Race
from autotune.measure.trial import Batch
from autotune.plugins.options import NoOptions, read_options
from autotune.process.ending import ending_with
from autotune.process.interrupts import unless_done
from autotune.process.memory import affordable_workers
from autotune.process.private_folder import make_private_folder
from autotune.process.stopwatch import Clock
from autotune.sketches import Candidate
from autotune.spaces.parameters import Value
from autotune.store.records import Outcome

__all__ = ["ExternalMeasurer", "make_external_measurer"]

# What a compiler may occupy.
_BUILD_BYTES = 1 << 29
# How many candidates per worker are built before they are timed.
_CHUNK_PER_WORKER = 8
# Turns of the leaders end after so many seconds, but not before each had so many.
_TURN_SECONDS, _LEAST_TURNS = 8.0, 3
_SHOWN = 300


def make_external_measurer(context: MeasurerContext) -> ExternalMeasurer:
    """A measurer of the program that the user has given under the context's text.

    Raises:
        InvalidValueError: nobody has given it here, or something is asked for that only tensor
            programs have: observers, cold caches, options.
    """
    read_options("measurer 'external'", NoOptions, context.options)
    protocol = context.setup.protocol
    if context.setup.observers:
        raise InvalidValueError("measurer 'external' has no observers; leave out observers")
    if protocol.cold:
        raise InvalidValueError(
            "measurer 'external' cannot empty caches before a command: leave out cold"
        )
    shared = context.workers or SharedWorkers()
    return ExternalMeasurer(
        given_program(context.program).program,
        context.setup.threads,
        protocol=protocol,
        seed=context.seed,
        is_late=lambda: bool(shared.is_late()),
    )


@frozen(eq=False)
class _Running:
    """Workers that have been started, what uses them, and what ends them."""

    runner: Runner
    dispatcher: Dispatcher
    end: Callable[[], object]


class ExternalMeasurer(Measurer):
    """Builds candidates in parallel, and runs them one at a time while nothing is built.

    Args:
        program: What is tuned.
        threads: Threads that it may use.
        protocol: How often leaders take turns, how long a worker may take to start, and what
            memory it may have.
        workers: How many candidates are built at once; by default one per CPU, or as many as
            memory is enough for.
        seed: Shuffles turns.
        is_late: Whether the time of the run is over.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        program: ExternalProgram,
        threads: int,
        *,
        protocol: MeasureProtocol | None = None,
        workers: int | None = None,
        seed: int = 0,
        is_late: Callable[[], bool] = lambda: False,
        clock: Clock = time.monotonic,
    ) -> None:
        self._program = program
        self._threads = threads
        self._protocol = protocol or MeasureProtocol()
        # A function of this process is called from it.
        self._count = int(program.function is None)
        if program.build is not None:
            cpus = len(os.sched_getaffinity(0))
            self._count = workers or affordable_workers(cpus, _BUILD_BYTES)
        self._rng = np.random.default_rng(seed)
        self._is_late = is_late
        self._clock = clock
        self._seconds = {"start": 0.0, "build": 0.0, "run": 0.0}
        self._batches: deque[Batch[ExternalTrial]] = deque()
        self._running: _Running | None = None
        self._default: Outcome | None = None
        self._best: float | None = None
        self._by_binary: dict[str, tuple[str, Outcome]] = {}

    @property
    def seconds(self) -> Mapping[str, float]:
        """See :attr:`Measurer.seconds`."""
        return dict(self._seconds)

    def start(self) -> None:
        """See :meth:`Measurer.start`."""
        if self._running is not None:
            return
        program, protocol = self._program, self._protocol
        is_named = program.is_called and program.function is None
        hello = {
            "function": program.run.function if is_named else "",
            "directory": str(program.directory),
        }
        folder = make_private_folder()
        pool = WorkerPool(
            "external",
            self._threads,
            {},
            workers=self._count,
            deadlines=protocol.deadlines,
            memory_bytes=protocol.memory_bytes,
            folder=folder,
            clock=self._clock,
            is_late=self._is_late,
            hello=lambda _index: hello,
            module=MODULE,
        )
        end = ending_with(self, pool.close, folder.remove)
        dispatcher = Dispatcher(pool)
        runner = Runner(program, dispatcher, folder.path, self._threads, self._is_late)
        self._running = _Running(runner, dispatcher, end)
        pool.start()

    def wait_ready(self) -> None:
        """See :meth:`Measurer.wait_ready`; what is right is found out first.

        Raises:
            WorkerStartFailed: the default configuration, whose outputs are right, fails.
        """
        self.start()
        with self._timed("start"):
            self._started.dispatcher.pool.wait_ready()
        if self._runner.needs_reference:
            self._default = self._measured_default()

    def submit(self, candidates: Sequence[Candidate]) -> None:
        """See :meth:`Measurer.submit`."""
        unique = {candidate.digest: candidate for candidate in candidates}
        trials = {
            digest: self._runner.trial(candidate, self._config(candidate))
            for digest, candidate in unique.items()
        }
        self._batches.append(Batch([trials[candidate.digest] for candidate in candidates]))
        self._build_ahead()

    def collect(self, collecting: Collecting) -> list[Outcome]:
        """See :meth:`Measurer.collect`."""
        if not self._batches:
            raise InvalidValueError("no submitted batch is left to collect")
        batch = self._batches[0]
        with unless_done(self._give_up):
            try:
                self._time_leader(collecting)
                while not batch.is_over and not collecting.enough():
                    self._time(batch, collecting)
                batch.tell(collecting.on_outcome)
            except (KeyboardInterrupt, TimeIsOver):
                batch.tell_rest(collecting.on_outcome)
                raise
            finally:
                self._batches.popleft()
                for trial in batch.trials:
                    trial.remove()
            self._build_ahead()
        return batch.delivered

    def measure_baselines(
        self, programs: Sequence[Candidate | None], best: float | None = None
    ) -> list[Outcome]:
        """See :meth:`Measurer.measure_baselines`; the untuned program is the default.

        Raises:
            WorkerStartFailed: the default configuration fails; says how.
        """
        if self._default is None:
            self._default = self._measured_default()
        return [self._default for _ in programs]

    def rematch(self, candidates: Sequence[Candidate | None]) -> list[Outcome]:
        """See :meth:`Measurer.rematch`."""
        self._batches.clear()
        with unless_done(self._give_up):
            trials = [self._built(candidate) for candidate in candidates]
            able = [trial for trial in trials if trial.outcome is None]
            race = Race.under(self._protocol, len(able))
            end = self._clock() + _TURN_SECONDS

            def is_over(race: Race) -> bool:
                is_long = race.running and race.rounds >= _LEAST_TURNS and self._clock() > end
                return not race.running or race.over or bool(is_long)

            with self._timed("run"):
                race.run(
                    lambda number, _: self._runner.sample(able[number]),
                    self._rng,
                    is_over=is_over,
                    needs_first=False,
                )
            for number, trial in enumerate(able):
                if trial.outcome is None:
                    # A single program has no turns.
                    if not race.times[number]:
                        self._runner.measure(trial, None)
                    else:
                        trial.finish()
        return [trial.outcome for trial in trials if trial.outcome is not None]

    def hold(self, candidate: Candidate | None) -> LoadedProgram:
        """See :meth:`Measurer.hold`."""
        with unless_done(self._give_up):
            trial = self._built(candidate)
        return _Held(trial, self._runner)

    def close(self) -> None:
        """See :meth:`Measurer.close`."""
        self._batches.clear()
        running, self._running = self._running, None
        self._best = None
        if running is not None:
            running.end()

    @property
    def _started(self) -> _Running:
        if self._running is None:
            raise WorkerStartFailed("the measurer has not been started, or was closed")
        return self._running

    @property
    def _runner(self) -> Runner:
        return self._started.runner

    def _config(self, candidate: Candidate | None) -> Mapping[str, Value]:
        if candidate is None:
            default = self._program.default
            if default is None:
                raise InvalidValueError("there is no default configuration")
            return default
        values = candidate.config
        return {it.name: it.decode(values[it.name]) for it in self._program.parameters}

    def _measured_default(self) -> Outcome:
        """Outcome of the default configuration, which has to be right."""
        if self._program.default is None:
            missing = [it.name for it in self._program.parameters if it.default is None]
            return Outcome("invalid", message=f"there is no default of {', '.join(missing)}")
        with unless_done(self._give_up):
            trial = self._built(None)
            if trial.outcome is None:
                with self._timed("run"):
                    self._runner.measure(trial, None)
        outcome = trial.outcome
        assert outcome is not None
        self._best = outcome.latency
        if not outcome.ok:
            shown = ", ".join(f"{name}={value}" for name, value in trial.config.items())
            raise WorkerStartFailed(
                f"{self._program.name}: the default configuration ({one_line(shown, _SHOWN)}) "
                f"ends in {outcome.status}: {one_line(outcome.message, 4 * _SHOWN)}"
            )
        return outcome

    def _built(self, candidate: Candidate | None) -> ExternalTrial:
        trial = self._runner.trial(candidate, self._config(candidate))
        with self._timed("build"):
            self._runner.await_builds([trial])
        return trial

    def _build_ahead(self) -> None:
        """Begin to build what comes next: nothing is being timed."""
        if self._batches:
            batch = self._batches[0]
            size = _CHUNK_PER_WORKER * max(1, self._count)
            for trial in batch.chunk or batch.next_chunk(size):
                self._runner.post_build(trial)
            self._started.dispatcher.pump(0.0)

    def _time_leader(self, collecting: Collecting) -> None:
        """Find out what the best candidate takes in this session."""
        leader = collecting.leader
        if leader is None:
            return
        if leader.latency is not None:
            self._best = min(leader.latency, self._best or leader.latency)
            return
        trial = self._built(leader.candidate)
        if trial.outcome is None:
            with self._timed("run"):
                self._runner.measure(trial, None)
        if trial.outcome is not None and trial.outcome.latency is not None:
            found = trial.outcome.latency
            self._best = min(found, self._best or found)
            if collecting.on_leader_timed is not None:
                collecting.on_leader_timed(found)

    def _time(self, batch: Batch[ExternalTrial], collecting: Collecting) -> None:
        """Build a chunk and time it; outcomes are told in order as soon as they are known."""
        self._build_ahead()
        with self._timed("build"):
            self._runner.await_builds(batch.chunk)
        for trial in batch.open_chunk:
            self._look_up(trial, collecting)
            if trial.outcome is None:
                if collecting.enough():
                    return
                limit = None if self._best is None else CUT_OFF * self._best
                with self._timed("run"):
                    self._runner.measure(trial, limit)
                self._note(trial)
            batch.tell(collecting.on_outcome)
        batch.chunk = []

    def _look_up(self, trial: ExternalTrial, collecting: Collecting) -> None:
        """Take the outcome of a candidate with the same files and command, if there is one."""
        if not trial.binary:
            return
        if trial.binary in self._by_binary:
            digest, outcome = self._by_binary[trial.binary]
            trial.take(evolve(outcome, duplicate_of=digest, timings={}))
        elif (found := collecting.recall(trial.binary)) is not None:
            trial.take(found)

    def _note(self, trial: ExternalTrial) -> None:
        outcome = trial.outcome
        if outcome is None:
            return
        if outcome.latency is not None:
            self._best = min(outcome.latency, self._best or outcome.latency)
        if trial.binary and not outcome.retriable:
            self._by_binary.setdefault(trial.binary, (trial.digest, outcome))

    @contextmanager
    def _timed(self, activity: str) -> Iterator[None]:
        begin = self._clock()
        try:
            yield
        finally:
            self._seconds[activity] += self._clock() - begin

    def _give_up(self) -> None:
        """Cancel what was begun and is not done, because of an error or an interrupt."""
        self._batches.clear()
        if self._running is not None:
            self._running.dispatcher.cancel()


class _Held(LoadedProgram):
    """A built candidate, timed when it is its turn."""

    def __init__(self, trial: ExternalTrial, runner: Runner) -> None:
        self._trial = trial
        self._runner = runner

    @property
    def failure(self) -> Outcome | None:
        return self._trial.outcome

    def turn(self, placement: int) -> float | None:
        return None if self._trial.outcome is not None else self._runner.sample(self._trial)
