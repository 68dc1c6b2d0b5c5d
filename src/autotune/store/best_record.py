"""Finding the fastest record: of a run, or of several backends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

from autotune.store.database import Database, RecordFilter
from autotune.store.records import MeasureKey, Record
from autotune.store.trial_log import LogEntry, TrialLog
from autotune.targets import Target

__all__ = ["OwnRecords", "best_of_backends", "find_best", "find_record"]

OwnRecords = Mapping[tuple[MeasureKey, str], Record]
"""Records of a run by what they depend on and their candidate's digest."""


def find_best(
    database: Database, log: TrialLog, key: MeasureKey, own: OwnRecords | None = None
) -> Record | None:
    """The record of the fastest trial of a run that is still known to be valid.

    A record that several runs share may have been amended by another of them.

    Args:
        database: Where to look.
        log: The run's trials.
        key: What their measurements depend on.
        own: Records of the run, where they are at hand.
    """
    for entry in log.leaders(len(log)):
        record = find_record(database, entry, key, own)
        if record is not None and record.outcome.ok:
            return record
    return None


def find_record(
    database: Database, entry: LogEntry, key: MeasureKey, own: OwnRecords | None = None
) -> Record | None:
    """The current record of one trial; None when it was removed."""
    record = (own or {}).get((key, entry.digest))
    if record is not None and record.run_id == entry.source:
        return record
    where = RecordFilter(run_id=entry.source, candidate=entry.digest, key=key, imported=False)
    return next(database.records(where), None)


def best_of_backends(
    database: Database,
    workload: str,
    machine: Target,
    backends: Iterable[str],
    accepts: Callable[[Record], bool] = bool,
) -> Record | None:
    """The fastest program of a workload on a machine, of what some backends have made.

    Args:
        database: Where to look.
        workload: Digest of the workload.
        machine: With as many cores as there are threads.
        backends: Names of the backends.
        accepts: Whether a program is of use; the others are passed over.
    """
    wanted = (
        RecordFilter(
            workload=workload,
            target=machine.fingerprint,
            backend=backend,
            threads=machine.cores,
            status="ok",
        )
        for backend in backends
    )
    found = [_best_accepted(database, where, accepts) for where in wanted]
    return min(filter(None, found), key=attrgetter("rank"), default=None)


def _best_accepted(
    database: Database, where: RecordFilter, accepts: Callable[[Record], bool]
) -> Record | None:
    best = database.best(where)
    if best is None or accepts(best):
        return best
    others = filter(accepts, database.records(where))
    return min(others, key=attrgetter("rank"), default=None)
