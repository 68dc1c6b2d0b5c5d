"""From lines into a database."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import evolve, frozen

from autotune.store.database import Database
from autotune.store.jsonl.json_lines import BadLine
from autotune.store.records import Record

__all__ = ["ImportReport", "import_lines"]

_BATCH = 256


@frozen
class ImportReport:
    """Report on the import of a file.

    Attributes:
        added: Records that are in the database now and were not before.
        known: Records that the database had already.
        bad: Lines that hold no record.
    """

    added: int
    known: int
    bad: int

    @property
    def records(self) -> int:
        """Number of records that were read."""
        return self.added + self.known


def import_lines(
    lines: Iterable[Record | BadLine],
    database: Database,
    on_bad: Callable[[BadLine], None],
    on_progress: Callable[[int], None] = lambda records: None,
) -> ImportReport:
    """Store the records that a database lacks, a few hundred at once.

    They are marked as imported. What was stored stays when a later line cannot be read, or when
    the process ends; doing the same again adds the rest.

    Args:
        lines: Records and bad lines, in the order of the file.
        database: Where to.
        on_bad: Called with every bad line.
        on_progress: Called with the number of records read, after each batch.

    Raises:
        DatabaseError: the database cannot be written.
    """
    added = records = bad = 0
    batch: list[Record] = []
    for line in lines:
        if isinstance(line, BadLine):
            bad += 1
            on_bad(line)
            continue
        # Whatever the line says of it: what others have timed is a claim here.
        batch.append(evolve(line, outcome=evolve(line.outcome, imported=True)))
        if len(batch) == _BATCH:
            added += database.append_missing(batch)
            records += len(batch)
            on_progress(records)
            batch.clear()
    added += database.append_missing(batch)
    records += len(batch)
    return ImportReport(added, records - added, bad)
