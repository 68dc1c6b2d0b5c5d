"""Tuning: a run is begun, continued, or answered from its records.

A run is an entity in the database. Its state is saved after every complete round; outcomes are
recorded one by one. A run that is stopped anywhere and continued later proposes the candidates,
in the order, that it would have proposed without the stop.
"""

from __future__ import annotations

from attrs import evolve, frozen

from autotune.store.best_record import find_best
from autotune.store.records import Run
from autotune.tuning.baselines import current
from autotune.tuning.contest import joined_results, needs_comparison, rivals
from autotune.tuning.events import AnsweredFromRecords, WarningRaised
from autotune.tuning.result import Result
from autotune.tuning.resume import Checkpoint, Progress, is_being_worked_on, this_process
from autotune.tuning.run_plan import TIME_OVER, RunPlan
from autotune.tuning.session import RunSession

__all__ = ["Tuner"]


@frozen(eq=False)
class Tuner(RunPlan):
    """Tunes one or several tasks on one machine; its attributes are those of a plan."""

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
            if earlier.status == "finished" and self._is_enough(earlier, checkpoint.progress):
                return self._answer(earlier, checkpoint)
            is_open = earlier.status != "failed" and not is_being_worked_on(earlier)
            # Of several processes that find it open at once, one gets it.
            claimed = {**earlier.checkpoint, "owner": this_process()}
            if is_open and self.database.claim_run(earlier, claimed):
                return RunSession(self, earlier, checkpoint).run()
        if earlier is None and not self.fresh and (why := self.spec.older_run(self.database)):
            self.emit(WarningRaised(", ".join(task.name for task in self.tasks), why))
        run = self.spec.new_run(
            self.budget.recorded_trials,
            fresh=self.fresh,
            created=self.now(),
            network=self.network,
            task_names=[task.name for task in self.tasks],
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
        pairs = list(zip(self.tasks, progress.logs, strict=True))
        return any(
            needs_comparison([pairs[at] for at in positions], progress.contests.get(name))
            for name, positions in rivals(self.tasks).items()
        )

    def _answer(self, run: Run, checkpoint: Checkpoint) -> list[Result]:
        progress = checkpoint.progress
        results = []
        found = zip(
            self.tasks, progress.logs, progress.baselines, progress.confirmations, strict=True
        )
        for number, (spec, log, untuned, confirmation) in enumerate(found):
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
                    warm_start=progress.warm_start(number),
                )
            )
        return joined_results(self.tasks, results, progress.contests)
