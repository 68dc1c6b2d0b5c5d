"""The measurer ``external``: candidates are commands or functions of the user's own."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from attrs import define, evolve, field

from autotune.errors import InvalidValueError, one_line
from autotune.external.candidates import CUT_OFF, Runner, Trial
from autotune.external.given import given_program
from autotune.external.program import ExternalProgram
from autotune.external.workers import JobWorkers
from autotune.measure import (
    Collecting,
    LoadedProgram,
    MeasureProtocol,
    Measurer,
    MeasurerContext,
    SharedWorkers,
    WorkerStartFailed,
)
from autotune.measure.racing import Race
from autotune.plugins.options import NoOptions, read_options
from autotune.process.interrupts import unless_done
from autotune.process.memory import affordable_workers
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


@define(eq=False)
class _Batch:
    """Candidates that were submitted together.

    Attributes:
        trials: One for each, in order; equal ones share theirs.
        delivered: Outcomes that were told.
    """

    trials: list[Trial]
    delivered: list[Outcome] = field(factory=list)

    def tell(self, collecting: Collecting) -> None:
        """Tell outcomes that are known and next in order."""
        while len(self.delivered) < len(self.trials):
            position = len(self.delivered)
            outcome = self.trials[position].outcome
            if outcome is None:
                return
            self.delivered.append(outcome)
            if collecting.on_outcome is not None:
                collecting.on_outcome(position, outcome)


class ExternalMeasurer(Measurer):
    """Builds candidates in parallel, and runs them one at a time while nothing is built.

    Args:
        program: What is tuned.
        threads: Threads that it may use.
        protocol: How often leaders take turns.
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
        self._count = 1
        if program.build is not None:
            cpus = len(os.sched_getaffinity(0))
            self._count = workers or affordable_workers(cpus, _BUILD_BYTES)
        self._rng = np.random.default_rng(seed)
        self._is_late = is_late
        self._clock = clock
        self._seconds = {"start": 0.0, "build": 0.0, "run": 0.0}
        self._batches: deque[_Batch] = deque()
        self._workers: JobWorkers | None = None
        self._runner: Runner | None = None
        self._default: Outcome | None = None
        self._best: float | None = None
        self._by_binary: dict[str, tuple[str, Outcome]] = {}

    @property
    def seconds(self) -> Mapping[str, float]:
        """See :attr:`Measurer.seconds`."""
        return dict(self._seconds)

    def start(self) -> None:
        """See :meth:`Measurer.start`."""
        if self._workers is not None:
            return
        preparation = None
        if self._program.is_called and self._program.function is None:
            preparation = {
                "function": self._program.run.function,
                "directory": str(self._program.directory),
            }
        self._workers = JobWorkers(
            self._count, self._threads, preparation, self._is_late, self._clock
        )
        self._workers.start()
        self._runner = Runner(self._program, self._workers, self._threads, self._is_late)

    def wait_ready(self) -> None:
        """See :meth:`Measurer.wait_ready`; what is right is found out first.

        Raises:
            WorkerStartFailed: the default configuration, whose outputs are right, fails.
        """
        self.start()
        if self._started().needs_reference:
            self._default = self._measured_default()

    def submit(self, candidates: Sequence[Candidate]) -> None:
        """See :meth:`Measurer.submit`."""
        runner = self._started()
        trials: dict[str, Trial] = {}
        for candidate in candidates:
            if candidate.digest not in trials:
                trials[candidate.digest] = runner.trial(candidate.digest, self._config(candidate))
        self._batches.append(_Batch([trials[candidate.digest] for candidate in candidates]))
        self._build_ahead()

    def collect(self, collecting: Collecting) -> list[Outcome]:
        """See :meth:`Measurer.collect`."""
        if not self._batches:
            raise InvalidValueError("no submitted batch is left to collect")
        batch = self._batches[0]
        with unless_done(self._give_up):
            try:
                self._time_leader(collecting)
                while (chunk := self._chunk(batch)) and not collecting.enough():
                    self._time(chunk, batch, collecting)
                batch.tell(collecting)
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
                    lambda number, _: self._started().sample(able[number]),
                    self._rng,
                    is_over=is_over,
                    needs_first=False,
                )
            for number, trial in enumerate(able):
                if trial.outcome is None:
                    # A single program has no turns.
                    if not race.times[number]:
                        self._started().measure(trial, None)
                    else:
                        self._started().finish(trial)
        return [trial.outcome for trial in trials if trial.outcome is not None]

    def hold(self, candidate: Candidate | None) -> LoadedProgram:
        """See :meth:`Measurer.hold`."""
        with unless_done(self._give_up):
            trial = self._built(candidate)
        return _Held(trial, self._started())

    def close(self) -> None:
        """See :meth:`Measurer.close`."""
        self._batches.clear()
        if self._workers is not None:
            self._workers.close()
            self._workers = self._runner = self._best = None

    def _started(self) -> Runner:
        if self._runner is None:
            raise WorkerStartFailed("the measurer has not been started, or was closed")
        return self._runner

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
        runner = self._started()
        with unless_done(self._give_up):
            trial = self._built(None)
            if trial.outcome is None:
                with self._timed("run"):
                    runner.measure(trial, None)
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

    def _built(self, candidate: Candidate | None) -> Trial:
        runner = self._started()
        digest = "" if candidate is None else candidate.digest
        trial = runner.trial(digest, self._config(candidate))
        with self._timed("build"):
            runner.await_builds([trial])
        return trial

    def _chunk(self, batch: _Batch) -> list[Trial]:
        """The next candidates of a batch to be built and timed, each once."""
        left = dict.fromkeys(trial for trial in batch.trials if trial.outcome is None)
        return list(left)[: _CHUNK_PER_WORKER * self._count]

    def _build_ahead(self) -> None:
        """Begin to build what comes next: nothing is being timed."""
        for trial in self._chunk(self._batches[0]) if self._batches else ():
            self._started().post_build(trial)

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
                self._started().measure(trial, None)
        if trial.outcome is not None and trial.outcome.latency is not None:
            found = trial.outcome.latency
            self._best = min(found, self._best or found)
            if collecting.on_leader_timed is not None:
                collecting.on_leader_timed(found)

    def _time(self, chunk: Sequence[Trial], batch: _Batch, collecting: Collecting) -> None:
        """Build a chunk and time it; outcomes are told in order as soon as they are known."""
        runner = self._started()
        with self._timed("build"):
            runner.await_builds(chunk)
        for trial in chunk:
            if trial.outcome is None:
                self._look_up(trial, collecting)
            if trial.outcome is None:
                if collecting.enough():
                    return
                with self._timed("run"):
                    runner.measure(trial, None if self._best is None else CUT_OFF * self._best)
                self._note(trial)
            batch.tell(collecting)

    def _look_up(self, trial: Trial, collecting: Collecting) -> None:
        """Take the outcome of a candidate with the same files and command, if there is one."""
        if not trial.binary:
            return
        if trial.binary in self._by_binary:
            digest, outcome = self._by_binary[trial.binary]
            trial.end(evolve(outcome, duplicate_of=digest, timings={}))
        elif (found := collecting.recall(trial.binary)) is not None:
            trial.end(found)

    def _note(self, trial: Trial) -> None:
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
        if self._workers is not None:
            self._workers.cancel()


class _Held(LoadedProgram):
    """A built candidate, timed when it is its turn."""

    def __init__(self, trial: Trial, runner: Runner) -> None:
        self._trial = trial
        self._runner = runner

    @property
    def failure(self) -> Outcome | None:
        return self._trial.outcome

    def turn(self, placement: int) -> float | None:
        return None if self._trial.outcome is not None else self._runner.sample(self._trial)
