"""Where tables come from: files and databases, in this process or in another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from autotune.errors import InvalidValueError
from autotune.evaluation.replay.databases import measured_tables
from autotune.evaluation.replay.formats import read_spaces
from autotune.evaluation.replay.recorded import check_units
from autotune.evaluation.replay.study import Source
from autotune.evaluation.replay.tables import OutcomeTable, table_of
from autotune.store.sqlite import open_database

__all__ = ["load"]


def load(
    paths: Sequence[str],
    database: str | None = None,
    described_by: str | None = None,
    units: Mapping[str, str] | None = None,
) -> tuple[list[OutcomeTable], list[Source]]:
    """The tables of files and of a database, and what makes each of them again.

    Args:
        paths: Recorded spaces.
        database: A database whose tasks are spaces, too, or None.
        described_by: As of :func:`~autotune.evaluation.replay.formats.read_spaces`.
        units: Likewise.

    Raises:
        AutotuneError: something cannot be read, or two spaces have one name.
    """
    recorded = read_spaces(paths, described_by, units)
    check_units(recorded)
    tables = [table_of(space) for space in recorded]
    given = units or {}
    sources: list[Source] = [
        partial(
            _from_file,
            path,
            described_by,
            {space.name: given[space.name]} if space.name in given else {},
        )
        for path, space in zip(paths, recorded, strict=True)
    ]
    if database is not None:
        measured = _measured(database)
        tables += measured
        sources += [partial(_from_database, database, number) for number in range(len(measured))]
    names = [table.name for table in tables]
    for name in names:
        if names.count(name) > 1:
            raise InvalidValueError(f"two spaces are called {name!r}")
    return tables, sources


def _from_file(path: str, described_by: str | None, units: Mapping[str, str]) -> OutcomeTable:
    (space,) = read_spaces([path], described_by, units)
    return table_of(space)


def _from_database(database: str, number: int) -> OutcomeTable:
    return _measured(database)[number]


def _measured(database: str) -> list[OutcomeTable]:
    with open_database(database, read_only=True) as opened:
        return measured_tables(opened)
