"""Many runs: every contestant on every space with every seed, in pieces that can be kept."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field, frozen

from autotune.errors import AutotuneError, InvalidValueError
from autotune.evaluation.line_file import append_line, whole_lines
from autotune.evaluation.replay import contestants, kernel_tuner
from autotune.evaluation.replay.contestants import Contestant
from autotune.evaluation.replay.formats import read_spaces
from autotune.evaluation.replay.recorded import OutcomeTable, check_units, table_of
from autotune.evaluation.replay.runs import Budget, Replay
from autotune.plugins.workload_names import task_name
from autotune.process.blas_threads import one_blas_thread
from autotune.report.summaries import Group, by_measure_key
from autotune.sketches import Sketch
from autotune.spaces.feasible_space import FeasibleSpace
from autotune.spaces.parameters.parameter_space import listed_set
from autotune.store.database import Database
from autotune.store.records import Outcome, Record
from autotune.store.sqlite import open_database

__all__ = [
    "LeftOut",
    "Source",
    "Study",
    "append_run",
    "load",
    "matching",
    "measured_tables",
    "read_runs",
    "run_study",
]

Source = Callable[[], OutcomeTable]
"""Makes a table; it is called again in other processes."""


@frozen
class LeftOut:
    """A contestant that was not replayed against a space.

    Attributes:
        strategy: The contestant.
        space: The space.
        reason: Why, in one sentence.
    """

    strategy: str
    space: str
    reason: str


@frozen(eq=False)
class Study:
    """Study of strategies on recorded spaces.

    Attributes:
        tables: The spaces.
        contestants: The strategies.
        seeds: Of each contestant on each space.
        budget: Of each run.
    """

    tables: tuple[OutcomeTable, ...]
    contestants: tuple[Contestant, ...]
    seeds: tuple[int, ...]
    budget: Budget

    @property
    def size(self) -> int:
        """Number of runs there would be."""
        return len(self.tables) * len(self.contestants) * len(self.seeds)

    def left_out(self) -> list[LeftOut]:
        """The contestants that cannot be replayed, space by space.

        Raises:
            AutotuneError: there is no such strategy, or a package is missing.
        """
        found = []
        for contestant in self.contestants:
            for table in self.tables:
                reason = refusal(contestant, table)
                if reason:
                    found.append(LeftOut(contestant.label, table.name, reason))
        return found

    def wanted(self, left_out: Sequence[LeftOut]) -> list[Piece]:
        """The runs to be made, those on one space beside each other."""
        without = {(it.strategy, it.space) for it in left_out}
        return [
            Piece(number, contestant, seed, self.budget)
            for number, table in enumerate(self.tables)
            for contestant in self.contestants
            if (contestant.label, table.name) not in without
            for seed in self.seeds
        ]


@frozen
class Piece:
    """A run to be made: a contestant on the space of this number, with a seed."""

    table: int
    contestant: Contestant
    seed: int
    budget: Budget


def refusal(contestant: Contestant, table: OutcomeTable) -> str:
    """Say why a contestant cannot be replayed against a space; "" where it can.

    Raises:
        AutotuneError: there is no such strategy, or a package is missing.
    """
    if contestant.name.startswith(kernel_tuner.PREFIX):
        return kernel_tuner.refusal(contestant.name, table)
    return contestants.refusal(contestant, table)


def replay(piece: Piece, table: OutcomeTable) -> Replay | LeftOut:
    """Make one run; a strategy that fails is left out."""
    contestant, clock = piece.contestant, time.process_time
    try:
        # Threads that wait would be counted as work, and take it from runs beside this one.
        with one_blas_thread():
            if contestant.name.startswith(kernel_tuner.PREFIX):
                name, options = contestant.name, contestant.options
                return kernel_tuner.replay(name, options, table, piece.seed, piece.budget, clock)
            return contestants.replay(contestant, table, piece.seed, piece.budget, clock)
    except AutotuneError as error:
        return LeftOut(contestant.label, table.name, str(error))


def run_study(
    pieces: Sequence[Piece],
    tables: Sequence[OutcomeTable],
    sources: Sequence[Source],
    jobs: int = 1,
) -> Iterator[Replay | LeftOut]:
    """Make runs, here or in several processes; gives each when it is there.

    Args:
        pieces: The runs.
        tables: The spaces.
        sources: What makes each of them, for processes of their own.
        jobs: How many runs are made at once.

    Raises:
        InvalidValueError: ``jobs`` is not positive.
    """
    if jobs < 1:
        raise InvalidValueError(f"at least 1 run is made at once, not {jobs}")
    if jobs == 1 or len(pieces) < 2:
        for piece in pieces:
            yield replay(piece, tables[piece.table])
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _begin, (tuple(sources),)) as pool:
        futures: list[Future[Replay | LeftOut]] = [pool.submit(_run, piece) for piece in pieces]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            # What has begun ends; what has not does not begin.
            pool.shutdown(wait=True, cancel_futures=True)


_SOURCES: list[Source] = []
_TABLES: dict[int, OutcomeTable] = {}


def _begin(sources: tuple[Source, ...]) -> None:
    # An interrupt is for the process that waits for the runs.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _SOURCES[:] = sources


def _run(piece: Piece) -> Replay | LeftOut:
    if piece.table not in _TABLES:
        _TABLES.clear()
        _TABLES[piece.table] = _SOURCES[piece.table]()
    return replay(piece, _TABLES[piece.table])


def matching(
    runs: Sequence[Replay], pieces: Sequence[Piece], tables: Sequence[OutcomeTable]
) -> dict[Piece, Replay]:
    """The runs that pieces would make again, by piece; the last one counts."""
    known = {(run.space, run.digest, run.strategy, run.seed, run.budget): run for run in runs}
    found = {}
    for piece in pieces:
        table = tables[piece.table]
        key = (table.name, table.digest, piece.contestant.label, piece.seed, piece.budget)
        if key in known:
            found[piece] = known[key]
    return found


def read_runs(path: str) -> list[Replay]:
    """The runs of a file that :func:`append_run` wrote; none where there is no file.

    What follows the last end of a line was cut off and does not count.

    Raises:
        InvalidValueError: it cannot be read, or a line is no run; names its number.
    """
    try:
        lines = whole_lines(Path(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(f"{path!r} cannot be read: {error}") from error
    runs = []
    for number, line in enumerate(lines, 1):
        try:
            runs.append(Replay.from_json(_object(line)))
        except (AutotuneError, ValueError) as error:
            raise InvalidValueError(f"{path!r}: line {number} is no run: {error}") from error
    return runs


def _object(line: str) -> Mapping[str, Any]:
    data = json.loads(line)
    if not isinstance(data, dict):
        raise InvalidValueError("it is no object")
    return data


def append_run(path: str, run: Replay) -> None:
    """Append a run to a file, in the place of one that was cut off.

    Raises:
        InvalidValueError: the file cannot be written.
    """
    try:
        append_line(Path(path), json.dumps(run.to_json(), allow_nan=False))
    except OSError as error:
        raise InvalidValueError(f"{path!r} cannot be written: {error.strerror}") from error


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
class _Task(Group):
    """The candidates of one task that were measured, by sketch."""

    sketches: dict[str, Sketch] = field(factory=dict)
    measured: dict[str, dict[tuple[int, ...], Outcome]] = field(factory=dict)

    def add(self, record: Record) -> None:
        """Take a record; the last one of a candidate counts."""
        Group.add(self, record)
        sketch = record.candidate.sketch
        self.sketches.setdefault(sketch.digest, sketch)
        self.measured.setdefault(sketch.digest, {})[record.candidate.values] = record.outcome

    @property
    def count(self) -> int:
        """Number of candidates."""
        return sum(map(len, self.measured.values()))

    @property
    def valid(self) -> int:
        """Number of candidates that are ok."""
        return sum(it.ok for own in self.measured.values() for it in own.values())


def measured_tables(database: Database, least: int = LEAST) -> list[OutcomeTable]:
    """A table for each task of which at least ``least`` candidates were measured.

    A task is a workload under one measure key. Its space is what was measured of it, so what some
    strategy had proposed: optimum and random search are those of that selection. Costs are the
    timings of the records.

    Raises:
        InvalidValueError: no task has so many, with a valid one among them.
        DatabaseError: the database cannot be read.
    """
    tasks = by_measure_key(database.records(), _Task)
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
        name = task_name(task.workload)
        number = names[name] = names.get(name, 0) + 1
        tables.append(_table(task, name if number == 1 else f"{name} ({number})"))
    return tables


def _table(task: _Task, name: str) -> OutcomeTable:
    feasible = {}
    places: dict[tuple[str, tuple[int, ...]], int] = {}
    outcomes: list[Outcome] = []
    for digest, own in task.measured.items():
        sketch = task.sketches[digest]
        rows = np.array(sorted(own), dtype=np.int64).reshape(len(own), len(sketch.params))
        title = f"what was measured of sketch {sketch.name!r}"
        feasible[sketch] = listed_set(title, sketch.param_names, rows)
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
        target=task.read_target(),
        has_nest=nests,
        notes=("only what was measured: a selection of the task's space",),
    )


def _digest(places: Mapping[tuple[str, tuple[int, ...]], int], outcomes: Sequence[Outcome]) -> str:
    text = hashlib.sha256()
    for (digest, values), number in places.items():
        outcome = outcomes[number]
        text.update(f"{digest}{values}{outcome.status}{outcome.latency}".encode())
    return text.hexdigest()[:16]
