"""Plan of a run: tasks, budget, database, and those who listen."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from attrs import field, frozen

from autotune.measure import MeasureProtocol, SharedWorkers
from autotune.process.interrupts import InterruptGuard
from autotune.process.stopwatch import Clock
from autotune.search.schedulers import TaskScheduler
from autotune.store.database import Database
from autotune.store.records import Baseline, Record, Run, standing
from autotune.store.trial_log import TrialLog
from autotune.tuning.events import Event, EventListener
from autotune.tuning.options import DEFAULT_TRIALS, TuneOptions
from autotune.tuning.result import HistoryPoint, Result
from autotune.tuning.resume import Progress, RunSpec
from autotune.tuning.task_spec import TaskSpec

__all__ = [
    "ALL_FAILED",
    "CONVERGED",
    "EXHAUSTED",
    "GIVE_UP_AFTER",
    "TIME_OVER",
    "TRIALS_USED",
    "Budget",
    "Reserve",
    "RunPlan",
]

GIVE_UP_AFTER = 32

TRIALS_USED = "the trial budget is used up"
TIME_OVER = "the time is over"
EXHAUSTED = "the space is exhausted"
CONVERGED = "no program has gained from its last trials"
ALL_FAILED = f"the first {GIVE_UP_AFTER} candidates all failed"


@frozen
class Reserve:
    """Time that is kept for what the caller does after a run.

    Attributes:
        seconds: How long that takes, apart from the programs.
        programs: Programs that the caller builds; each takes about as long as a trial's build.
        untuned_build: Seconds that one takes without a schedule; None where that is not known.
    """

    seconds: float = 0.0
    programs: int = 0
    untuned_build: float | None = None

    @property
    def least(self) -> float:
        """Seconds for all of it where nothing is tuned."""
        return self.seconds + self.programs * (self.untuned_build or 0.0)


@frozen
class Budget:
    """Limits of a run, over all its sessions and all its tasks together.

    Attributes:
        trials: Candidates, those answered from records included; None for as many as the time
            allows.
        seconds: Wall seconds, or None.
        session_seconds: Wall seconds of one session, whatever came before it; or None.
    """

    trials: int | None
    seconds: float | None = None
    session_seconds: float | None = None

    @classmethod
    def of(cls, options: TuneOptions, programs: int) -> Budget:
        """Budget of a run of so many programs: where only its time is given, all of that."""
        trials = options.trials
        if trials is None and options.time is None:
            trials = DEFAULT_TRIALS * programs
        return cls(trials, options.time, options.session_time)

    @property
    def recorded_trials(self) -> int:
        """The trials as a :class:`Run` has them."""
        return self.trials or 0

    def left(self, done: int) -> int:
        """Candidates that may follow ``done`` of them; more than there can be without a limit."""
        return sys.maxsize if self.trials is None else self.trials - done

    def is_used_up(self, progress: Progress) -> bool:
        """Tell if a finished run did as much as this allows, or all that there was to do."""
        if self.left(progress.trials) <= 0 or progress.reason in (EXHAUSTED, CONVERGED):
            return True
        # As for a time limit: a session that only started up has done nothing that was asked for.
        spent = max(
            sum(progress.seconds.values()) - progress.seconds.get("startup", 0.0), progress.used_up
        )
        return self.seconds is not None and spent >= self.seconds


@frozen(eq=False)
class RunPlan:
    """Tasks, one or several, and the way they are to be tuned on one machine.

    Attributes:
        tasks: What to tune; strategies and cost models are new ones.
        spec: What decides the proposals of the run.
        scheduler: Chooses the task of each round.
        database: Where everything is recorded.
        budget: When to stop.
        fresh: Ignore records and earlier runs.
        listeners: Receive every event.
        guard: Turns signals into interrupts at safe moments; entered by the caller.
        protocol: How the winners of several backends are timed.
        workers: Those that the measurers of the tasks share; closed with the run.
        prepared: Called once workers have been started and before the run is written: does what
            can be done while they get ready, waits for what else gets ready in the background, and
            returns what time to keep. What it raises ends the run.
        clock: Monotonic seconds.
        now: Unix time in seconds.
        began: When the caller began, by ``clock``; what came before the run is start-up.
        network: As :attr:`Run.network`.
    """

    tasks: Sequence[TaskSpec]
    spec: RunSpec
    scheduler: TaskScheduler
    database: Database
    budget: Budget
    fresh: bool = False
    listeners: Sequence[EventListener] = ()
    guard: InterruptGuard = field(factory=InterruptGuard)
    protocol: MeasureProtocol = field(factory=MeasureProtocol)
    workers: SharedWorkers = field(factory=SharedWorkers)
    prepared: Callable[[], Reserve] = Reserve
    clock: Clock = time.monotonic
    now: Clock = time.time
    began: float | None = None
    network: str = ""

    @property
    def times_candidates_first(self) -> bool:
        """True if a task has a candidate before what it has without tuning is timed.

        Where tasks share the time, none is to spend it on an untuned program that takes seconds.
        """
        return len(self.tasks) > 1 and not any(task.contest for task in self.tasks)

    @property
    def first_round(self) -> int | None:
        """Candidates in a task's first round; None for whole rounds.

        A single task's are measured in any case, and of backends that compete, none is to lose by
        one candidate.
        """
        return self.spec.options.first_round if self.times_candidates_first else None

    def emit(self, event: Event) -> None:
        """Tell every listener."""
        for listener in self.listeners:
            listener(event)

    def result(
        self,
        spec: TaskSpec,
        run: Run,
        log: TrialLog,
        baselines: Sequence[Baseline],
        fastest: Record | None,
    ) -> Result:
        """A task's result, without what is known of the whole run only.

        Args:
            spec: The task.
            run: The run.
            log: The task's trials.
            baselines: What there is without tuning.
            fastest: Record of the fastest valid candidate.
        """
        options = self.spec.options
        if fastest is not None:
            fastest = fastest.on(spec.workload, spec.program)
        return Result(
            run_id=run.run_id,
            task=spec.name,
            workload=spec.workload,
            target=spec.target,
            key=spec.key,
            space=self.spec.space,
            strategy=self.spec.strategy,
            cost_model=options.chosen["cost_model"].name,
            seed=options.seed,
            trials=len(log),
            outcomes=log.counts,
            failures=log.failures,
            rejections=log.rejections,
            cached=log.cached,
            seconds={},
            baselines=tuple(baselines),
            least_untuned=spec.least_untuned,
            fastest=fastest,
            best=None if fastest is None else standing(fastest, baselines),
            history=tuple(HistoryPoint(*point) for point in log.history()),
            database=self.database.location,
            program=spec.program,
            loosened=spec.space.loosened,
        )
