"""The measurer ``external``: candidates are commands or functions of the user's own."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from attrs import evolve

from autotune.errors import InvalidValueError, one_line
from autotune.external.given import given_program
from autotune.external.program import ExternalProgram
from autotune.external.worker import MODULE, ExternalTask
from autotune.measure import LocalMeasurer, MeasurerContext, SharedWorkers, WorkerStartFailed
from autotune.measure.jobs import Job, Place, Reply, Steps
from autotune.measure.pool import WorkerPool
from autotune.measure.racing import Race
from autotune.measure.timing_session import TimingSession
from autotune.measure.trial import Trial
from autotune.measure.validation import ReferenceFiles
from autotune.measure.workers import MeasureWorkers, WorkerSetup
from autotune.plugins.options import NoOptions, read_options
from autotune.process.channel import Message
from autotune.process.memory import affordable_workers
from autotune.process.private_folder import PrivateFolder
from autotune.sketches import Candidate
from autotune.store.records import Outcome

__all__ = ["ExternalMeasurer", "make_external_measurer"]

# What a compiler may occupy.
_BUILD_BYTES = 1 << 29
# What a worker may take longer than the time of a command: it ends that by itself.
_GRACE_SECONDS = 15.0
# Turns of the leaders end after so many seconds, but not before each had so many.
_TURN_SECONDS, _LEAST_TURNS = 8.0, 3
_SHOWN = 300


class RepeatedRuns(TimingSession):
    """Has programs run as often as they say, one after the other.

    A run may take minutes, and what it says may be no time of a clock: nothing is run again to
    be compared with the best one. Of that, :attr:`latency` is known and no program held.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._timed: set[str] = set()

    def leads(self, digest: str) -> bool:
        """Return whether a candidate was timed in this session."""
        return digest in self._timed

    def screen(self, trial: Trial) -> Steps[None]:
        """Check a program and time it; it ends with an outcome unless its worker has ended."""
        if (yield from self._check(trial, self.latency or None, self._protocol.deadlines)):
            trial.finish()
            self._timed.add(trial.digest)
            self.lead(None, min(trial.latency, self.latency or trial.latency))

    def rematch(self, trials: Sequence[Trial]) -> Steps[None]:
        """Run programs in turns, as long as that takes seconds."""
        race = Race.under(self._protocol, len(trials))
        end = self._clock() + _TURN_SECONDS

        def is_over(race: Race) -> bool:
            is_long = race.running and race.rounds >= _LEAST_TURNS and self._clock() > end
            return not race.running or race.over or bool(is_long)

        for number, placement in race.turns(self._rng, is_over=is_over, needs_first=False):
            race.note(number, (yield from self.turn(trials[number], placement)))
        if any(it.outcome is None and not self.is_held(it) for it in trials):
            return
        for number, trial in enumerate(trials):
            if trial.outcome is None and race.times[number]:
                trial.samples = race.times[number]
                trial.finish()
            elif trial.outcome is None:
                # A single program has no turns.
                yield from self.screen(trial)

    def turn(self, trial: Trial, placement: int) -> Steps[float | None]:
        """Seconds of one run; None when the program is gone or has failed."""
        samples = yield from self._sample(trial, 1, placement)
        return None if samples is None else samples[0]


class ExternalPool(WorkerPool):
    """Workers, and this process, which has functions that no module has.

    These are called here, in forks of this process, while nothing is built.
    """

    HERE: Place = ("here", 0)

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._called: dict[str, ExternalTask] = {}
        self._calls: deque[Job] = deque()

    @property
    def device_place(self) -> Place | None:
        return self.HERE

    @property
    def idle(self) -> bool:
        return super().idle and not self._calls

    def holds(self, place: Place) -> bool:
        return place == self.HERE or super().holds(place)

    def tell(self, task: str, message: Message, *, replace: bool = False) -> None:
        program = given_program(message["program"])
        places = {"directory": str(program.directory.resolve()), "folder": str(self._folder.path)}
        message = {**message, **places, "ships": program.function is not None}
        super().tell(task, message, replace=replace)
        if program.function is not None:
            self._called[task] = ExternalTask(
                program, message, lambda _phase: nullcontext(), self._is_late
            )

    def release(self, task: str) -> None:
        super().release(task)
        self._called.pop(task, None)

    def add(self, jobs: Sequence[Job]) -> None:
        self._calls.extend(job for job in jobs if job.place == self.HERE)
        super().add([job for job in jobs if job.place != self.HERE])

    def poll(self, seconds: float = 0.05) -> list[Reply]:
        replies = super().poll(0.0 if self._calls else seconds)
        for reply in replies:
            if (program := reply.body.get("device_program")) is not None:
                self._called[program["task"]].hold(program)
        if self._calls and super().idle:
            job = self._calls.popleft()
            body = self._called[job.message["task"]].do(job.message)
            replies.append(Reply("done", self.HERE, body=body, number=job.number))
        return replies

    def forget_queue(self) -> list[int]:
        numbers = [job.number for job in self._calls]
        self._calls.clear()
        return [*numbers, *super().forget_queue()]

    def cancel(self) -> None:
        self._calls.clear()
        super().cancel()


class ExternalWorkers(MeasureWorkers):
    """Workers of this machine; only programs know what their seconds are."""

    overlaps = False
    simulates = True
    session = RepeatedRuns

    @property
    def count(self) -> int:
        """Number of processes that build."""
        return self.setup.count or 1

    def _make_pool(self, folder: PrivateFolder) -> ExternalPool:
        setup = self.setup
        return ExternalPool(
            setup.backend,
            setup.threads,
            {},
            workers=self.count,
            deadlines=setup.protocol.deadlines,
            memory_bytes=setup.protocol.memory_bytes,
            folder=folder,
            clock=self._clock,
            is_late=self._is_late,
            module=MODULE,
        )

    def publish(self, files: ReferenceFiles) -> Message:
        """See :meth:`MeasureWorkers.publish`; there are no inputs."""
        return {"environment": dict(os.environ)}


class ExternalMeasurer(LocalMeasurer):
    """Measures as other programs are measured, each candidate as often as its program says."""

    _default: Outcome | None = None

    @property
    def _external(self) -> ExternalProgram:
        return given_program(self._program)

    def wait_ready(self) -> None:
        """See :meth:`Measurer.wait_ready`; what is right is found out first.

        Raises:
            WorkerStartFailed: the default configuration, whose outputs are right, fails.
        """
        super().wait_ready()
        validation = self._external.validation
        if validation is not None and not validation.reference:
            self.measure_baselines([None])

    def measure_baselines(
        self, programs: Sequence[Candidate | None], best: float | None = None
    ) -> list[Outcome]:
        """See :meth:`Measurer.measure_baselines`; the untuned program is the default.

        Raises:
            WorkerStartFailed: the default configuration fails; says how.
        """
        program = self._external
        if self._default is None and program.default is None:
            missing = [it.name for it in program.parameters if it.default is None]
            self._default = Outcome(
                "invalid", message=f"there is no default of {', '.join(missing)}"
            )
        elif self._default is None:
            (outcome,) = super().measure_baselines([None])
            if not outcome.ok:
                shown = ", ".join(f"{it.name}={it.default}" for it in program.parameters)
                raise WorkerStartFailed(
                    f"{program.name}: the default configuration ({one_line(shown, _SHOWN)}) "
                    f"ends in {outcome.status}: {one_line(outcome.message, 4 * _SHOWN)}"
                )
            self._default = outcome
            self._started().timing.lead(None, outcome.latency or 0.0)
        return [self._default for _ in programs]


def make_external_measurer(context: MeasurerContext) -> ExternalMeasurer:
    """A measurer of the program that the user has given under the context's text.

    Raises:
        InvalidValueError: nobody has given it here, or something is asked for that only tensor
            programs have: observers, cold caches, options.
    """
    read_options("measurer 'external'", NoOptions, context.options)
    if context.setup.observers:
        raise InvalidValueError("measurer 'external' has no observers; leave out observers")
    if context.setup.protocol.cold:
        raise InvalidValueError(
            "measurer 'external' cannot empty caches before a command: leave out cold"
        )
    setup = _setup_of(given_program(context.program), context.setup)
    shared = context.workers or SharedWorkers()
    # The measurer finds those that are set up alike.
    shared.get(setup, ExternalWorkers)
    return ExternalMeasurer.of(evolve(context, setup=setup, workers=shared))


def _setup_of(program: ExternalProgram, given: WorkerSetup) -> WorkerSetup:
    """The setup of workers for a program, which says how long each phase may take."""
    run, deadlines = program.run, dict(given.protocol.deadlines)
    # All calls of a function are made in one process.
    runs = run.warmup + run.repeats if program.is_called else 1
    deadlines |= {
        "task": deadlines["start"],
        "run": run.timeout * (runs + program.is_called) + _GRACE_SECONDS,
    }
    count = 1
    if program.build is not None:
        deadlines["build"] = program.build.timeout + _GRACE_SECONDS
        count = affordable_workers(len(os.sched_getaffinity(0)), _BUILD_BYTES)
    return evolve(given, protocol=evolve(given.protocol, deadlines=deadlines), count=count)
