"""Records of one task: what answers its candidates, and what its run adds and corrects."""

from __future__ import annotations

from attrs import evolve

from autotune.errors import DatabaseError
from autotune.sketches import Candidate
from autotune.store.best_record import find_record
from autotune.store.database import RecordFilter
from autotune.store.records import Outcome, Record
from autotune.store.trial_log import LogEntry
from autotune.tuning.task_spec import RunContext, TaskSpec

__all__ = ["TaskRecords"]


class TaskRecords:
    """Records of a task in the run's database, those of other runs included.

    Args:
        spec: The task.
        context: What the tasks of its run share.
    """

    def __init__(self, spec: TaskSpec, context: RunContext) -> None:
        self._spec = spec
        self._context = context

    def known(self, candidate: Candidate) -> tuple[Outcome, str] | None:
        """The recorded outcome of a candidate, and the run that recorded it."""
        own = self._context.own.get((self._spec.key, candidate.digest))
        if own is not None:
            return own.outcome, own.run_id
        if self._context.fresh:
            return None
        record = self._context.database.lookup(candidate.digest, self._spec.key)
        return None if record is None else (record.outcome.as_cached(), record.run_id)

    def trial_of(self, candidate: Candidate) -> int:
        """The trial as which this run has recorded a candidate; -1 if it has not."""
        record = self._context.own.get((self._spec.key, candidate.digest))
        return -1 if record is None else record.trial

    def recall(self, program: str) -> Outcome | None:
        """The recorded outcome of another candidate with the same program, by its digest."""
        context, spec = self._context, self._spec
        if context.fresh:
            return None
        record = context.database.lookup_program(program, spec.workload.digest, spec.key)
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
        if claim is None or self.known(claim.candidate) is not None:
            return None
        best = self._fastest(imported=False)
        if best is not None and (best.latency or 0.0) <= (claim.latency or 0.0):
            return None
        return claim.candidate.on(self._spec.workload)

    def of(self, entry: LogEntry) -> Record:
        """The record of a trial.

        Raises:
            DatabaseError: it was removed.
        """
        context, spec = self._context, self._spec
        record = find_record(context.database, entry, spec.key, context.own)
        if record is None:
            raise DatabaseError(
                f"database {context.database.location!r}: the record of candidate "
                f"{entry.digest} of run {entry.source} is gone"
            )
        return record.on(spec.workload, spec.program)

    def append(self, candidate: Candidate, outcome: Outcome, trial: int) -> None:
        """Record what was measured in this run.

        Args:
            candidate: What was measured.
            outcome: What came of it.
            trial: Position in the run.
        """
        context, spec = self._context, self._spec
        record = Record(
            run_id=context.run_id,
            trial=trial,
            candidate=candidate,
            key=spec.key,
            target=spec.target.to_json(),
            space=context.space,
            outcome=outcome,
            created=context.now(),
            elapsed=context.watch.elapsed,
            program=spec.program,
        )
        context.database.append_record(record)
        context.own[spec.key, candidate.digest] = record

    def amend(self, entry: LogEntry, outcome: Outcome) -> None:
        """Record what was found out later about the candidate of a trial."""
        context, own = self._context, (self._spec.key, entry.digest)
        context.database.amend(entry.source, entry.digest, outcome, self._spec.key)
        if own in context.own:
            context.own[own] = evolve(context.own[own], outcome=outcome)

    def _fastest(self, *, imported: bool) -> Record | None:
        """The fastest candidate of those measured here, or elsewhere, if there is any."""
        workload, key = self._spec.workload.digest, self._spec.key
        where = RecordFilter(workload=workload, key=key, imported=imported)
        return next(iter(self._context.database.fastest_of_each(where)), None)
