"""Kills processes that use a database, at hundreds of moments; run by ``test_kill_points.py``.

    python kill_points.py append|statements|migration|recovery FOLDER

Children are forked from this process, which has everything imported, so that a kill costs little.
Prints how many children were killed, and how many ended by themselves first.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

from autotune.store.database import Database, RecordFilter
from autotune.store.sqlite import open_database, opening
from autotune.testing.sample_records import KEY, sample_record, sample_run

GOLDEN = Path(__file__).parent / "schema_1.db"
PAGE = 4096
KILLS = 200
KILLS_PER_FILE = 30


def run_child(work: Callable[[Callable[[int], None]], None], seconds: float | None) -> list[int]:
    """Fork a child that works, and kill it after a while; returns what it reported, and -1 last
    when it was killed.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work(lambda number: os.write(writer, number.to_bytes(4, "little")) and None)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    data = b""
    if seconds is not None:
        data = os.read(reader, 4)
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    while piece := os.read(reader, 1 << 16):
        data += piece
    os.close(reader)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), f"the child ended with {status}"
    reported = [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]
    return [*reported, *([-1] if status else [])]


def trials(database: Database, run_id: str) -> list[int]:
    return [record.trial for record in database.records(RecordFilter(run_id=run_id))]


def append(folder: Path) -> list[bool]:
    """Children that append and save checkpoints in a loop, killed at random instants."""
    rng = random.Random(0)
    killed = []
    expected: dict[str, list[int]] = {}
    for number in range(KILLS):
        path = folder / f"records-{number // KILLS_PER_FILE}.db"
        run_id = f"run-{number}"

        def work(report: Callable[[int], None], path: Path = path, run_id: str = run_id) -> None:
            with open_database(path) as database:
                database.start_run(sample_run(run_id, checkpoint={"trials": -1}))
                for trial in range(100_000):
                    database.append_record(sample_record(trial, run_id=run_id))
                    report(trial)
                    database.update_run(run_id, checkpoint={"trials": trial})

        *reported, last = run_child(work, rng.random() * 0.01)
        killed.append(last == -1)
        if number % KILLS_PER_FILE == 0:
            expected = {}
        with open_database(path, warn=fail) as database:
            found = trials(database, run_id)
            assert found == list(range(len(found)))
            assert len(reported) <= len(found) <= len(reported) + 1
            run = database.run(run_id)
            assert run is not None and run.checkpoint is not None
            assert len(found) - 2 <= run.checkpoint["trials"] <= len(found) - 1
            assert database.append_record(sample_record(0, run_id=f"after-{number}"))
            expected[run_id] = found
            # What was lost stays lost: all are looked at once, after the last kill of a file.
            if (number + 1) % KILLS_PER_FILE == 0 or number + 1 == KILLS:
                for earlier, numbers in expected.items():
                    assert trials(database, earlier) == numbers
    return killed


def statements(folder: Path) -> list[bool]:
    """Children killed within every transaction, after each few of its instructions."""
    killed = []
    winner = sample_record(1, 1e-6, lowered="same")
    duplicate = sample_record(2, lowered="same", duplicate_of=winner.candidate.digest)
    begun = folder / "begun.db"
    with open_database(begun) as database:
        database.append_record(sample_record(0))
        database.start_run(sample_run())
    for number in range(0, 5000, 6):
        path = folder / f"records-{number}.db"
        shutil.copy(begun, path)

        def work(report: Callable[[int], None], path: Path = path, number: int = number) -> None:
            with open_database(path) as database:
                kill_at(database._connection, number, 1)
                for record in (winner, duplicate):
                    database.append_record(record)
                    report(record.trial)
                database.update_run("run-1", checkpoint={"trials": 2})
                report(3)
                database.amend("run-1", winner.candidate.digest, sample_record(0, 2e-6).outcome)
                report(4)

        *reported, last = [*run_child(work, None), 0]
        was_killed = bool(reported) and reported[-1] == -1
        done = len(reported) - was_killed + last
        killed.append(was_killed)
        with open_database(path, warn=fail) as database:
            check_steps(database, done)
        if not was_killed:
            return killed
        path.unlink()
    raise AssertionError("the child was killed too late or never ended")


def check_steps(database: Database, done: int) -> None:
    """Each of four steps has happened completely or not at all, and those that were reported."""
    found = list(database.records())
    latencies = [record.latency for record in found]
    run = database.run("run-1")
    assert run is not None
    amended = latencies[1:] == [2e-6, 2e-6]
    steps = [len(found) > 1, len(found) > 2, run.checkpoint is not None, amended]
    happened = sum(steps)
    assert steps == [True] * happened + [False] * (4 - happened)
    assert done <= happened <= done + 1
    assert latencies[1:3] in ([], [1e-6], [1e-6, 1e-3], [2e-6, 2e-6])


def migration(folder: Path) -> list[bool]:
    """Children killed while they bring a file of version 1 to the present one."""
    killed = []
    wanted = [sample_record(0), sample_record(1, status="timeout")]
    connect = opening._connect_file
    for number in range(0, 100_000, 40):
        path = folder / f"records-{number}.db"
        shutil.copy(GOLDEN, path)

        def work(report: Callable[[int], None], path: Path = path, number: int = number) -> None:
            def connect_and_count(path: Path, read_only: bool) -> sqlite3.Connection:
                connection = connect(path, read_only)
                kill_at(connection, number, 1)
                return connection

            opening._connect_file = connect_and_count
            open_database(path).close()

        killed.append(run_child(work, None) == [-1])
        with open_database(path, warn=fail) as database:
            assert list(database.records()) == wanted
            assert database.lookup(wanted[0].candidate.digest, KEY) == wanted[0]
        path.unlink()
        if not killed[-1]:
            return killed
    raise AssertionError("the child was killed too late or never ended")


def recovery(folder: Path) -> list[bool]:
    """Children killed between any two changes to files of a recovery."""
    data, log, lost = damaged_file(folder / "source.db")
    killed = []
    for step in range(1, 100):
        path = folder / str(step) / "records.db"
        path.parent.mkdir()
        path.write_bytes(data)
        (path.parent / "records.db-wal").write_bytes(log)

        def work(report: Callable[[int], None], path: Path = path, step: int = step) -> None:
            left = step

            def count(event: str, arguments: object) -> None:
                nonlocal left
                if event in ("os.rename", "os.link", "os.remove", "sqlite3.connect"):
                    left -= 1
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(count)
            open_database(path, warn=lambda message: None).close()

        killed.append(run_child(work, None) == [-1])
        with open_database(path, warn=lambda message: None) as database:
            assert trials(database, "run-1") == list(range(220))
        others = [item.name for item in path.parent.iterdir() if item != path]
        assert all(name.startswith("records.db.corrupt-") for name in others), others
        contents = [item.read_bytes() for item in path.parent.iterdir()]
        assert any(content[lost : lost + PAGE] == bytes(PAGE) for content in contents)
        if not killed[-1]:
            return killed
    raise AssertionError("the child was killed too late or never ended")


def damaged_file(path: Path) -> tuple[bytes, bytes, int]:
    """A file, its log with the last records, and where the file has lost a page of an index."""
    with open_database(path) as database:
        for trial in range(200):
            database.append_record(sample_record(trial))
    with open_database(path) as database:
        for trial in range(200, 220):
            database.append_record(sample_record(trial))
        log = path.with_name(path.name + "-wal").read_bytes()
        data = bytearray(path.read_bytes())
    starts = range(32, len(log), 24 + PAGE)
    logged = {int.from_bytes(log[at : at + 4], "big") for at in starts}
    numbers = range(2, len(data) // PAGE + 1)
    index_leaf = 0x0A
    lost = next(n for n in numbers if n not in logged and data[(n - 1) * PAGE] == index_leaf)
    start = (lost - 1) * PAGE
    data[start : start + PAGE] = bytes(PAGE)
    return bytes(data), log, start


def kill_at(connection: sqlite3.Connection, number: int, instructions: int) -> None:
    """Kill this process when SQLite has carried out ``number`` times so many instructions."""
    left = number

    def count() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    connection.set_progress_handler(count, instructions)


def fail(message: str) -> None:
    raise AssertionError(message)


if __name__ == "__main__":
    kinds = {
        "append": append,
        "statements": statements,
        "migration": migration,
        "recovery": recovery,
    }
    outcomes = kinds[sys.argv[1]](Path(sys.argv[2]))
    print(sum(outcomes), len(outcomes) - sum(outcomes))
