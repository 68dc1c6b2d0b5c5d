"""One task while it is tuned: its strategy, its workers, its trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import field, frozen

from autotune.database import Database
from autotune.events import (
    BaselineMeasured,
    EventListener,
    TrialFinished,
    WarningRaised,
    WorkersReady,
)
from autotune.interrupts import InterruptGuard
from autotune.measure import Measurer
from autotune.records import MeasureKey, Outcome, Record
from autotune.sketches import Candidate
from autotune.spaces import SearchSpace
from autotune.stopwatch import Clock, Stopwatch
from autotune.strategies import Strategy
from autotune.targets import Target
from autotune.trial_log import TrialLog
from autotune.workloads import Workload

__all__ = ["RunContext", "TaskSession", "TaskSpec"]

MakeMeasurer = Callable[[], Measurer]


@frozen(eq=False)
class TaskSpec:
    """A task as the tuner is given it.

    Attributes:
        name: What a person calls it; unique among the tasks of a run.
        workload: What to tune.
        target: What to tune for.
        space: Its candidates.
        strategy: Proposes them.
        make_measurer: Makes the measurer, not started.
        program: The imported program's text, when one was imported.
        weight: How often the task occurs in the network.
    """

    name: str
    workload: Workload
    target: Target
    space: SearchSpace
    strategy: Strategy
    make_measurer: MakeMeasurer
    program: str | None = None
    weight: float = 1.0


@frozen(eq=False)
class RunContext:
    """What the tasks of a run share.

    Attributes:
        run_id: The run.
        database: Where outcomes are recorded.
        key: What measurements depend on.
        space: Name and version of the search space.
        fresh: Whether records of other runs are ignored.
        watch: Time of the run.
        guard: Delays interrupts while something is written.
        emit: Receives every event.
        now: Unix time in seconds.
        own: Records of this run by candidate that the search state does not include yet.
    """

    run_id: str
    database: Database
    key: MeasureKey
    space: str
    fresh: bool
    watch: Stopwatch
    guard: InterruptGuard
    emit: EventListener
    now: Clock
    own: dict[str, Record] = field(factory=dict)


class TaskSession:
    """Measures what the strategy proposes, and remembers what happened."""

    def __init__(
        self, spec: TaskSpec, context: RunContext, log: TrialLog, baseline: Outcome | None
    ) -> None:
        self.spec = spec
        self.log = log
        self.baseline = baseline
        self.given_up = False
        self._context = context
        self._measurer: Measurer | None = None
        self._ready = False
        self._has_baseline = False

    def start(self) -> None:
        """Let workers get ready in the background."""
        if self._measurer is None:
            # Shielded: processes that have been started must be known to `close`.
            with self._context.guard.shield():
                self._measurer = self.spec.make_measurer()
                self._measurer.start()

    def close(self) -> None:
        """End the workers."""
        if self._measurer is not None:
            self._measurer.close()
            self._measurer = None
            self._ready = False

    def measure(self, batch: Sequence[Candidate], first_trial: int) -> list[Outcome]:
        """Outcomes of ``batch`` in order: from records where possible, else measured.

        Each is recorded and logged, in the order of ``batch``, as soon as it is known.

        Args:
            batch: The candidates.
            first_trial: Position in the run of the first of them.
        """
        known: list[tuple[Outcome, str] | None] = [self._known(candidate) for candidate in batch]
        outcomes: list[Outcome] = []

        def log_known() -> None:
            while len(outcomes) < len(batch):
                found = known[len(outcomes)]
                if found is None:
                    return
                self._log(batch[len(outcomes)], *found)
                outcomes.append(found[0])

        missing = [index for index, found in enumerate(known) if found is None]

        def on_outcome(position: int, outcome: Outcome) -> None:
            index = missing[position]
            with self._context.guard.shield():
                self._store(batch[index], outcome, first_trial + index)
                known[index] = (outcome, self._context.run_id)
                log_known()

        log_known()
        if missing:
            measurer = self._prepared()
            candidates = [batch[index] for index in missing]
            with _Accounting(measurer, self._context.watch):
                measurer.measure(candidates, on_outcome, incumbent=self.log.best_latency)
            self._warn(measurer)
        return outcomes

    def find_baseline(self) -> None:
        """Find or measure the outcome of the untuned program; does so once."""
        if self._has_baseline:
            return
        context, workload = self._context, self.spec.workload.digest
        if self.baseline is None and not context.fresh:
            self.baseline = context.database.baseline(workload, context.key)
        if self.baseline is None:
            measurer = self._prepared()
            with _Accounting(measurer, context.watch):
                outcome = measurer.measure_baseline()
            self._warn(measurer)
            with context.guard.shield():
                context.database.append_baseline(
                    context.run_id, workload, context.key, outcome, context.now()
                )
                self.baseline = outcome
        self._has_baseline = True
        context.emit(BaselineMeasured(self.spec.name, self.baseline))

    def _warn(self, measurer: Measurer) -> None:
        for message in measurer.take_warnings():
            self._context.emit(WarningRaised(self.spec.name, message))

    def _prepared(self) -> Measurer:
        self.start()
        measurer = self._measurer
        if measurer is None:
            raise RuntimeError("the measurer was closed while it was being used")
        if not self._ready:
            watch = self._context.watch
            with watch.timing("startup"):
                measurer.wait_ready()
            self._ready = True
            self._context.emit(WorkersReady(self.spec.name, watch.session))
        return measurer

    def _known(self, candidate: Candidate) -> tuple[Outcome, str] | None:
        """The recorded outcome of a candidate, and the run that recorded it."""
        own = self._context.own.get(candidate.digest)
        if own is not None:
            return own.outcome, own.run_id
        if self._context.fresh:
            return None
        record = self._context.database.lookup(candidate.digest, self._context.key)
        return None if record is None else (record.outcome.as_cached(), record.run_id)

    def _store(self, candidate: Candidate, outcome: Outcome, trial: int) -> None:
        context = self._context
        record = Record(
            run_id=context.run_id,
            trial=trial,
            candidate=candidate,
            key=context.key,
            target=self.spec.target.to_json(),
            space=context.space,
            outcome=outcome,
            created=context.now(),
            elapsed=context.watch.elapsed,
        )
        context.database.append_record(record)
        context.own[candidate.digest] = record

    def _log(self, candidate: Candidate, outcome: Outcome, source: str) -> None:
        entry = self.log.add(candidate, outcome, self._context.watch.elapsed, source)
        self._context.emit(
            TrialFinished(
                task=self.spec.name,
                trial=len(self.log) - 1,
                candidate=candidate,
                outcome=outcome,
                best=self.log.best_latency,
                improved=self.log.best is entry,
                elapsed=entry.elapsed,
            )
        )


class _Accounting:
    """Counts what a measurer says it built and ran while the body was executed."""

    def __init__(self, measurer: Measurer, watch: Stopwatch) -> None:
        self._measurer = measurer
        self._watch = watch

    def __enter__(self) -> None:
        self._before = dict(self._measurer.seconds)

    def __exit__(self, *exception: object) -> None:
        after = self._measurer.seconds
        for activity in ("build", "run"):
            passed = after.get(activity, 0.0) - self._before.get(activity, 0.0)
            self._watch.claim(activity, passed)
