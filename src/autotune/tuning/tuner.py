"""Tuning: a run is begun, continued, or answered from its records; backends may compete in it.

A run is an entity in the database. Its state is saved after every complete round; outcomes are
recorded one by one. A run that is stopped anywhere and continued later proposes the candidates,
in the order, that it would have proposed without the stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import numpy as np
from attrs import evolve, field, frozen

from autotune.errors import DatabaseError
from autotune.measure import LoadedProgram, MeasureProtocol, TimeIsOver
from autotune.measure.racing import Race, compare
from autotune.process.interrupts import InterruptGuard, TuningInterrupted
from autotune.process.stopwatch import Clock, Stopwatch
from autotune.search.search import Round, Search, Window
from autotune.store.best_record import OwnRecords, find_best
from autotune.store.database import Database, RecordFilter
from autotune.store.records import Contest, MeasureKey, Outcome, Record, Run, standing
from autotune.store.trial_log import TrialLog
from autotune.tuning.budget import (
    ALL_FAILED,
    CONVERGED,
    EXHAUSTED,
    GIVE_UP_AFTER,
    TIME_OVER,
    TRIALS_USED,
    Budget,
    Reserve,
    TimeLimit,
)
from autotune.tuning.events import (
    AnsweredFromRecords,
    BackendsCompared,
    CheckpointSaved,
    RoundStarted,
    RunFailed,
    RunFinished,
    RunInterrupted,
    RunStarted,
    WarmStarted,
    WarningRaised,
)
from autotune.tuning.programs import TaskRun
from autotune.tuning.resolve import RunPlan
from autotune.tuning.result import HistoryPoint, Result, Rival
from autotune.tuning.resume import Checkpoint, Progress, is_being_worked_on, this_process
from autotune.tuning.task import RunContext, TaskSession, current
from autotune.tuning.warm_start import find_warm_starts

__all__ = ["Tuner"]


@frozen(eq=False, kw_only=True)
class Tuner:
    """Tunes the tasks of a plan on one machine, within the budget of its options.

    Attributes:
        plan: What to tune, and how; strategies and cost models are new ones.
        database: Where everything is recorded.
        guard: Turns signals into interrupts at safe moments; entered by the caller.
        prepared: Called once workers have been started and before the run is written: does what
            can be done while they get ready, waits for what else gets ready in the background, and
            returns what time to keep. What it raises ends the run.
        clock: Monotonic seconds.
        now: Unix time in seconds.
        began: When the caller began, by ``clock``; what came before the run is start-up.
        network: As :attr:`Run.network`.
        budget: When to stop.
    """

    plan: RunPlan
    database: Database
    guard: InterruptGuard = field(factory=InterruptGuard)
    prepared: Callable[[], Reserve] = Reserve
    clock: Clock = time.monotonic
    now: Clock = time.time
    began: float | None = None
    network: str = ""
    budget: Budget = field(init=False)

    @budget.default
    def _budget_of_options(self) -> Budget:
        return Budget.of(self.plan.options, self.plan.programs)

    def results(self, run: Run, progress: Progress, own: OwnRecords | None) -> list[Result]:
        """Return a result per program, of which every listener is told.

        Args:
            run: The run.
            progress: What it has done.
            own: Records of the run; None where it is answered from what is recorded.
        """
        tell = self.plan.options.tell
        results = []
        for number, (task, log) in enumerate(zip(self.plan.tasks, progress.logs, strict=True)):
            result = self._result(run, progress, number, own)
            name, best = task.name, result.best
            if own is None:
                tell(AnsweredFromRecords(run.run_id, name, len(log), best))
            else:
                tell(RunFinished(run.run_id, name, len(log), progress.reason, best))
            results.append(result)
        return joined_results(self.plan.tasks, results, progress.contests)

    def _result(self, run: Run, progress: Progress, number: int, own: OwnRecords | None) -> Result:
        plan, task, log = self.plan, self.plan.tasks[number], progress.logs[number]
        fastest = find_best(self.database, log, task.key, own)
        if fastest is not None:
            fastest = fastest.on(task.workload, task.program)
        untuned = progress.baselines[number]
        baselines = current(self.database, task.workload.digest, task.key, run.run_id, untuned)
        return Result(
            run_id=run.run_id,
            task=task.name,
            workload=task.workload,
            target=task.target,
            key=task.key,
            space=plan.space,
            strategy=plan.strategy,
            cost_model=plan.options.chosen["cost_model"].name,
            seed=plan.options.seed,
            trials=len(log),
            outcomes=log.counts,
            failures=log.failures,
            rejections=log.rejections,
            cached=log.cached,
            seconds=dict(progress.seconds),
            baselines=baselines,
            least_untuned=task.least_untuned,
            fastest=fastest,
            best=None if fastest is None else standing(fastest, baselines),
            history=tuple(HistoryPoint(*point) for point in log.history()),
            database=self.database.location,
            program=task.program,
            from_records=own is None,
            reason=progress.reason,
            confirmation=progress.confirmations[number],
            loosened=task.space.loosened,
            warm_start=progress.warm_start(number),
        )

    def run(self) -> list[Result]:
        """Tune until the budget is used up; returns one result per program.

        A run of the same kind that did as much before is answered from its records; one that did
        less is continued.

        Raises:
            TuningInterrupted: SIGINT or SIGTERM; the run can be continued.
            WorkerStartFailed: nothing can be measured here.
            DatabaseError: an outcome cannot be recorded.
        """
        plan, fresh = self.plan, self.plan.options.fresh
        earlier = None if fresh else self.database.find_run(plan.identity)
        if earlier is not None and earlier.checkpoint is not None:
            checkpoint = Checkpoint.from_json(earlier.checkpoint, len(plan.tasks))
            if earlier.status == "finished" and self._is_enough(earlier, checkpoint.progress):
                return self.results(earlier, checkpoint.progress, None)
            is_open = earlier.status != "failed" and not is_being_worked_on(earlier)
            # Of several processes that find it open at once, one gets it.
            claimed = {**earlier.checkpoint, "owner": this_process()}
            if is_open and self.database.claim_run(earlier, claimed):
                return RunSession(self, earlier, checkpoint).run()
        if earlier is None and not fresh and (why := plan.older_run(self.database)):
            plan.options.tell(WarningRaised(", ".join(task.name for task in plan.tasks), why))
        run = plan.new_run(
            self.budget.recorded_trials, fresh=fresh, created=self.now(), network=self.network
        )
        return RunSession(self, run, None).run()

    def _is_enough(self, run: Run, progress: Progress) -> bool:
        if progress.reason == TIME_OVER and self._has_left_something(run, progress):
            return False
        return self.budget.is_used_up(progress)

    def _has_left_something(self, run: Run, progress: Progress) -> bool:
        """Tell if a run had no time to confirm what it found, or to compare its backends."""
        confirmed = zip(progress.logs, progress.confirmations, strict=True)
        if any(it is None and log.has_measured(run.run_id) for log, it in confirmed):
            return True
        pairs = list(zip(self.plan.tasks, progress.logs, strict=True))
        return any(
            needs_comparison([pairs[at] for at in positions], progress.contests.get(name))
            for name, positions in rivals(self.plan.tasks).items()
        )


MOST_POOLS = 2
"""Measurers with processes of their own that are kept at once; the others are closed."""
MOST_KEPT_BYTES = 1 << 30
"""Inputs and outputs of tasks whose measurers are kept."""


class RunSession:
    """Session of a run: from a checkpoint, or from nothing, to a stop."""

    def __init__(self, tuner: Tuner, run: Run, checkpoint: Checkpoint | None) -> None:
        plan = tuner.plan
        self._tuner, self._plan = tuner, plan
        self._run = run
        self._is_new = checkpoint is None
        self._is_written = checkpoint is not None
        state = checkpoint or Checkpoint.empty(len(plan.tasks))
        self._saved = state.search
        self._watch = Stopwatch(tuner.clock, state.progress.seconds, tuner.began)
        own = {} if self._is_new else _records_of(tuner.database, run.run_id)
        self._context = RunContext(
            run_id=run.run_id,
            database=tuner.database,
            space=plan.space,
            # A run that began without other runs' records continues without them.
            fresh=bool(run.options.get("fresh", plan.options.fresh)),
            watch=self._watch,
            guard=tuner.guard,
            emit=plan.options.tell,
            now=tuner.now,
            make_measurer=plan.make_measurer,
            own=own,
        )
        self._limit = TimeLimit(tuner.budget, self._watch, state.progress.used_up)
        self._known_logs = logs = state.progress.logs
        if not self._limit.search_is_over():
            # What was not learnt from is proposed again, and answered by the run's records.
            counts = self._saved["trials"] if self._saved else [0] * len(plan.tasks)
            logs = tuple(log.first(count) for log, count in zip(logs, counts, strict=True))
        self._tasks = [
            TaskSession(task, self._context, log, untuned, confirmation)
            for task, log, untuned, confirmation in zip(
                plan.tasks,
                logs,
                state.progress.baselines,
                state.progress.confirmations,
                strict=True,
            )
        ]
        for task in self._tasks:
            task.given_up = gives_up(task.log, plan.options.patience)
        self._search = Search(
            [task.space for task in plan.tasks],
            plan.strategies,
            plan.cost_models,
            plan.scheduler,
            plan.options.round_size,
            self._watch,
            plan.first_round,
        )
        self._contests = dict(state.progress.contests)
        self._warm_starts = state.progress.warm_starts
        self._resumed_trials = self._trials
        plan.workers.is_late = self._limit.is_late
        self._outstanding: Round | None = None
        # The tasks whose measurers are open, the one that was used last at the end.
        self._open: list[TaskSession] = []

    @property
    def _trials(self) -> int:
        return sum(len(task.log) for task in self._tasks)

    def run(self) -> list[Result]:
        """Run rounds until there is a reason to stop."""
        try:
            self._begin()
            reason = self._search_until_spent()
            reason = self._confirm_winners() or reason
            reason = self._compare_backends() or reason
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
            self._context.emit(RunInterrupted(run_id, trials))
            location = self._tuner.database.location
            raise TuningInterrupted(run_id, trials, location) from None
        except Exception as error:
            # Whatever it is, the run can be resumed; the error is reported.
            with suppress(DatabaseError):
                self._save("interrupted")
            if self._is_written:
                why = f"{type(error).__name__}: {error}"
                self._context.emit(RunFailed(self._run.run_id, self._trials, why))
            raise
        finally:
            self._close()

    def _begin(self) -> None:
        """Start workers first: they import a compiler while the search thinks."""
        tuner, plan = self._tuner, self._plan
        if not self._limit.search_is_over():
            self._use(self._tasks[0])
        with self._watch.timing("startup"):
            self._limit.reserve(tuner.prepared())
        if self._is_new and plan.options.warm_start is not False and not self._context.fresh:
            self._start_warm()
        with tuner.guard.shield():
            if self._is_new:
                checkpoint = self._checkpoint().to_json()
                tuner.database.start_run(evolve(self._run, checkpoint=checkpoint))
                self._is_written = True
            else:
                self._save("running")
        if self._saved is not None and not self._is_new:
            self._outstanding = self._search.load_state(self._saved)
        for number, task in enumerate(self._tasks):
            space = task.run.space
            self._context.emit(
                RunStarted(
                    run_id=self._run.run_id,
                    task=task.run.name,
                    workload=task.run.workload.digest,
                    flop=task.run.workload.flop,
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
            if self._is_new and self._warm_starts and self._warm_starts[number]:
                self._context.emit(WarmStarted(task.run.name, self._warm_starts[number]))

    def _start_warm(self) -> None:
        """Begin with what is recorded, and fix it: what others record later decides nothing."""
        tuner, plan = self._tuner, self._plan
        learns = not plan.options.chosen["cost_model"].is_none
        with self._watch.timing("startup"):
            found = find_warm_starts(
                tuner.database, plan.tasks, tuner.budget.trials, learns=learns
            )
        if not any(it.sources for it in found):
            return
        for number, it in enumerate(found):
            self._search.begin_with(number, it.seeds, it.training)
        self._warm_starts = tuple(it.sources for it in found)
        self._saved = self._search.state([0] * len(self._tasks), None)

    def _search_until_spent(self) -> str:
        """Do rounds; returns why they ended, which may be in the middle of one."""
        try:
            return self._loop()
        except TimeIsOver:
            return TIME_OVER
        finally:
            self._limit.end_search()
            # Where there was no time to propose again what had been measured, it is known still.
            for task, known in zip(self._tasks, self._known_logs, strict=True):
                if len(task.log) < len(known):
                    task.log = known

    def _loop(self) -> str:
        """Do rounds; returns why they ended.

        A round is built while the next one is proposed, and the next one while the search learns
        from the first.
        """
        if (reason := self._spent()) is not None:
            return reason
        current = self._unless_given_up(self._outstanding) or self._propose(())
        if current is not None and self._spent() is None:
            self._submit(current)
        while current is not None:
            if (reason := self._spent()) is not None:
                return reason
            if self._streams(current):
                if (reason := self._stream(current)) is not None:
                    return reason
                break
            upcoming = self._propose([current.task]) if self._looks_ahead(current) else None
            outcomes = self._collect(current)
            if self._confirm_one_early():
                self._keep_time()
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
        logs = [task.log for task in self._tasks]
        if all(is_hopeless(log) for log in logs):
            return ALL_FAILED
        patience = self._plan.options.patience
        is_settled = any(has_settled(log, patience) for log in logs)
        return CONVERGED if is_settled else EXHAUSTED

    def _streams(self, current: Round) -> bool:
        """Tell if the search goes on while others are out: one task, and several machines."""
        has_one_task, looks_ahead = len(self._tasks) == 1, self._plan.options.lookahead > 0
        return has_one_task and looks_ahead and self._tasks[current.task].lanes > 1

    def _stream(self, current: Round) -> str | None:
        """Keep all machines busy: learn from outcomes as they arrive, and propose further ones.

        Args:
            current: What was proposed and submitted.

        Returns:
            Why the budget allows nothing more; None where nothing more is to be proposed.
        """
        task = self._tasks[current.task]
        window = Window(self._plan.options.round_size)
        window.add(current.asked)
        self._fill(window, task)
        while window.pending:
            before, missing = len(task.log), window.missing
            self._context.emit(RoundStarted(task.run.name, self._search.rounds, before, missing))
            known = task.collect_known(before, missing, self._limit.search_is_over)
            window.arrive(known)
            self._look_after(task, before, [outcome for _, outcome in known])
            # As in rounds, what a budget ends with is not learnt from.
            if self._spent() is not None or window.missing:
                return self._spent() or TIME_OVER
            if task.given_up:
                return None
            learnt = window.take_step()
            done = Round(current.task, [candidate for candidate, _ in learnt])
            outcomes = [outcome for _, outcome in learnt]
            self._search.learn(done, outcomes, task.log.best_latency, task.given_up)
            self._fill(window, task)
            upcoming = Round(current.task, window.pending) if window.pending else None
            self._save_search(upcoming, len(window.arrived))
        return None

    def _fill(self, window: Window, task: TaskSession) -> None:
        """Propose as many rounds as the machines need, and submit what the budget allows."""
        self._search.lanes = task.lanes
        while window.is_short(task.lanes):
            outstanding = [self._tasks.index(task)] if window.pending else []
            proposed = self._propose(outstanding, is_waited_for=False)
            asked = window.add(proposed.asked) if proposed is not None else []
            if not asked:
                return
            room = self._tuner.budget.left(self._trials + task.outstanding)
            if room > 0:
                task.submit(asked[:room])

    def _unless_given_up(self, proposed: Round | None) -> Round | None:
        if proposed is None or self._tasks[proposed.task].given_up:
            return None
        return proposed

    def _propose(self, outstanding: Sequence[int], *, is_waited_for: bool = True) -> Round | None:
        return self._search.propose(
            outstanding,
            is_waited_for=is_waited_for,
            given_up=lambda task: self._tasks[task].given_up,
            best_latency=lambda task: self._tasks[task].log.best_latency,
        )

    def _looks_ahead(self, current: Round) -> bool:
        """Return whether the next round is proposed before this one is known."""
        left = self._tuner.budget.left(self._trials)
        return self._plan.options.lookahead > 0 and len(current.asked) < left

    def _spent(self) -> str | None:
        """Say why the budget allows nothing more, or None."""
        if self._tuner.budget.left(self._trials) <= 0:
            return TRIALS_USED
        return TIME_OVER if self._limit.search_is_over() else None

    def _submit(self, proposed: Round) -> None:
        """Begin to build as much of a round as the budget allows."""
        task = self._tasks[proposed.task]
        self._use(task)
        if not self._plan.times_candidates_first:
            task.find_baselines()
        self._time_claim(task)
        task.submit(proposed.asked[: self._tuner.budget.left(self._trials)])

    def _time_claim(self, task: TaskSession) -> None:
        """Time the fastest imported record first: it may be the best, and only a claim says so."""
        claim = None if len(task.log) else task.find_claim()
        if claim is not None and self._spent() is None:
            task.submit([claim])
            task.collect(self._trials, self._limit.search_is_over)

    def _collect(self, current: Round) -> list[Outcome]:
        """Outcomes of as much of a round as the budget allows."""
        task = self._tasks[current.task]
        self._use(task)
        tuner, before = self._tuner, len(task.log)
        size = min(len(current.asked), tuner.budget.left(self._trials))
        self._context.emit(RoundStarted(task.run.name, self._search.rounds, before, size))
        outcomes = task.collect(self._trials, self._limit.search_is_over)
        self._look_after(task, before, outcomes)
        return outcomes

    def _look_after(self, task: TaskSession, before: int, outcomes: Sequence[Outcome]) -> None:
        """Follow new outcomes: baselines, failures, and the time that is left.

        Args:
            task: The task.
            before: Trials it had before.
            outcomes: What is known now.
        """
        if task.log.best is not None:
            task.find_baselines()
        self._look_at_failures(task, before)
        self._limit.note_builds(it.timings["build"] for it in outcomes if "build" in it.timings)
        self._keep_time()

    def _keep_time(self) -> None:
        """Keep time for what comes after the search, by what is known now."""
        waiting = [len(other.log) for other in self._tasks if other.is_to_be_confirmed]
        tuned = sum(other.log.best is not None for other in self._tasks)
        self._limit.keep_for(waiting, self._trials - self._resumed_trials, tuned)

    def _learn(self, current: Round, outcomes: Sequence[Outcome], upcoming: Round | None) -> None:
        """Pass on a complete round, and save the state after it."""
        task = self._tasks[current.task]
        self._search.learn(current, outcomes, task.log.best_latency, task.given_up)
        self._search.lanes = task.lanes
        self._save_search(upcoming)

    def _save_search(self, upcoming: Round | None, not_learnt: int = 0) -> None:
        """Save the state of the search.

        Args:
            upcoming: What was proposed and not learnt from.
            not_learnt: How many of it have an outcome; of a single task.
        """
        tuner = self._tuner
        with tuner.guard.shield():
            trials = [len(task.log) - not_learnt for task in self._tasks]
            self._saved = self._search.state(trials, upcoming)
            progress = self._save("running")
        self._context.emit(CheckpointSaved(self._run.run_id, self._trials, dict(progress.seconds)))

    def _look_at_failures(self, task: TaskSession, before: int) -> None:
        """Warn of a run in which everything fails, and give up on a hopeless task.

        Args:
            task: The task.
            before: Trials it had before this round.
        """
        task.given_up = gives_up(task.log, self._plan.options.patience)
        message = uniform_failure(task.log, before)
        if message is not None:
            self._context.emit(WarningRaised(task.run.name, message))

    def _use(self, task: TaskSession, needed: int = 1) -> None:
        """Have a task's measurer at hand, and not too many others.

        Args:
            task: The task.
            needed: How many are needed at once, this one included.
        """
        if task in self._open:
            self._open.remove(task)
        self._open.append(task)
        while len(self._open) > needed and self._keeps_too_much():
            self._open.pop(0).close()
        task.start()

    def _keeps_too_much(self) -> bool:
        owners = sum(not task.shares_workers for task in self._open)
        kept = sum(task.run.workload.io_bytes for task in self._open)
        return owners > MOST_POOLS or kept > MOST_KEPT_BYTES

    @property
    def _unconfirmed(self) -> list[TaskSession]:
        """Tasks whose winner is to be confirmed, those first on which most time is spent."""
        waiting = [task for task in self._tasks if task.is_to_be_confirmed]
        return sorted(waiting, key=lambda it: -it.run.weight * (it.log.best_latency or 0.0))

    def _confirm_one_early(self) -> bool:
        """Confirm the first one where that tells what time to keep for many; whether it did.

        Nothing may be in flight. What is confirmed is confirmed again if it has further trials.
        """
        waiting = self._unconfirmed
        is_unknown = self._limit.is_confirmation_unknown(len(waiting))
        if is_unknown:
            self._confirm(waiting[0])
        return is_unknown

    def _confirm_winners(self) -> str | None:
        """Time the winners again, as long as there is time; why not all, if so."""
        waiting = self._unconfirmed
        with suppress(TimeIsOver):
            for task in waiting:
                if self._limit.is_over:
                    break
                self._confirm(task)
        left = [task.run.name for task in waiting if task.is_to_be_confirmed]
        return self._left_undone("not confirmed", left)

    def _confirm(self, task: TaskSession) -> None:
        self._use(task)
        began = self._watch.session
        task.confirm()
        self._limit.note_confirmation(len(task.log), self._watch.session - began)

    def _compare_backends(self) -> str | None:
        """Time the winners of the backends that compete for a program, beside each other."""
        plan, waiting = self._plan, {}
        for name, positions in rivals(plan.tasks).items():
            competing = [self._tasks[position] for position in positions]
            pairs = [(task.run, task.log) for task in competing]
            if needs_comparison(pairs, self._contests.get(name)):
                waiting[name] = competing
        with suppress(TimeIsOver):
            for name, competing in list(waiting.items()):
                if self._limit.is_over:
                    break
                for task in competing:
                    self._use(task, needed=len(competing))
                rng = np.random.default_rng(plan.options.seed)
                contest = compare_backends(competing, plan.options.protocol, rng, self._watch)
                self._contests[name] = contest
                del waiting[name]
                self._context.emit(BackendsCompared(name, contest))
        return self._left_undone("not compared between backends", list(waiting))

    def _left_undone(self, what: str, names: Sequence[str]) -> str | None:
        """Say what there was no time for, and return that as the reason of the end."""
        if not names:
            return None
        message = f"{TIME_OVER}: {what}, which the same call does"
        self._context.emit(WarningRaised(", ".join(names), message))
        return TIME_OVER

    def _close(self) -> None:
        for task in self._tasks:
            task.close()
        self._open.clear()
        self._plan.workers.close()

    def _checkpoint(self, reason: str = "") -> Checkpoint:
        """The run's state."""
        progress = Progress(
            tuple(task.log for task in self._tasks),
            tuple(task.untuned for task in self._tasks),
            tuple(task.confirmation for task in self._tasks),
            self._watch.seconds,
            reason,
            self._contests,
            self._limit.used_up(is_over=reason == TIME_OVER),
            self._warm_starts,
        )
        return Checkpoint(self._saved, progress, this_process())

    def _save(self, status: str, reason: str = "") -> Progress:
        """Write the run's state; returns its progress as written."""
        checkpoint = self._checkpoint(reason)
        self._tuner.database.update_run(
            self._run.run_id,
            status=status,
            trials=self._tuner.budget.recorded_trials,
            checkpoint=checkpoint.to_json(),
        )
        return checkpoint.progress

    def _finish(self, reason: str) -> list[Result]:
        progress = self._save("failed" if reason == ALL_FAILED else "finished", reason)
        return self._tuner.results(self._run, progress, self._context.own)


def _records_of(database: Database, run_id: str) -> dict[tuple[MeasureKey, str], Record]:
    records = database.records(RecordFilter(run_id=run_id, imported=False))
    return {(record.key, record.candidate.digest): record for record in records}


_WARN_AFTER = 8


def has_settled(log: TrialLog, patience: int | None) -> bool:
    """Tell if a task has had as many trials without a gain as the user has patience for."""
    return patience is not None and log.trials_without_gain >= patience


def gives_up(log: TrialLog, patience: int | None) -> bool:
    """Tell if a task gets no more trials: all have failed, or none was a gain for long."""
    return is_hopeless(log) or has_settled(log, patience)


def is_hopeless(log: TrialLog) -> bool:
    """Return whether so much has failed that the rest would too."""
    return log.best is None and len(log) >= GIVE_UP_AFTER


def uniform_failure(log: TrialLog, before: int) -> str | None:
    """A warning once the first candidates of a task have all failed in one way.

    Args:
        log: Trials of the task.
        before: How many it had when this was asked last: a warning is given once.
    """
    statuses = {entry.status for entry in log.entries[:_WARN_AFTER]}
    if log.best is not None or len(statuses) != 1 or not before < _WARN_AFTER <= len(log):
        return None
    (status,) = statuses
    message = log.failures[status] or "no message"
    return f"the first {_WARN_AFTER} candidates all ended in {status}: {message}"


def rivals(tasks: Sequence[TaskRun]) -> dict[str, list[int]]:
    """Positions of the tasks that compete for each program, by the program's name."""
    found: dict[str, list[int]] = {}
    for position, task in enumerate(tasks):
        if task.contest:
            found.setdefault(task.contest, []).append(position)
    return found


def finalists(tasks: Iterable[tuple[TaskRun, TrialLog]]) -> dict[str, str]:
    """Digest of each backend's best candidate, by name of the backend."""
    return {task.key.backend: log.best.digest for task, log in tasks if log.best is not None}


def needs_comparison(tasks: Iterable[tuple[TaskRun, TrialLog]], earlier: Contest | None) -> bool:
    """Return whether there is something to compare that has not been compared.

    Args:
        tasks: Those that compete, with their trials.
        earlier: What is known of the contest.
    """
    found = finalists(tasks)
    return len(found) > 1 and (earlier is None or dict(earlier.finalists) != found)


def compare_backends(
    sessions: Sequence[TaskSession],
    protocol: MeasureProtocol,
    rng: np.random.Generator,
    watch: Stopwatch,
) -> Contest:
    """Time the best candidate of each backend in turns with those of the others.

    What fails now is left out; the recorded best of a backend remains.

    Args:
        sessions: The tasks of one program, of which two at least have a valid candidate.
        protocol: How to time.
        rng: Shuffles the turns.
        watch: Time of the run.
    """
    able = sorted(
        (session for session in sessions if session.log.best is not None),
        key=lambda session: session.log.best_latency or 0.0,
    )
    names = [session.run.key.backend for session in able]
    found = finalists((session.run, session.log) for session in sessions)
    held = [session.hold_winner() for session in able]
    with watch.timing("confirm"):
        times = _race(held, protocol, rng)
    timed = [number for number, seconds in enumerate(times) if seconds]
    if not timed:
        return Contest(names[0], found, {})
    winner = min(timed, key=lambda number: compare(times[timed[0]], times[number]).ratio)
    over = {
        names[number]: compare(times[winner], times[number])
        for number in timed
        if number != winner
    }
    return Contest(names[winner], found, over)


def _race(
    held: Sequence[LoadedProgram], protocol: MeasureProtocol, rng: np.random.Generator
) -> list[list[float]]:
    """Seconds of each program, turn by turn; none for those that failed."""
    race = Race.under(protocol, len(held))
    turns = race.turns(rng, is_over=_is_over, drop=lambda race: None, needs_first=False)
    for number, placement in turns:
        race.note(number, held[number].turn(placement))
    return [race.times[number] if number in race.running else [] for number in range(len(held))]


def _is_over(race: Race) -> bool:
    return not race.running or (race.rounds >= race.min_rounds and race.over)


def joined_results(
    tasks: Sequence[TaskRun], results: Sequence[Result], contests: Mapping[str, Contest]
) -> list[Result]:
    """Join results to one for each program: the winner's, with the other backends' beside it.

    Without a contest the winner is the backend with the lowest latency, or the first one where
    no candidate of any was valid.

    Args:
        tasks: The tasks of a run.
        results: Theirs, in order.
        contests: What is known of each contest, by name.
    """
    groups = rivals(tasks)
    joined = []
    for position, (task, result) in enumerate(zip(tasks, results, strict=True)):
        group = groups.get(task.contest, [position])
        if group[0] != position:
            continue
        if not task.contest:
            joined.append(result)
            continue
        competing = [results[other] for other in group]
        joined.append(_winner(task.contest, competing, contests.get(task.contest)))
    return joined


def _winner(name: str, results: Sequence[Result], contest: Contest | None) -> Result:
    def place(result: Result) -> tuple[bool, bool, float]:
        lost = contest is not None and result.backend != contest.winner
        latency = None if result.best is None else result.best.latency
        return result.best is None, lost, latency or 0.0

    first, *others = sorted(results, key=place)
    over = {} if contest is None else contest.over
    beaten = tuple(Rival(evolve(other, task=name), over.get(other.backend)) for other in others)
    return evolve(first, task=name, rivals=beaten)
