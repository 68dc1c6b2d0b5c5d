"""Baselines of a task: the time at which each is timed, and its record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from autotune.measure import TimeIsOver
from autotune.sketches import UNTUNED, Candidate, baseline_label
from autotune.store.records import Baseline, Outcome, best_baseline
from autotune.tuning.baselines import current, fastest_first, known_here, program_named
from autotune.tuning.events import BaselineMeasured, WarningRaised
from autotune.tuning.task_spec import RunContext, TaskSpec

__all__ = ["TaskBaselines"]

# An untuned program that takes longer for certain, and so in fact some tenths of a second, is
# not run up front.
_SLOW_UNTUNED = 0.05
# A baseline that took so many times as long as the best candidate is not timed beside it again.
_LOST_FACTOR = 10.0
_UNTIMED = "the time of a session was over before it was timed"


class TaskBaselines:
    """The baselines of a task: what a user has without tuning.

    Args:
        spec: The task.
        context: What the tasks of its run share.
        untuned: What earlier sessions found of the untuned program.
        measure: Outcomes of programs, of which each is timed only as long as it can still win
            where the latency of the best candidate is given.

    Attributes:
        untuned: Outcome of the untuned program; None as long as it is not known.
    """

    def __init__(
        self,
        spec: TaskSpec,
        context: RunContext,
        untuned: Outcome | None,
        measure: Callable[[Sequence[Candidate | None], float | None], list[Outcome]],
    ) -> None:
        self.untuned = untuned
        self._spec = spec
        self._context = context
        self._measure = measure
        self._are_found = False

    @property
    def recorded(self) -> tuple[Baseline, ...]:
        """Baselines that are known by now, the fastest first."""
        context, spec = self._context, self._spec
        digest = spec.workload.digest
        return current(context.database, digest, spec.key, context.run_id, self.untuned)

    def find(self, best: float | None) -> None:
        """Find or measure what there is without tuning; does so once.

        All are measured together unless all are known, so that they compare. An untuned program
        that is slow for certain is left to :meth:`find_what_could_win`.

        Args:
            best: Latency of the best candidate, where there is one.
        """
        is_put_off = self.untuned is not None and self.untuned.message == _UNTIMED
        if self._are_found or (is_put_off and best is None):
            return
        context, spec = self._context, self._spec
        own_only = context.run_id if context.fresh else None
        recorded = known_here(context.database, spec.workload.digest, spec.key, own_only)
        known = {baseline.name: baseline for baseline in recorded}
        if self.untuned is not None and not is_put_off:
            known.setdefault(UNTUNED, self.made_of(UNTUNED, self.untuned))
        postponed = {UNTUNED} if spec.least_untuned > _SLOW_UNTUNED else set()
        wanted = [name for name in spec.baseline_names if name not in postponed]
        if not known.keys() >= set(wanted):
            known = self._timed(wanted, best)
        self._are_found = True
        self._tell(known[name] for name in spec.baseline_names if name in known)

    def find_what_could_win(self, best: float | None) -> None:
        """Time the untuned program after all, where the best candidate may be slower.

        Args:
            best: Latency of the best candidate, where there is one.
        """
        least = self._spec.least_untuned
        if least <= _SLOW_UNTUNED or best is None or best <= least:
            return
        if UNTUNED not in {baseline.name for baseline in self.recorded}:
            self._tell(self._timed([UNTUNED], best).values())

    def to_confirm(self, best: float) -> Baseline | None:
        """The fastest, unless it was so much slower that turns would tell nothing new."""
        baseline = best_baseline(self.recorded)
        latency = 0.0 if baseline is None else baseline.outcome.latency or 0.0
        return None if latency > _LOST_FACTOR * best else baseline

    def made_of(self, name: str, outcome: Outcome) -> Baseline:
        """A baseline of this run."""
        context, workload = self._context, self._spec.workload.digest
        return Baseline(context.run_id, workload, self._spec.key, outcome, context.now(), name)

    def record(self, baselines: Iterable[Baseline]) -> None:
        """Write what they are by now."""
        with self._context.guard.shield():
            for baseline in baselines:
                self._context.database.append_baseline(baseline)

    def _timed(self, names: Sequence[str], best: float | None) -> dict[str, Baseline]:
        spec = self._spec
        programs = [program_named(spec.workload, name) for name in names]
        try:
            outcomes = self._measure(programs, best if spec.cuts_off else None)
        except TimeIsOver:
            # The next session is not to spend its time on it again: candidates come first.
            self.untuned = Outcome("timeout", message=_UNTIMED)
            raise
        pairs = zip(names, outcomes, strict=True)
        timed = {name: self.made_of(name, outcome) for name, outcome in pairs}
        self.record(timed.values())
        return timed

    def _tell(self, found: Iterable[Baseline]) -> None:
        for baseline in fastest_first(list(found)):
            if baseline.name == UNTUNED:
                self.untuned = baseline.outcome
            # Without a word where the backend has no schedule for this program.
            if baseline.name == UNTUNED or baseline.outcome.status != "invalid":
                label = baseline_label(self._spec.workload, baseline.name)
                event = BaselineMeasured(self._spec.name, baseline.outcome, label)
                self._context.emit(event)
            if baseline.name == UNTUNED and baseline.outcome.status == "wrong_result":
                self._warn_of(baseline.outcome)

    def _warn_of(self, outcome: Outcome) -> None:
        """Say that a program does something else than what was read of it."""
        if self._spec.program is not None:
            message = (
                "the imported program computes something else than what was read of it, by which "
                f"candidates are checked: {outcome.message}"
            )
            self._context.emit(WarningRaised(self._spec.name, message))
