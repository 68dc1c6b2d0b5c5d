"""Finding the record of a run's fastest trial."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.database import Database, RecordFilter
from autotune.records import Record
from autotune.trial_log import LogEntry, TrialLog

__all__ = ["find_best", "find_record"]


def find_best(
    database: Database, log: TrialLog, own: Mapping[str, Record] | None = None
) -> Record | None:
    """The record of the fastest trial of a run that is still known to be valid.

    A record that several runs share may have been amended by another of them.

    Args:
        database: Where to look.
        log: The run's trials.
        own: Records of the run by candidate, where they are at hand.
    """
    for entry in log.leaders(len(log)):
        record = find_record(database, entry, own)
        if record is not None and record.outcome.ok:
            return record
    return None


def find_record(
    database: Database, entry: LogEntry, own: Mapping[str, Record] | None = None
) -> Record | None:
    """The record of one trial, whatever it says by now; None when it is not there any more."""
    record = (own or {}).get(entry.digest)
    if record is not None and record.run_id == entry.source:
        return record
    where = RecordFilter(run_id=entry.source, candidate=entry.digest)
    return next(database.records(where), None)
