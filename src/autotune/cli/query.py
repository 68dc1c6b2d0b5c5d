"""Options that select records, shared by ``best``, ``show`` and others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import click
from attrs import field, frozen

from autotune.cli.destinations import InputFile
from autotune.cli.options import existing_database_option, read_shape, shape_option
from autotune.cli.programs import asked_program, program_options, read_workload
from autotune.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from autotune.store.database import Database, RecordFilter
    from autotune.store.records import Record

__all__ = [
    "MOST_THREADS",
    "Query",
    "chosen_record",
    "open_for_reading",
    "query_options",
    "record_json",
    "record_options",
]

Command = TypeVar("Command", bound=Callable[..., Any])
# More than any machine has.
MOST_THREADS = 1 << 20


def open_for_reading(database: str) -> Database:
    """A database of which nothing is changed; what is wrong with it is said in lines of their own.

    Raises:
        DatabaseError: it cannot be read.
    """
    from autotune.cli.output import warn
    from autotune.store.sqlite import open_database

    return open_database(database, read_only=True, warn=warn)


def query_options(command: Command) -> Command:
    """Add the options; the command receives their values as keyword arguments of `Query.read`."""
    target = click.option(
        "--target", type=InputFile(), help="cpu for this machine, a preset, or a JSON file."
    )
    return _record_options(command, target)


def record_options(command: Command) -> Command:
    """Add all options of :func:`query_options` but ``--target``."""
    return _record_options(command)


def _record_options(command: Command, *more: Callable[[Command], Command]) -> Command:
    options: tuple[Callable[[Command], Command], ...] = (
        click.argument("workload", required=False),
        shape_option,
        click.option("--dtype", help="Element type."),
        program_options,
        *more,
        click.option("--backend", help="Name of the backend."),
        click.option(
            "--threads", type=click.IntRange(1, MOST_THREADS), help="Threads the program ran on."
        ),
        existing_database_option,
    )
    for decorate in reversed(options):
        command = decorate(command)
    return command


@frozen
class Query:
    """Choice of records; None and missing parameters match everything."""

    workload: str | None = None
    digest: str | None = None
    parameters: dict[str, Any] = field(factory=dict)
    target: str | None = None
    backend: str | None = None
    threads: int | None = None
    status: str | None = "ok"
    protocol: str | None = None
    run_id: str | None = None

    @staticmethod
    def read(
        workload: str | None,
        shape: tuple[str, ...],
        dtype: str | None,
        mlir_path: str | None,
        function: str | None,
        target: str | None,
        backend: str | None,
        threads: int | None,
        status: str | None = "ok",
        protocol: str | None = None,
        run_id: str | None = None,
    ) -> Query:
        """From the options' values.

        Raises:
            InvalidValueError: a shape is given without a workload, or is not made of integers; a
                program cannot be read.
            UnknownNameError: the shape names something that the workload does not have.
            UnsupportedWorkload: a program in a file cannot be expressed.
        """
        program = asked_program(workload, shape, dtype, mlir_path, function)
        parameters: dict[str, Any] = dict(read_shape(shape))
        if parameters and workload is None:
            raise InvalidValueError("--shape needs a workload, such as gemm")
        if workload is not None:
            parameters = _checked_shape(workload, parameters)
        if dtype is not None:
            parameters["dtype"] = dtype
        fingerprint = None
        if target is not None:
            from autotune.tuning.options import described_target

            fingerprint = described_target(target, threads).fingerprint
        digest = None if program is None else read_workload(program).digest
        return Query(
            workload, digest, parameters, fingerprint, backend, threads, status, protocol, run_id
        )

    def select(self, database: Database) -> Iterable[Record]:
        """The records that match, in the order in which they were measured."""
        return filter(self._matches, database.records(self._where()))

    def everything(self, database: Database) -> Iterable[Record]:
        """Records that :meth:`select` gives, then those of baselines that match."""
        yield from self.select(database)
        for record in filter(self._matches, database.baseline_records(self._where())):
            if self.status in (None, record.outcome.status):
                yield record

    def best(self, database: Database) -> list[Record]:
        """The record to use that matches of each workload under each measure key, oldest first.

        However many records there are, few are read.
        """
        # What a shape leaves out are whole workloads.
        return list(filter(self._matches, database.best_of_each(self._where())))

    def fastest(self, database: Database) -> list[Record]:
        """Return the best records as :meth:`best`, of candidates only."""
        return list(filter(self._matches, database.fastest_of_each(self._where())))

    def none_matches(self, database: Database) -> str:
        """Says that no valid record matches, and which workloads have one if this one has none."""
        from autotune.errors import did_you_mean, near_matches

        said = f"no valid record in {database.location} matches"
        if self.workload is None:
            return said
        names = {it.candidate.sketch.workload.name for it in database.best_of_each()}
        if not names or self.workload in names:
            return said
        listed = ", ".join(sorted(names))
        hint = did_you_mean(near_matches(self.workload, names))
        return f"{said}; workloads with one: {listed}{hint and '.' + hint}"

    def _where(self) -> RecordFilter:
        from autotune.store.database import RecordFilter

        return RecordFilter(
            workload=self.digest,
            workload_name=self.workload,
            target=self.target,
            backend=self.backend,
            threads=self.threads,
            protocol=self.protocol,
            run_id=self.run_id,
            status=self.status,
        )

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
