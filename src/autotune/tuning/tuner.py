"""The tuning loop: rounds of proposals, measurements and learning, recorded as they happen.

A run is an entity in the database. Its state is saved after every complete round; outcomes are
recorded one by one. A run that is stopped anywhere and continued later proposes the candidates,
in the order, that it would have proposed without the stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
from attrs import evolve, field, frozen

from autotune.errors import DatabaseError
from autotune.measure import MeasureProtocol
from autotune.process.interrupts import InterruptGuard, TuningInterrupted
from autotune.process.stopwatch import Clock, Stopwatch
from autotune.search.schedulers import TaskScheduler
from autotune.search.search import Round, Search
from autotune.store.best_record import find_best
from autotune.store.database import Database, RecordFilter
from autotune.store.records import Baseline, MeasureKey, Outcome, Record, Run, standing
from autotune.store.trial_log import TrialLog
from autotune.tuning.baselines import current
from autotune.tuning.contest import compare_backends, joined_results, needs_comparison, rivals
from autotune.tuning.events import (
    AnsweredFromRecords,
    BackendsCompared,
    CheckpointSaved,
    Event,
    EventListener,
    RoundStarted,
    RunFailed,
    RunFinished,
    RunInterrupted,
    RunStarted,
    WarningRaised,
)
from autotune.tuning.result import HistoryPoint, Result
from autotune.tuning.resume import Checkpoint, Progress, RunSpec, is_being_worked_on, this_process
from autotune.tuning.task import TaskSession
from autotune.tuning.task_spec import RunContext, TaskSpec

__all__ = ["Budget", "Tuner"]

WARN_AFTER = 8
GIVE_UP_AFTER = 32
MOST_POOLS = 2
"""Tasks that keep their workers at once; those of the others are ended."""

TRIALS_USED = "the trial budget is used up"
TIME_OVER = "the time is over"
EXHAUSTED = "the space is exhausted"
ALL_FAILED = f"the first {GIVE_UP_AFTER} candidates all failed"


@frozen
class Budget:
    """How much may be spent on a run, by all its sessions and all its tasks together.

    Attributes:
        trials: Candidates, those answered from records included.
        seconds: Wall seconds, or None.
        session_seconds: Wall seconds of one session, whatever came before it; or None.
    """

    trials: int
    seconds: float | None = None
    session_seconds: float | None = None


@frozen(eq=False)
class Tuner:
    """Tunes one or several tasks on one machine.

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
        prepared: Called once workers have been started and before the run is written: waits for
            what else gets ready in the background. What it raises ends the run.
        clock: Monotonic seconds.
        now: Unix time in seconds.
        began: When the caller began, by ``clock``; what came before the run is start-up.
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
    prepared: Callable[[], None] = lambda: None
    clock: Clock = time.monotonic
    now: Clock = time.time
    began: float | None = None

    def run(self) -> list[Result]:
        """Tune until the budget is used up; returns one result per program.

        A run of the same kind that did as much before is answered from its records; one that did
        less is continued.

        Raises:
            TuningInterrupted: SIGINT or SIGTERM; the run can be continued.
            WorkerStartFailed: nothing can be measured here.
            DatabaseError: an outcome cannot be recorded.
        """
        earlier = None if self.fresh else self.database.find_run(self.spec.identity)
        if earlier is not None and earlier.checkpoint is not None:
            checkpoint = Checkpoint.from_json(earlier.checkpoint, len(self.tasks))
            if earlier.status == "finished" and self._is_enough(checkpoint.progress):
                return self._answer(earlier, checkpoint)
            is_open = earlier.status != "failed" and not is_being_worked_on(earlier)
            # Of several processes that find it open at once, one gets it.
            claimed = {**earlier.checkpoint, "owner": this_process()}
            if is_open and self.database.claim_run(earlier, claimed):
                return _Session(self, earlier, checkpoint).run()
        if earlier is None and not self.fresh and (why := self.spec.older_run(self.database)):
            self.emit(WarningRaised(", ".join(task.name for task in self.tasks), why))
        run = self.spec.new_run(self.budget.trials, fresh=self.fresh, created=self.now())
        return _Session(self, run, None).run()

    def emit(self, event: Event) -> None:
        """Tell every listener."""
        for listener in self.listeners:
            listener(event)

    def _is_enough(self, progress: Progress) -> bool:
        if progress.trials >= self.budget.trials or progress.reason == EXHAUSTED:
            return True
        seconds = self.budget.seconds
        return seconds is not None and sum(progress.seconds.values()) >= seconds

    def _answer(self, run: Run, checkpoint: Checkpoint) -> list[Result]:
        progress = checkpoint.progress
        results = []
        found = zip(
            self.tasks, progress.logs, progress.baselines, progress.confirmations, strict=True
        )
        for spec, log, untuned, confirmation in found:
            digest = spec.workload.digest
            baselines = current(self.database, digest, spec.key, run.run_id, untuned)
            fastest = find_best(self.database, log, spec.key)
            result = self.result(spec, run, log, baselines, fastest)
            self.emit(AnsweredFromRecords(run.run_id, spec.name, len(log), result.best))
            results.append(
                evolve(
                    result,
                    seconds=dict(progress.seconds),
                    from_records=True,
                    reason=progress.reason,
                    confirmation=confirmation,
                )
            )
        return joined_results(self.tasks, results, progress.contests)

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
            fastest=fastest,
            best=None if fastest is None else standing(fastest, baselines),
            history=tuple(HistoryPoint(*point) for point in log.history()),
            database=self.database.location,
            program=spec.program,
            loosened=spec.space.loosened,
        )


class _Session:
    """One session of a run: from a checkpoint, or from nothing, to a stop."""

    def __init__(self, tuner: Tuner, run: Run, checkpoint: Checkpoint | None) -> None:
        self._tuner = tuner
        self._run = run
        self._is_new = checkpoint is None
        self._is_written = checkpoint is not None
        state = checkpoint or Checkpoint.empty(len(tuner.tasks))
        self._saved = state.search
        self._watch = Stopwatch(tuner.clock, state.progress.seconds, tuner.began)
        own = {} if self._is_new else _records_of(tuner.database, run.run_id)
        self._context = RunContext(
            run_id=run.run_id,
            database=tuner.database,
            space=tuner.spec.space,
            # A run that began without other runs' records continues without them.
            fresh=bool(run.options.get("fresh", tuner.fresh)),
            watch=self._watch,
            guard=tuner.guard,
            emit=tuner.emit,
            now=tuner.now,
            own=own,
        )
        counts = self._saved["trials"] if self._saved else [0] * len(tuner.tasks)
        self._tasks = [
            TaskSession(spec, self._context, log.first(count), untuned, confirmation)
            for spec, log, untuned, confirmation, count in zip(
                tuner.tasks,
                state.progress.logs,
                state.progress.baselines,
                state.progress.confirmations,
                counts,
                strict=True,
            )
        ]
        for task in self._tasks:
            task.given_up = is_hopeless(task.log)
        self._search = Search(
            [spec.space for spec in tuner.tasks],
            [spec.strategy for spec in tuner.tasks],
            [spec.cost_model for spec in tuner.tasks],
            tuner.scheduler,
            tuner.spec.options.round_size,
            self._watch,
        )
        self._contests = dict(state.progress.contests)
        self._outstanding: Round | None = None
        self._pools: list[TaskSession] = []

    @property
    def _trials(self) -> int:
        return sum(len(task.log) for task in self._tasks)

    def run(self) -> list[Result]:
        """Run rounds until there is a reason to stop."""
        try:
            self._begin()
            reason = self._loop()
            for task in self._tasks:
                if task.is_to_be_confirmed:
                    self._use(task)
                    task.confirm()
            self._compare_backends()
            with self._tuner.guard.shield():
                self._close()
                return self._finish(reason)
        except KeyboardInterrupt:
            if not self._is_written:
                raise
            with self._tuner.guard.shield():
                self._close()
                self._save("interrupted")
            run_id, trials = self._run.run_id, self._trials
            self._tuner.emit(RunInterrupted(run_id, trials))
            location = self._tuner.database.location
            raise TuningInterrupted(run_id, trials, location) from None
        except Exception as error:
            # Whatever it is, the run can be resumed; the error is reported.
            with suppress(DatabaseError):
                self._save("interrupted")
            if self._is_written:
                why = f"{type(error).__name__}: {error}"
                self._tuner.emit(RunFailed(self._run.run_id, self._trials, why))
            raise
        finally:
            self._close()

    def _begin(self) -> None:
        """Start workers first: they import a compiler while the search thinks."""
        tuner = self._tuner
        self._use(self._tasks[0])
        with self._watch.timing("startup"):
            tuner.prepared()
        with tuner.guard.shield():
            if self._is_new:
                checkpoint = self._checkpoint().to_json()
                tuner.database.start_run(evolve(self._run, checkpoint=checkpoint))
                self._is_written = True
            else:
                self._save("running")
        if self._saved is not None:
            self._outstanding = self._search.load_state(self._saved)
        for task in self._tasks:
            space = task.spec.space
            tuner.emit(
                RunStarted(
                    run_id=self._run.run_id,
                    task=task.spec.name,
                    workload=task.spec.workload.digest,
                    flop=task.spec.workload.flop,
                    trials=tuner.budget.trials,
                    seconds=tuner.budget.seconds,
                    resumed_trials=len(task.log),
                    resumed_outcomes=task.log.counts,
                    resumed_rejections=task.log.rejection_counts,
                    resumed_best=task.log.best_latency,
                    resumed_seconds=self._watch.elapsed - self._watch.session,
                    database=tuner.database.location,
                    sketches=len(space.sketches()),
                    configurations=space.count(),
                )
            )

    def _loop(self) -> str:
        """Do rounds; returns why they ended.

        A round is built while the next one is proposed, and the next one while the search learns
        from the first.
        """
        current = self._unless_given_up(self._outstanding) or self._propose(())
        if current is not None and self._spent() is None:
            self._submit(current)
        while current is not None:
            if (reason := self._spent()) is not None:
                return reason
            upcoming = self._propose([current.task]) if self._looks_ahead(current) else None
            outcomes = self._collect(current)
            # The last round of a budget is not learnt from: a larger one proposes it again from
            # the saved state, and continues as if the budget had been larger from the beginning.
            if self._spent() is not None or len(outcomes) < len(current.asked):
                return self._spent() or TIME_OVER
            upcoming = self._unless_given_up(upcoming)
            if upcoming is not None:
                self._submit(upcoming)
            self._learn(current, outcomes, upcoming)
            if upcoming is None:
                upcoming = self._propose(())
                if upcoming is not None and self._spent() is None:
                    self._submit(upcoming)
            current = upcoming
        return ALL_FAILED if all(task.given_up for task in self._tasks) else EXHAUSTED

    def _unless_given_up(self, proposed: Round | None) -> Round | None:
        if proposed is None or self._tasks[proposed.task].given_up:
            return None
        return proposed

    def _propose(self, outstanding: Sequence[int]) -> Round | None:
        return self._search.propose(
            outstanding,
            given_up=lambda task: self._tasks[task].given_up,
            best_latency=lambda task: self._tasks[task].log.best_latency,
        )

    def _looks_ahead(self, current: Round) -> bool:
        """Whether the next round is proposed before this one is known."""
        left = self._tuner.budget.trials - self._trials
        return self._tuner.spec.options.lookahead > 0 and len(current.asked) < left

    def _spent(self) -> str | None:
        """Why the budget allows nothing more, or None."""
        if self._trials >= self._tuner.budget.trials:
            return TRIALS_USED
        return TIME_OVER if self._time_is_over() else None

    def _time_is_over(self) -> bool:
        budget, watch = self._tuner.budget, self._watch
        if budget.session_seconds is not None and watch.session >= budget.session_seconds:
            return True
        return budget.seconds is not None and watch.elapsed >= budget.seconds

    def _submit(self, proposed: Round) -> None:
        """Begin to build as much of a round as the budget allows."""
        task = self._tasks[proposed.task]
        self._use(task)
        task.find_baselines()
        self._time_claim(task)
        task.submit(proposed.asked[: self._tuner.budget.trials - self._trials])

    def _time_claim(self, task: TaskSession) -> None:
        """Time the fastest imported record first: it may be the best, and only a claim says so."""
        claim = task.find_claim()
        if claim is not None and self._spent() is None:
            task.submit([claim])
            task.collect(self._trials, self._time_is_over)

    def _collect(self, current: Round) -> list[Outcome]:
        """Outcomes of as much of a round as the budget allows."""
        task = self._tasks[current.task]
        self._use(task)
        tuner, before = self._tuner, len(task.log)
        size = min(len(current.asked), tuner.budget.trials - self._trials)
        tuner.emit(RoundStarted(task.spec.name, self._search.rounds, before, size))
        outcomes = task.collect(self._trials, self._time_is_over)
        self._look_at_failures(task, before)
        return outcomes

    def _learn(self, current: Round, outcomes: Sequence[Outcome], upcoming: Round | None) -> None:
        """Pass on a complete round, and save the state after it."""
        tuner, task = self._tuner, self._tasks[current.task]
        self._search.learn(current, outcomes, task.log.best_latency, task.given_up)
        with tuner.guard.shield():
            trials = [len(other.log) for other in self._tasks]
            self._saved = self._search.state(trials, upcoming)
            seconds = self._save("running")
        tuner.emit(CheckpointSaved(self._run.run_id, self._trials, seconds))

    def _look_at_failures(self, task: TaskSession, before: int) -> None:
        """Warn of a run in which everything fails, and give up on a hopeless task.

        Args:
            task: The task.
            before: Trials it had before this round.
        """
        log = task.log
        if log.best is not None:
            return
        statuses = {entry.status for entry in log.entries[:WARN_AFTER]}
        if before < WARN_AFTER <= len(log) and len(statuses) == 1:
            (status,) = statuses
            self._tuner.emit(
                WarningRaised(
                    task.spec.name,
                    f"the first {WARN_AFTER} candidates all ended in {status}: "
                    f"{log.failures[status] or 'no message'}",
                )
            )
        task.given_up = is_hopeless(log)

    def _use(self, task: TaskSession, most: int = MOST_POOLS) -> None:
        """Have the task's workers at hand, and those of not too many others."""
        if task in self._pools:
            self._pools.remove(task)
        self._pools.append(task)
        while len(self._pools) > most:
            self._pools.pop(0).close()
        task.start()

    def _compare_backends(self) -> None:
        """Time the winners of the backends that compete for a program, beside each other."""
        tuner = self._tuner
        for name, positions in rivals(tuner.tasks).items():
            competing = [self._tasks[position] for position in positions]
            if not needs_comparison(competing, self._contests.get(name)):
                continue
            for task in competing:
                self._use(task, most=len(competing))
            rng = np.random.default_rng(tuner.spec.options.seed)
            self._contests[name] = compare_backends(competing, tuner.protocol, rng, self._watch)
            tuner.emit(BackendsCompared(name, self._contests[name]))

    def _close(self) -> None:
        for task in self._tasks:
            task.close()

    def _checkpoint(self, reason: str = "") -> Checkpoint:
        """The run's state."""
        progress = Progress(
            tuple(task.log for task in self._tasks),
            tuple(task.untuned for task in self._tasks),
            tuple(task.confirmation for task in self._tasks),
            self._watch.seconds,
            reason,
            self._contests,
        )
        return Checkpoint(self._saved, progress, this_process())

    def _save(self, status: str, reason: str = "") -> dict[str, float]:
        """Write the run's state; returns its seconds as written."""
        checkpoint = self._checkpoint(reason)
        self._tuner.database.update_run(
            self._run.run_id,
            status=status,
            trials=self._tuner.budget.trials,
            checkpoint=checkpoint.to_json(),
        )
        return dict(checkpoint.progress.seconds)

    def _finish(self, reason: str) -> list[Result]:
        tuner = self._tuner
        seconds = self._save("failed" if reason == ALL_FAILED else "finished", reason)
        results = []
        for task in self._tasks:
            own = self._context.own
            fastest = find_best(tuner.database, task.log, task.spec.key, own)
            result = tuner.result(task.spec, self._run, task.log, task.baselines, fastest)
            name, trials = task.spec.name, len(task.log)
            tuner.emit(RunFinished(self._run.run_id, name, trials, reason, result.best))
            confirmation = task.confirmation
            results.append(
                evolve(result, seconds=seconds, reason=reason, confirmation=confirmation)
            )
        return joined_results(tuner.tasks, results, self._contests)


def is_hopeless(log: TrialLog) -> bool:
    """Whether so much has failed that the rest would too."""
    return log.best is None and len(log) >= GIVE_UP_AFTER


def _records_of(database: Database, run_id: str) -> dict[tuple[MeasureKey, str], Record]:
    records = database.records(RecordFilter(run_id=run_id, imported=False))
    return {(record.key, record.candidate.digest): record for record in records}
