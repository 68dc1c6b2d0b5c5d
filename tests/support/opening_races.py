"""Opens new and old files in several processes at once, hundreds of times; run by
``database/test_opening_races.py``.

    python opening_races.py new|empty|old FOLDER ROUNDS

Each process opens the file of a round, appends a record and closes it, and does so again, so that
the file is made, brought to the present version, and left by its last user, while others open it.
Nothing of that is damage, and nothing may be lost. Every second process pauses at random between
two statements of SQL. Prints how many rounds there were.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from autotune.store.sqlite import open_database, opening
from autotune.testing.sample_records import sample_record

GOLDEN = Path(__file__).parents[1] / "store" / "sqlite" / "schema_1.db"
GOLDEN_TRIALS = 2
PROCESSES = 4
GROUPS = 8
OPENINGS = 2
LONGEST_PAUSE = 0.01
LATEST_START = 0.02

Prepare = Callable[[Path], None]


class PausingConnection(sqlite3.Connection):
    """Waits a random time before every statement."""

    rng = random.Random()

    def execute(self, *arguments: object) -> sqlite3.Cursor:
        time.sleep(self.rng.random() ** 3 * LONGEST_PAUSE)
        return super().execute(*arguments)  # type: ignore[arg-type]


def use(path: Path, process: int) -> None:
    """Open the file, append one record and close it, several times."""
    for trial in range(OPENINGS):
        with open_database(path, warn=fail) as database:
            database.append_record(sample_record(trial, run_id=f"process-{process}"))


def fail(message: str) -> None:
    raise AssertionError(message)


@contextlib.contextmanager
def pausing(seed: int) -> Iterator[None]:
    """Every connection that is made meanwhile pauses."""
    PausingConnection.rng.seed(seed)
    connect = sqlite3.connect

    def connect_pausing(*arguments: object, **options: object) -> sqlite3.Connection:
        return connect(*arguments, factory=PausingConnection, **options)  # type: ignore[call-overload,no-any-return]

    opening.sqlite3.connect = connect_pausing  # type: ignore[attr-defined]
    try:
        yield
    finally:
        opening.sqlite3.connect = connect  # type: ignore[attr-defined]


def path_of(folder: Path, round_number: int) -> Path:
    """The file of a round."""
    return folder / str(round_number) / "records.db"


def serve(folder: Path, process: int, starts: int, ends: int) -> None:
    """Take part in every round whose number comes through ``starts``."""
    while number := os.read(starts, 4):
        round_number = int.from_bytes(number, "little")
        pauses = pausing(round_number * PROCESSES + process)
        # Between two statements of one, another does all of its own.
        with pauses if (round_number + process) % 2 else contextlib.nullcontext():
            time.sleep(PausingConnection.rng.random() * LATEST_START)
            use(path_of(folder, round_number), process)
        os.write(ends, b".")


def start(folder: Path, process: int, others: list[tuple[int, int]]) -> tuple[int, int]:
    """Fork a process; returns where to write numbers of rounds, and where it answers."""
    starts, to_child = os.pipe()
    from_child, ends = os.pipe()
    if os.fork() == 0:
        status = 1
        try:
            for pipe in [(to_child, from_child), *others]:
                for end in pipe:
                    os.close(end)
            serve(folder, process, starts, ends)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(starts)
    os.close(ends)
    return to_child, from_child


def nothing(path: Path) -> None:
    """Do nothing: there is no file yet."""


def old(path: Path) -> None:
    """A file of version 1."""
    shutil.copy(GOLDEN, path)


KINDS: dict[str, tuple[Prepare, int]] = {
    "new": (nothing, 0),
    "empty": (Path.touch, 0),
    "old": (old, GOLDEN_TRIALS),
}


def check(path: Path, earlier: int) -> None:
    """The file has every record, and is alone in its folder afterwards."""
    # Two that close the file at once may leave its log to the next one.
    with open_database(path, warn=fail) as database:
        found = [(record.run_id, record.trial) for record in database.records()][earlier:]
    wanted = [(f"process-{n}", trial) for n in range(PROCESSES) for trial in range(OPENINGS)]
    assert sorted(found) == wanted, found
    left = sorted(item.name for item in path.parent.iterdir())
    assert left == [path.name], left


def main(kind: str, folder: Path, rounds: int) -> None:
    prepare, earlier = KINDS[kind]
    pipes: list[tuple[int, int]] = []
    # Processes wait for one another most of the time; several groups of them do so at once.
    for number in range(GROUPS * PROCESSES):
        pipes.append(start(folder, number % PROCESSES, pipes))
    for first in range(0, rounds, GROUPS):
        numbers = range(first, first + GROUPS)
        for number in numbers:
            path = path_of(folder, number)
            path.parent.mkdir()
            prepare(path)
        for place, (to_child, _) in enumerate(pipes):
            os.write(to_child, numbers[place // PROCESSES].to_bytes(4, "little"))
        for place, (_, from_child) in enumerate(pipes):
            assert os.read(from_child, 1) == b".", f"round {numbers[place // PROCESSES]} failed"
        for number in numbers:
            check(path_of(folder, number), earlier)
    for to_child, _ in pipes:
        os.close(to_child)
    for _ in pipes:
        assert os.wait()[1] == 0
    print(len(range(0, rounds, GROUPS)) * GROUPS)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
