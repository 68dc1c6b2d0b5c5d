"""Task while it is tuned: its strategy, its workers, its trials."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from attrs import define, evolve, field, frozen

from autotune.errors import DatabaseError
from autotune.ir.workloads import Workload
from autotune.measure import (
    Collecting,
    Leader,
    LoadedProgram,
    Measurer,
    OnOutcome,
    TimeIsOver,
)
from autotune.measure.racing import challenger, distinct_programs, judge, places
from autotune.models.cost import Observation
from autotune.process.interrupts import InterruptGuard
from autotune.process.stopwatch import Clock, Stopwatch
from autotune.sketches import UNTUNED, Candidate, baseline_candidate, baseline_label
from autotune.store.best_record import find_record
from autotune.store.database import Database, RecordFilter
from autotune.store.records import (
    Baseline,
    Comparison,
    Confirmation,
    MeasureKey,
    Outcome,
    Record,
    best_baseline,
    standing,
)
from autotune.store.trial_log import LogEntry, TrialLog
from autotune.tuning.events import (
    BaselineMeasured,
    EventListener,
    LeadersCompared,
    TrialFinished,
    WarningRaised,
    WinnerConfirmed,
    WorkersReady,
)
from autotune.tuning.programs import TaskRun

__all__ = [
    "RunContext",
    "TaskSession",
    "after_turns",
    "current",
    "fastest_first",
    "known_here",
    "program_named",
]


@frozen(eq=False)
class RunContext:
    """State that the tasks of a run share.

    Attributes:
        run_id: The run.
        database: Where outcomes are recorded.
        space: Name and version of the search space.
        fresh: Whether records of other runs are ignored.
        watch: Time of the run.
        guard: Delays interrupts while something is written.
        emit: Receives every event.
        now: Unix time in seconds.
        make_measurer: Makes the measurer of a task, not started.
        own: Records of this run.
        ready: Backends whose shared workers have been ready once.
    """

    run_id: str
    database: Database
    space: str
    fresh: bool
    watch: Stopwatch
    guard: InterruptGuard
    emit: EventListener
    now: Clock
    make_measurer: Callable[[TaskRun], Measurer]
    own: dict[tuple[MeasureKey, str], Record] = field(factory=dict)
    ready: set[str] = field(factory=set)


def known_here(
    database: Database, workload: str, key: MeasureKey, run_id: str | None
) -> list[Baseline]:
    """Latency that was timed here, and is no imported claim.

    Args:
        database: Where to look.
        workload: Digest of the workload.
        key: What the measurements depend on.
        run_id: The only run that counts; None where all do.
    """
    found = database.baselines(RecordFilter(workload=workload, key=key, run_id=run_id))
    return [baseline for baseline in found if not baseline.outcome.imported]


def current(
    database: Database, workload: str, key: MeasureKey, run_id: str, untuned: Outcome | None
) -> tuple[Baseline, ...]:
    """The baselines of a task as the database has them by now, the fastest first.

    Args:
        database: Other runs may have compared them with faster candidates.
        workload: Digest of the workload.
        key: What the measurements depend on.
        run_id: The run.
        untuned: What it found of the untuned program; one that took too long is not looked up.
    """
    recorded = known_here(database, workload, key, None)
    if untuned is None:
        return fastest_first(recorded)
    return fastest_first([Baseline(run_id, workload, key, untuned, 0.0), *recorded])


def fastest_first(baselines: Sequence[Baseline]) -> tuple[Baseline, ...]:
    """Baselines, the last one of each name, ordered by latency; those without come last."""
    left = list({baseline.name: baseline for baseline in baselines}.values())
    ordered = []
    while (fastest := best_baseline(left)) is not None:
        left.remove(fastest)
        ordered.append(fastest)
    return (*ordered, *left)


def after_turns(baseline: Baseline, over: Comparison, latency: float, created: float) -> Baseline:
    """Latency of a baseline after it has taken turns with the fastest candidate.

    Where that one is not faster beyond the noise, the baseline counts as no slower.

    Args:
        baseline: The baseline.
        over: The candidate against it.
        latency: Recorded latency of the candidate in seconds.
        created: Unix time in seconds.
    """
    ratio = over.ratio if over.faster else min(over.ratio, 1.0)
    return evolve(baseline, counts_as=latency * ratio, created=created)


def program_named(workload: Workload, name: str) -> Candidate | None:
    """Program that a measurer builds for the baseline of this name; None is the untuned one."""
    return None if name == UNTUNED else baseline_candidate(workload, name)


# Trials that are looked at for programs to compare: many may be duplicates of each other.
_LOOKED_AT = 32
# What the seconds of a measurer count as.
_COUNTED = {"start": "startup", "build": "build", "run": "run"}
_CONFIRMING = dict.fromkeys(_COUNTED, "confirm")
# What rounding a latency changes is no news.
_ROUNDED = 1e-6
# An untuned program that takes longer for certain, and so in fact some tenths of a second, is
# not run up front.
_SLOW_UNTUNED = 0.05
# A baseline that took so many times as long as the best candidate is not timed beside it again.
_LOST_FACTOR = 10.0
_UNTIMED = "the time of a session was over before it was timed"


class TaskSession:
    """Measures what the strategy proposes, and what a user has without tuning; keeps its records.

    Args:
        task: The task.
        context: What the tasks of its run share.
        log: Its trials of earlier sessions.
        untuned: What these found of the untuned program.
        confirmation: The winner as they have confirmed it.

    Attributes:
        untuned: Outcome of the untuned program; None as long as it is not known.
        given_up: Whether it gets no more trials.
    """

    def __init__(
        self,
        task: TaskRun,
        context: RunContext,
        log: TrialLog,
        untuned: Outcome | None,
        confirmation: Confirmation | None = None,
    ) -> None:
        self.run = task
        self.log = log
        self.untuned = untuned
        self.confirmation = confirmation
        self.given_up = False
        self._context = context
        self._baselines_are_found = False
        self._measurer: Measurer | None = None
        self._ready = False
        self._submitted: deque[Submitted] = deque()
        self._best: Candidate | None = None
        # Candidates that were timed since the workers were started, and those whose latencies
        # in the log are seconds of this session.
        self._timed: set[str] = set()
        self._comparable: set[str] = set()

    def start(self) -> None:
        """Let workers get ready in the background."""
        # Shielded: processes that have been started must be known to `close`.
        with self._context.guard.shield():
            self._made().start()

    @property
    def shares_workers(self) -> bool:
        """True if its measurer has no processes of its own."""
        return self._made().shares_workers

    def _made(self) -> Measurer:
        if self._measurer is None:
            self._measurer = self._context.make_measurer(self.run)
        return self._measurer

    def close(self) -> None:
        """Close the measurer; workers that others share go on."""
        self._submitted.clear()
        if self._measurer is not None:
            self._measurer.close()
            self._measurer = None
            self._ready = False
            self._timed.clear()
            self._comparable.clear()

    def submit(self, batch: Sequence[Candidate]) -> None:
        """Begin to build those of ``batch`` that no record answers, and return at once."""
        submitted = Submitted(batch, [self._known(candidate) for candidate in batch])
        self._submitted.append(submitted)
        if submitted.missing:
            with self._accounting(self._prepared(), builds_go_on=True) as measurer:
                measurer.submit([batch[index] for index in submitted.missing])

    def collect(self, first_trial: int, enough: Callable[[], bool]) -> list[Outcome]:
        """Outcomes of what was submitted first, in order.

        Each is recorded and logged, in order, as soon as it is known.

        Args:
            first_trial: Position in the run of the first of them.
            enough: Whether to stop before the next candidate is timed.
        """
        current = self._submitted.popleft()

        def on_outcome(position: int, outcome: Outcome) -> None:
            index = current.missing[position]
            with self._context.guard.shield():
                if current.known[index] is None:
                    candidate = current.batch[index]
                    self._record(candidate, outcome, first_trial + index)
                    current.known[index] = (outcome, self._context.run_id)
                self._log_known(current)

        self._log_known(current)
        if current.missing:
            collecting = self._collecting(enough, on_outcome)
            # Without the rest, whatever was known in time is recorded.
            with suppress(TimeIsOver), self._accounting(self._prepared()) as measurer:
                measurer.collect(collecting)
            measured = current.missing[: len(current.logged)]
            self._note_timed(
                {
                    current.batch[at].digest: known[0]
                    for at in measured
                    if (known := current.known[at]) is not None
                }
            )
        return list(current.logged.values())

    @property
    def lanes(self) -> int:
        """Number of machines that time candidates at the same time."""
        return self._made().lanes

    @property
    def outstanding(self) -> int:
        """Number of candidates that were submitted and have not been logged."""
        return sum(it.unlogged for it in self._submitted)

    def collect_known(
        self, first_trial: int, count: int, enough: Callable[[], bool]
    ) -> list[Observation]:
        """Outcomes of what was submitted, in the order in which they become known.

        Each is recorded and logged as soon as it is known. What records answer comes first: that
        of this run in the order in which it was recorded, so that a run that is continued learns
        in the order in which it would have.

        Args:
            first_trial: Position in the run of the first of them.
            count: How many; there may be a few more, or fewer where there was enough.
            enough: Whether to stop before the next candidate is timed.
        """
        taken: list[Observation] = []
        places = {
            current.batch[at].digest: (current, at)
            for current in self._submitted
            for at in range(len(current.batch))
            if at not in current.logged
        }

        def log(candidate: Candidate, outcome: Outcome, source: str) -> None:
            current, at = places.pop(candidate.digest)
            # Counted first: a listener may interrupt, and what is known is delivered again then.
            current.logged[at] = outcome
            taken.append((candidate, outcome))
            self._log(candidate, outcome, source)

        def on_known(candidate: Candidate, outcome: Outcome) -> None:
            if candidate.digest in places:
                with self._context.guard.shield():
                    self._record(candidate, outcome, first_trial + len(taken))
                    log(candidate, outcome, self._context.run_id)

        answered = [
            (current.batch[at], known)
            for current, at in places.values()
            if (known := current.known[at]) is not None
        ]
        for candidate, known in sorted(answered, key=lambda it: self._trial_of(it[0])):
            log(candidate, *known)
        if places and len(taken) < count:
            before = len(taken)
            collecting = self._collecting(enough)
            with suppress(TimeIsOver), self._accounting(self._prepared()) as measurer:
                measurer.collect_known(collecting, count - before, on_known)
            self._note_timed({it.digest: outcome for it, outcome in taken[before:]})
        while self._submitted and not self._submitted[0].unlogged:
            self._submitted.popleft()
        return taken

    def _collecting(
        self, enough: Callable[[], bool], on_outcome: OnOutcome | None = None
    ) -> Collecting:
        return Collecting(
            on_outcome,
            lambda *told: self._context.emit(LeadersCompared(self.run.name, *told)),
            self._on_leader_timed,
            self._leader(),
            self._recall,
            enough,
        )

    def _note_timed(self, outcomes: Mapping[str, Outcome]) -> None:
        """Remember which candidates, by digest, or their equals, were timed in this session."""
        new = {digest for digest, outcome in outcomes.items() if not outcome.duplicate_of}
        self._timed |= new
        new |= {it for it, outcome in outcomes.items() if outcome.duplicate_of in self._timed}
        self._timed |= new
        self._comparable |= new

    @property
    def is_to_be_confirmed(self) -> bool:
        """True if this run has measured something since the last :meth:`confirm`."""
        return self.confirmation is None and self.log.has_measured(self._context.run_id)

    def confirm(self) -> None:
        """Time the best candidate again, beside its challenger and the fastest baseline.

        The challenger is the fastest of the other leaders when all of them take turns. Candidates
        that fail now are recorded as such, and the next best take their place.
        """
        if self.log.best is not None:
            self.find_baselines()
        rejected: list[str] = []
        self._find_what_could_win()
        while leaders := self._leaders(rejected):
            if len(leaders) > 2:
                outcomes = self._rematch(leaders, rejected)
                if outcomes is None:
                    continue
                leaders = [leaders[0], leaders[challenger(outcomes)]]
            baseline = self._baseline_to_confirm(self.log.best_latency or 0.0)
            outcomes = self._rematch(leaders, rejected, baseline)
            if outcomes is None:
                continue
            confirmation = judge(leaders, outcomes, rejected)
            self._note_winner(confirmation.winner)
            if baseline is not None:
                self._note_turns(baseline, confirmation, outcomes[-1])
            self.confirmation = confirmation
            self._context.emit(WinnerConfirmed(self.run.name, confirmation))
            return
        self.confirmation = None

    def _note_winner(self, winner: str) -> None:
        """Record which leaders were beaten by one with a higher latency; latencies stay."""
        for entry in self.log.leaders(len(self.log)):
            outcome = self._record_of(entry).outcome
            if entry.digest == winner:
                if outcome.beaten_by:
                    self._amend(entry, evolve(outcome, beaten_by=""))
                return
            self._amend(entry, evolve(outcome, beaten_by=winner))

    def _note_turns(
        self, baseline: Baseline, confirmation: Confirmation, outcome: Outcome
    ) -> None:
        """Record what a baseline counts as beside the winner, or that it is wrong after all."""
        context, over = self._context, confirmation.over_baseline
        if over is not None:
            entries = self.log.leaders(len(self.log))
            winner = next(entry for entry in entries if entry.digest == confirmation.winner)
            latency = self._record_of(winner).latency or 0.0
            changed = after_turns(baseline, over, latency, context.now())
        elif outcome.ok or outcome.retriable:
            return
        else:
            changed = self._baseline_of(baseline.name, outcome)
        self._record_baselines([changed])

    def _rematch(
        self,
        leaders: Sequence[LogEntry],
        rejected: list[str],
        baseline: Baseline | None = None,
    ) -> list[Outcome] | None:
        """Outcomes of leaders, and perhaps of a baseline, from turns.

        None where a leader failed; it is recorded so, and its digest added to ``rejected``.
        """
        programs: list[Candidate | None] = [self._record_of(entry).candidate for entry in leaders]
        if baseline is not None:
            programs.append(program_named(self.run.workload, baseline.name))
        with self._accounting(self._prepared(), _CONFIRMING) as measurer:
            outcomes = measurer.rematch(programs)
        failed = [pair for pair in zip(leaders, outcomes, strict=False) if not pair[1].ok]
        for entry, outcome in failed:
            self._amend(entry, outcome)
            rejected.append(entry.digest)
        return None if failed else outcomes

    def hold_winner(self) -> LoadedProgram:
        """Build the program to use again, to be timed in turns with those of other backends."""
        entry = self.log.best
        if entry is None:
            raise RuntimeError(f"{self.run.name} has no valid candidate to hold")
        chosen = standing(self._record_of(entry), self._baselines)
        with self._accounting(self._prepared(), _CONFIRMING) as measurer:
            return measurer.hold(chosen.scheduled)

    def _leaders(self, rejected: list[str]) -> list[LogEntry]:
        """The fastest valid trial, and the fastest of some other programs.

        Records of other runs may say by now, because these found it out, that a candidate is not
        valid; it is logged so, and its digest added to ``rejected``.
        """
        while True:
            leaders = self.log.leaders(_LOOKED_AT)
            found = [(entry, self._record_of(entry).outcome) for entry in leaders]
            gone = [(entry.digest, outcome) for entry, outcome in found if not outcome.ok]
            if not gone:
                return distinct_programs(
                    found, places(self.log.best_latency or 0.0, len(self.log))
                )
            for digest, outcome in gone:
                self.log.amend(digest, outcome)
                rejected.append(digest)

    def _prepared(self) -> Measurer:
        self.start()
        measurer = self._made()
        if not self._ready:
            watch = self._context.watch
            with watch.timing("startup"):
                measurer.wait_ready()
            self._ready = True
            backend, ready = self.run.key.backend, self._context.ready
            if not measurer.shares_workers or backend not in ready:
                ready.add(backend)
                self._context.emit(WorkersReady(self.run.name, watch.session))
        return measurer

    @contextmanager
    def _accounting(
        self,
        measurer: Measurer,
        counted: Mapping[str, str] = _COUNTED,
        *,
        builds_go_on: bool = False,
    ) -> Iterator[Measurer]:
        """Count what a measurer says it built and ran inside, as activities of the run.

        Args:
            measurer: The measurer.
            counted: What its seconds count as.
            builds_go_on: Whether builds that begin inside go on after it; what they overlap is
                credited to them once they are known.
        """
        before = dict(measurer.seconds)
        try:
            yield measurer
        finally:
            watch, after = self._context.watch, measurer.seconds
            for activity, name in counted.items():
                seconds = after.get(activity, 0.0) - before.get(activity, 0.0)
                watch.claim(name, seconds, beside_builds=builds_go_on and activity == "start")
            if not builds_go_on:
                watch.credit_builds(measurer.take_build_spans())
            for message in measurer.take_warnings():
                self._context.emit(WarningRaised(self.run.name, message))

    def _leader(self) -> Leader | None:
        best = self.log.best
        if best is None or best.latency is None:
            return None
        if self._best is None or self._best.digest != best.digest:
            self._best = self._record_of(best).candidate
        return Leader(self._best, best.latency if best.digest in self._timed else None)

    def _amend(self, entry: LogEntry, outcome: Outcome) -> None:
        """Record and log what was found out later about a candidate."""
        context, own = self._context, (self.run.key, entry.digest)
        with context.guard.shield():
            context.database.amend(entry.source, entry.digest, outcome, self.run.key)
            if own in context.own:
                context.own[own] = evolve(context.own[own], outcome=outcome)
            self.log.amend(entry.digest, outcome)

    def _on_leader_timed(self, latency: float) -> None:
        """Take note of what the best candidate of an earlier session takes in this one.

        It is the anchor: what was timed in the session that it comes from is compared with what is
        timed now through it.
        """
        anchor = self.log.best
        if anchor is None or anchor.latency is None:
            return
        alike = {entry.digest for entry in self.log.entries if entry.source == anchor.source}
        foreign = (alike - self._comparable) | {anchor.digest}
        self._timed.add(anchor.digest)
        self._comparable |= foreign
        factor = latency / anchor.latency
        if abs(factor - 1) > _ROUNDED:
            self.log.rescale(foreign, factor)

    def _log_known(self, current: Submitted) -> None:
        """Log the outcomes that are known and next in order."""
        while (at := len(current.logged)) < len(current.batch):
            found = current.known[at]
            if found is None:
                return
            # Counted first: a listener may interrupt, and what is known is delivered again then.
            current.logged[at] = found[0]
            self._log(current.batch[at], *found)

    def _log(self, candidate: Candidate, outcome: Outcome, source: str) -> None:
        entry = self.log.add(candidate, outcome, self._context.watch.elapsed, source)
        if source == self._context.run_id:
            self.confirmation = None
        if self.log.best is entry:
            self._best = candidate
        self._context.emit(
            TrialFinished(
                task=self.run.name,
                trial=len(self.log) - 1,
                candidate=candidate,
                outcome=outcome,
                best=self.log.best_latency,
                improved=self.log.best is entry,
                elapsed=entry.elapsed,
            )
        )

    @property
    def _baselines(self) -> tuple[Baseline, ...]:
        """Baselines that are known by now, the fastest first."""
        context, workload = self._context, self.run.workload.digest
        return current(context.database, workload, self.run.key, context.run_id, self.untuned)

    def find_baselines(self) -> None:
        """Find or measure what there is without tuning; does so once.

        All are measured together unless all are known, so that they compare. An untuned program
        that is slow for certain is left until it is known whether it could win.
        """
        is_put_off = self.untuned is not None and self.untuned.message == _UNTIMED
        if self._baselines_are_found or (is_put_off and self.log.best is None):
            return
        context, task = self._context, self.run
        own_only = context.run_id if context.fresh else None
        recorded = known_here(context.database, task.workload.digest, task.key, own_only)
        known = {baseline.name: baseline for baseline in recorded}
        if self.untuned is not None and not is_put_off:
            known.setdefault(UNTUNED, self._baseline_of(UNTUNED, self.untuned))
        postponed = {UNTUNED} if task.least_untuned > _SLOW_UNTUNED else set()
        wanted = [name for name in task.baseline_names if name not in postponed]
        if not known.keys() >= set(wanted):
            known = self._timed_baselines(wanted)
        self._baselines_are_found = True
        self._tell(known[name] for name in task.baseline_names if name in known)

    def _find_what_could_win(self) -> None:
        """Time the untuned program after all, where the best candidate may be slower."""
        least, best = self.run.least_untuned, self.log.best_latency
        if least <= _SLOW_UNTUNED or best is None or best <= least:
            return
        if UNTUNED not in {baseline.name for baseline in self._baselines}:
            self._tell(self._timed_baselines([UNTUNED]).values())

    def _baseline_to_confirm(self, best: float) -> Baseline | None:
        """The fastest, unless it was so much slower that turns would tell nothing new."""
        baseline = best_baseline(self._baselines)
        latency = 0.0 if baseline is None else baseline.outcome.latency or 0.0
        return None if latency > _LOST_FACTOR * best else baseline

    def _baseline_of(self, name: str, outcome: Outcome) -> Baseline:
        """A baseline of this run."""
        context, workload = self._context, self.run.workload.digest
        return Baseline(context.run_id, workload, self.run.key, outcome, context.now(), name)

    def _record_baselines(self, baselines: Iterable[Baseline]) -> None:
        with self._context.guard.shield():
            for baseline in baselines:
                self._context.database.append_baseline(baseline)

    def _timed_baselines(self, names: Sequence[str]) -> dict[str, Baseline]:
        """Baselines by name, each timed only as long as it can still win beside the best."""
        programs = [program_named(self.run.workload, name) for name in names]
        best = self.log.best_latency if self.run.cuts_off else None
        try:
            with self._accounting(self._prepared()) as measurer:
                outcomes = measurer.measure_baselines(programs, best)
        except TimeIsOver:
            # The next session is not to spend its time on it again: candidates come first.
            self.untuned = Outcome("timeout", message=_UNTIMED)
            raise
        pairs = zip(names, outcomes, strict=True)
        timed = {name: self._baseline_of(name, outcome) for name, outcome in pairs}
        self._record_baselines(timed.values())
        return timed

    def _tell(self, found: Iterable[Baseline]) -> None:
        """Tell of baselines, and warn of a program that is not what was read of it."""
        task, emit = self.run, self._context.emit
        for baseline in fastest_first(list(found)):
            outcome, is_untuned = baseline.outcome, baseline.name == UNTUNED
            if is_untuned:
                self.untuned = outcome
            # Without a word where the backend has no schedule for this program.
            if is_untuned or outcome.status != "invalid":
                label = baseline_label(task.workload, baseline.name)
                emit(BaselineMeasured(task.name, outcome, label))
            if is_untuned and outcome.status == "wrong_result" and task.program is not None:
                message = (
                    "the imported program computes something else than what was read of it, by "
                    f"which candidates are checked: {outcome.message}"
                )
                emit(WarningRaised(task.name, message))

    def _known(self, candidate: Candidate) -> tuple[Outcome, str] | None:
        """The recorded outcome of a candidate, and the run that recorded it."""
        own = self._context.own.get((self.run.key, candidate.digest))
        if own is not None:
            return own.outcome, own.run_id
        if self._context.fresh:
            return None
        record = self._context.database.lookup(candidate.digest, self.run.key)
        return None if record is None else (record.outcome.as_cached(), record.run_id)

    def _trial_of(self, candidate: Candidate) -> int:
        """The trial as which this run has recorded a candidate; -1 if it has not."""
        record = self._context.own.get((self.run.key, candidate.digest))
        return -1 if record is None else record.trial

    def _recall(self, program: str) -> Outcome | None:
        """The recorded outcome of another candidate with the same program, by its digest."""
        context, task = self._context, self.run
        if context.fresh:
            return None
        record = context.database.lookup_program(program, task.workload.digest, task.key)
        if record is None:
            return None
        return evolve(record.outcome, duplicate_of=record.candidate.digest)

    def find_claim(self) -> Candidate | None:
        """The candidate of the fastest imported record, if that claims most.

        None where there is none, where something that was timed here is as fast, or where the run
        ignores records.
        """
        if self._context.fresh:
            return None
        claim = self._fastest(imported=True)
        if claim is None or self._known(claim.candidate) is not None:
            return None
        best = self._fastest(imported=False)
        if best is not None and (best.latency or 0.0) <= (claim.latency or 0.0):
            return None
        return claim.candidate.on(self.run.workload)

    def _fastest(self, *, imported: bool) -> Record | None:
        """The fastest candidate of those measured here, or elsewhere, if there is any."""
        workload, key = self.run.workload.digest, self.run.key
        where = RecordFilter(workload=workload, key=key, imported=imported)
        return next(iter(self._context.database.fastest_of_each(where)), None)

    def _record_of(self, entry: LogEntry) -> Record:
        """The record of a trial.

        Raises:
            DatabaseError: it was removed.
        """
        context, task = self._context, self.run
        record = find_record(context.database, entry, task.key, context.own)
        if record is None:
            raise DatabaseError(
                f"database {context.database.location!r}: the record of candidate "
                f"{entry.digest} of run {entry.source} is gone"
            )
        return record.on(task.workload, task.program)

    def _record(self, candidate: Candidate, outcome: Outcome, trial: int) -> None:
        """Record what was measured in this run, as the trial of this number."""
        context, task = self._context, self.run
        record = Record(
            run_id=context.run_id,
            trial=trial,
            candidate=candidate,
            key=task.key,
            target=task.target.to_json(),
            space=context.space,
            outcome=outcome,
            created=context.now(),
            elapsed=context.watch.elapsed,
            program=task.program,
        )
        context.database.append_record(record)
        context.own[task.key, candidate.digest] = record


@define(eq=False)
class Submitted:
    """Candidates of a round, and those of them that are being measured.

    Attributes:
        batch: The candidates.
        known: The outcome of each with the run that recorded it, where there is one.
        missing: Positions of those that are being measured.
        logged: The outcome of each that was logged by its position, in the order of the log.
    """

    batch: Sequence[Candidate]
    known: list[tuple[Outcome, str] | None]
    missing: list[int] = field(init=False)
    logged: dict[int, Outcome] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.missing = [index for index, found in enumerate(self.known) if found is None]

    @property
    def unlogged(self) -> int:
        """Number of candidates that have not been logged."""
        return len(self.batch) - len(self.logged)
