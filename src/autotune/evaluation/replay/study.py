"""Many runs: every contestant on every space with every seed, in pieces that can be kept."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from attrs import frozen

from autotune.errors import AutotuneError, InvalidValueError
from autotune.evaluation.replay import contestants, kernel_tuner
from autotune.evaluation.replay.contestants import Contestant
from autotune.evaluation.replay.runs import Budget, Run
from autotune.evaluation.replay.tables import OutcomeTable
from autotune.process.blas_threads import one_blas_thread

__all__ = ["LeftOut", "Source", "Study", "append_run", "matching", "read_runs", "run_study"]

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
    """Why a contestant cannot be replayed against a space; "" where it can.

    Raises:
        AutotuneError: there is no such strategy, or a package is missing.
    """
    if contestant.name.startswith(kernel_tuner.PREFIX):
        return kernel_tuner.refusal(contestant.name, table)
    return contestants.refusal(contestant, table)


def replay(piece: Piece, table: OutcomeTable) -> Run | LeftOut:
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
) -> Iterator[Run | LeftOut]:
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
        futures: list[Future[Run | LeftOut]] = [pool.submit(_run, piece) for piece in pieces]
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


def _run(piece: Piece) -> Run | LeftOut:
    if piece.table not in _TABLES:
        _TABLES.clear()
        _TABLES[piece.table] = _SOURCES[piece.table]()
    return replay(piece, _TABLES[piece.table])


def matching(
    runs: Sequence[Run], pieces: Sequence[Piece], tables: Sequence[OutcomeTable]
) -> dict[Piece, Run]:
    """The runs that pieces would make again, by piece; the last one counts."""
    known = {(run.space, run.digest, run.strategy, run.seed, run.budget): run for run in runs}
    found = {}
    for piece in pieces:
        table = tables[piece.table]
        key = (table.name, table.digest, piece.contestant.label, piece.seed, piece.budget)
        if key in known:
            found[piece] = known[key]
    return found


def read_runs(path: str) -> list[Run]:
    """The runs of a file that :func:`append_run` wrote; none where there is no file.

    What follows the last end of a line was cut off and does not count.

    Raises:
        InvalidValueError: it cannot be read, or a line is no run; names its number.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(f"{path!r} cannot be read: {error}") from error
    runs = []
    for number, line in enumerate(text.rpartition("\n")[0].splitlines(), 1):
        try:
            runs.append(Run.from_json(_object(line)))
        except (AutotuneError, ValueError) as error:
            raise InvalidValueError(f"{path!r}: line {number} is no run: {error}") from error
    return runs


def _object(line: str) -> Mapping[str, Any]:
    data = json.loads(line)
    if not isinstance(data, dict):
        raise InvalidValueError("it is no object")
    return data


def append_run(path: str, run: Run) -> None:
    """Append a run to a file, in the place of one that was cut off.

    Raises:
        InvalidValueError: the file cannot be written.
    """
    try:
        with Path(path).open("a+b") as stream:
            with contextlib.suppress(OSError):  # a pipe
                stream.seek(0)
                stream.truncate(stream.read().rfind(b"\n") + 1)
            stream.write(json.dumps(run.to_json(), allow_nan=False).encode() + b"\n")
    except OSError as error:
        raise InvalidValueError(f"{path!r} cannot be written: {error.strerror}") from error
