"""Sources of tables: files and databases, in this process or in another one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
from attrs import define, field

from autotune.errors import InvalidValueError
from autotune.evaluation.replay.formats import read_spaces
from autotune.evaluation.replay.recorded import check_units
from autotune.evaluation.replay.study import Source
from autotune.evaluation.replay.tables import OutcomeTable, table_of
from autotune.plugins.workload_names import task_name
from autotune.sketches import Sketch
from autotune.sketches.candidates import Matrix
from autotune.spaces.feasible import FeasibleSet
from autotune.spaces.feasible.build import join_groups
from autotune.spaces.feasible.groups import ParamGroup
from autotune.spaces.feasible_space import FeasibleSpace
from autotune.store.database import Database
from autotune.store.records import Outcome, Record
from autotune.store.sqlite import open_database
from autotune.targets import Target

__all__ = ["load", "measured_tables"]


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


LEAST = 100
"""A task of which fewer candidates were measured is no space to search in."""


class _MeasuredSpace(FeasibleSpace):
    """The candidates of a task that were measured."""

    name = "measured"
    version = "1"


@define
class _Task:
    """The candidates of one task under one measure key."""

    name: str
    target: Mapping[str, object]
    threads: int
    sketches: dict[str, Sketch] = field(factory=dict)
    outcomes: dict[str, dict[tuple[int, ...], Outcome]] = field(factory=dict)

    def add(self, record: Record) -> None:
        """Take a record; the last one of a candidate counts."""
        sketch = record.candidate.sketch
        self.sketches.setdefault(sketch.digest, sketch)
        self.outcomes.setdefault(sketch.digest, {})[record.candidate.values] = record.outcome

    @property
    def count(self) -> int:
        """Number of candidates."""
        return sum(map(len, self.outcomes.values()))

    @property
    def valid(self) -> int:
        """Number of candidates that are ok."""
        return sum(it.ok for own in self.outcomes.values() for it in own.values())


def measured_tables(database: Database, least: int = LEAST) -> list[OutcomeTable]:
    """A table for each task of which at least ``least`` candidates were measured.

    A task is a workload under one measure key. Its space is what was measured of it, so what some
    strategy had proposed: optimum and random search are those of that selection. Costs are the
    timings of the records.

    Raises:
        InvalidValueError: no task has so many, with a valid one among them.
        DatabaseError: the database cannot be read.
    """
    tasks = _collect(database.records())
    found = [task for task in tasks if task.count >= least and task.valid]
    if not found:
        most = max((task.count for task in tasks), default=0)
        raise InvalidValueError(
            f"{database.location} has no task with {least} candidates to replay; the largest of "
            f"{len(tasks)} has {most}"
        )
    names: dict[str, int] = {}
    tables = []
    for task in found:
        number = names[task.name] = names.get(task.name, 0) + 1
        tables.append(_table(task, task.name if number == 1 else f"{task.name} ({number})"))
    return tables


def _collect(records: Iterable[Record]) -> list[_Task]:
    tasks: dict[tuple[str, str], _Task] = {}
    for record in records:
        workload = record.candidate.sketch.workload
        key = (workload.digest, repr(record.key))
        if key not in tasks:
            tasks[key] = _Task(task_name(workload), record.target, record.key.threads)
        tasks[key].add(record)
    return list(tasks.values())


def _table(task: _Task, name: str) -> OutcomeTable:
    feasible = {}
    places: dict[tuple[str, tuple[int, ...]], int] = {}
    outcomes: list[Outcome] = []
    for digest, own in task.outcomes.items():
        sketch = task.sketches[digest]
        rows = np.array(sorted(own), dtype=np.int64).reshape(len(own), len(sketch.params))
        feasible[sketch] = listed_set(f"what was measured of sketch {sketch.name!r}", sketch, rows)
        for values in sorted(own):
            places[digest, values] = len(outcomes)
            outcomes.append(own[values])
    costs = np.array([sum(it.timings.values()) for it in outcomes], dtype=np.float64)
    nests = not any(sketch.is_opaque for sketch in feasible)
    return OutcomeTable(
        name,
        name,
        _digest(places, outcomes),
        _MeasuredSpace(feasible),
        tuple(outcomes),
        costs,
        places,
        target=_target(task),
        has_nest=nests,
        notes=("only what was measured: a selection of the task's space",),
    )


def listed_set(title: str, sketch: Sketch, rows: Matrix) -> FeasibleSet:
    """The set of listed configurations of a sketch.

    Args:
        title: For messages.
        sketch: The sketch.
        rows: The configurations, each once, [n, parameters].
    """
    names = sketch.param_names
    group = ParamGroup(names, tuple(range(len(names))), np.ascontiguousarray(rows))
    return FeasibleSet(title, names, join_groups(title, len(names), [group], []))


def _target(task: _Task) -> Target:
    target = Target.from_json(task.target)
    fewer = target.kind == "cpu" and task.threads < target.cores
    return target.with_cores(task.threads) if fewer else target


def _digest(places: Mapping[tuple[str, tuple[int, ...]], int], outcomes: Sequence[Outcome]) -> str:
    text = hashlib.sha256()
    for (digest, values), number in places.items():
        outcome = outcomes[number]
        text.update(f"{digest}{values}{outcome.status}{outcome.latency}".encode())
    return text.hexdigest()[:16]
