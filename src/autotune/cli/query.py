"""Options that select records, shared by ``best``, ``show`` and others."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

from autotune.cli.arguments import option
from autotune.cli.destinations import InputFile
from autotune.cli.options import read_database, read_shape
from autotune.cli.output import warn
from autotune.cli.programs import AskedProgram, read_workload
from autotune.errors import InvalidValueError, UnknownNameError, did_you_mean, near_matches

if TYPE_CHECKING:
    from autotune.store.database import Database, RecordFilter
    from autotune.store.records import Record

__all__ = [
    "MOST_THREADS",
    "Query",
    "Selected",
    "chosen_record",
    "open_for_reading",
    "record_json",
    "record_option",
]

# More than any machine has.
MOST_THREADS = 1 << 20


def open_for_reading(database: str) -> Database:
    """A database of which nothing is changed; what is wrong with it is said in lines of their own.

    Raises:
        DatabaseError: it cannot be read.
    """
    from autotune.store.sqlite import open_database

    return open_database(database, read_only=True, warn=warn)


def record_option() -> Any:
    """``--record RUN/TRIAL``, which :func:`chosen_record` reads."""
    return option("--record RUN/TRIAL", "A record, as `best` names it.")


@frozen
class Selected(AskedProgram):
    """Records of a database that a command line names; what it leaves out matches everything.

    Attributes:
        target: ``--target``.
        backend: ``--backend``.
        threads: ``--threads``.
        database: ``--database``.
    """

    target: str | None = option(
        "--target", "cpu for this machine, a preset, or a JSON file.", InputFile()
    )
    backend: str | None = option("--backend", "Name of the backend.")
    threads: int | None = option(
        "--threads", "Threads the program ran on.", click.IntRange(1, MOST_THREADS)
    )
    database: str = read_database()


@frozen
class Query:
    """Choice of records.

    Attributes:
        where: What a database is asked for.
        parameters: Values that parameters of the workload have.
    """

    where: RecordFilter
    parameters: dict[str, Any]

    @staticmethod
    def read(
        asked: Selected,
        status: str | None = "ok",
        protocol: str | None = None,
        run_id: str | None = None,
    ) -> Query:
        """From a command line.

        Raises:
            InvalidValueError: a shape is given without a workload, or is not made of integers; a
                program cannot be read.
            UnknownNameError: the shape names something that the workload does not have.
            UnsupportedWorkload: a program in a file cannot be expressed.
        """
        from autotune.store.database import RecordFilter

        program = asked.file()
        parameters: dict[str, Any] = dict(read_shape(asked.shape))
        if parameters and asked.workload is None:
            raise InvalidValueError("--shape needs a workload, such as gemm")
        if asked.workload is not None:
            parameters = _checked_shape(asked.workload, parameters)
        if asked.dtype is not None:
            parameters["dtype"] = asked.dtype
        fingerprint = None
        if asked.target is not None:
            from autotune.tuning.options import described_target

            fingerprint = described_target(asked.target, asked.threads).fingerprint
        where = RecordFilter(
            workload=None if program is None else read_workload(program).digest,
            workload_name=asked.workload,
            target=fingerprint,
            backend=asked.backend,
            threads=asked.threads,
            protocol=protocol,
            run_id=run_id,
            status=status,
        )
        return Query(where, parameters)

    def select(self, database: Database) -> Iterable[Record]:
        """The records that match, in the order in which they were measured."""
        return filter(self._matches, database.records(self.where))

    def everything(self, database: Database) -> Iterable[Record]:
        """Records that :meth:`select` gives, then those of baselines that match."""
        yield from self.select(database)
        for record in filter(self._matches, database.baseline_records(self.where)):
            if self.where.status in (None, record.outcome.status):
                yield record

    def best(self, database: Database) -> list[Record]:
        """The record to use that matches of each workload under each measure key, oldest first.

        However many records there are, few are read.
        """
        # What a shape leaves out are whole workloads.
        return list(filter(self._matches, database.best_of_each(self.where)))

    def fastest(self, database: Database) -> list[Record]:
        """Return the best records as :meth:`best`, of candidates only."""
        return list(filter(self._matches, database.fastest_of_each(self.where)))

    def none_matches(self, database: Database) -> str:
        """Says that no valid record matches, and which workloads have one if this one has none."""
        name, said = self.where.workload_name, f"no valid record in {database.location} matches"
        if name is None:
            return said
        names = {it.candidate.sketch.workload.name for it in database.best_of_each()}
        if not names or name in names:
            return said
        listed = ", ".join(sorted(names))
        hint = did_you_mean(near_matches(name, names))
        return f"{said}; workloads with one: {listed}{hint and '.' + hint}"

    def _matches(self, record: Record) -> bool:
        parameters = record.candidate.sketch.workload.parameters
        return all(parameters.get(key) == value for key, value in self.parameters.items())


def record_json(record: Record) -> dict[str, Any]:
    """A record as JSON, with ``imported`` where it was not measured here.

    That of an external program with the values of its configuration.
    """
    from autotune.external.given import recorded_configuration

    origin = {"imported": True} if record.outcome.imported else {}
    values = recorded_configuration(record)
    chosen = {} if values is None else {"configuration": values}
    return {**record.to_json(), **origin, **chosen}


def chosen_record(database: Database, query: Query, record_id: str | None) -> Record | None:
    """The record called ``RUN/TRIAL``, or the fastest that matches; None where there is none.

    Raises:
        InvalidValueError: the name is not of that form.
    """
    if record_id is None:
        return min(query.best(database), key=attrgetter("rank"), default=None)
    from autotune.store.database import RecordFilter
    from autotune.store.records import BASELINE_PLACES

    run, slash, place = record_id.partition("/")
    if place in BASELINE_PLACES:
        found = database.baseline_records(RecordFilter(run_id=run))
        return next((record for record in found if record.name == record_id), None)
    if not (slash and place.isdigit()):
        raise InvalidValueError(
            f"--record {record_id!r} is not of the form RUN/TRIAL, "
            f"{' or '.join(f'RUN/{name}' for name in BASELINE_PLACES)}"
        )
    records = database.records(RecordFilter(run_id=run))
    return next((record for record in records if record.trial == int(place)), None)


def _checked_shape(workload: str, given: dict[str, Any]) -> dict[str, Any]:
    from autotune.plugins.manager import manager
    from autotune.plugins.workload_names import builder_info

    # Imported programs have names of their own; only those of builders can be checked.
    if workload in manager().names("workload"):
        known = {parameter.name for parameter in builder_info(workload).shape}
        for key in given:
            if key not in known:
                raise UnknownNameError(f"shape parameter of {workload}", key, known)
    shape: dict[str, Any] = {}
    for key, value in given.items():
        if not (value.isascii() and value.isdigit()):
            raise InvalidValueError(f"{workload}: {key} must be a whole number, not {value!r}")
        shape[key] = int(value)
    return shape
