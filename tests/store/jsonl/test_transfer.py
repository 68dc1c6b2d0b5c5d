"""Lines that become records of a database."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from attrs import evolve
from python_processes import start_python

from autotune.store.jsonl import (
    BadLine,
    ImportReport,
    import_lines,
    read_lines,
    record_line,
    write_lines,
)
from autotune.store.records import Record
from autotune.store.sqlite import open_database
from autotune.testing.sample_records import sample_record


def many(count: int) -> list[Record]:
    return [sample_record(trial) for trial in range(count)]


def imported(records: Iterable[Record]) -> list[Record]:
    """Records after their way through a file."""
    return [evolve(it, outcome=evolve(it.outcome, imported=True)) for it in records]


def test_what_is_there_is_not_added_again(tmp_path: Path) -> None:
    bad: list[BadLine] = []
    with open_database(tmp_path / "records.db") as database:
        assert import_lines(many(3), database, bad.append) == ImportReport(3, 0, 0)
        assert import_lines(many(5), database, bad.append) == ImportReport(2, 3, 0)
        assert list(database.records()) == imported(many(5))
    assert bad == []


def test_bad_lines_are_told_of(tmp_path: Path) -> None:
    bad: list[BadLine] = []
    lines = [sample_record(0), BadLine(2, "why"), sample_record(1), BadLine(4, "how")]
    with open_database(tmp_path / "records.db") as database:
        report = import_lines(lines, database, bad.append)
    assert report == ImportReport(2, 0, 2) and report.records == 2
    assert bad == [BadLine(2, "why"), BadLine(4, "how")]


def test_what_was_read_before_a_failure_stays(tmp_path: Path) -> None:
    """In batches, each durable when the next is read; a repeated import adds the rest."""

    def lines() -> Iterator[Record]:
        yield from many(600)
        raise KeyboardInterrupt

    told: list[int] = []
    with open_database(tmp_path / "records.db") as database:
        with pytest.raises(KeyboardInterrupt):
            import_lines(lines(), database, lambda line: None, told.append)
        stored = database.count()
        assert told == [256, 512] and stored == 512
        report = import_lines(many(600), database, lambda line: None)
        assert report == ImportReport(600 - stored, stored, 0)
        assert list(database.records()) == imported(many(600))


def test_little_is_held_at_a_time(tmp_path: Path) -> None:
    """Whatever the length of a file, no more than one batch of it waits to be stored."""
    waiting = 0
    with open_database(tmp_path / "records.db") as database:

        def lines() -> Iterator[Record]:
            nonlocal waiting
            for trial in range(1000):
                waiting = max(waiting, trial - database.count())
                yield sample_record(trial)

        assert import_lines(lines(), database, lambda line: None).added == 1000
    assert 0 < waiting < 300


def test_from_one_database_to_another(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with open_database(tmp_path / "one.db") as one, open_database(tmp_path / "two.db") as two:
        one.append_missing(many(300))
        assert max(write_lines(one.records(), stream)) == 300
        stream.seek(0)
        import_lines(read_lines(stream), two, lambda line: None)
        assert list(two.records()) == imported(one.records())


@pytest.mark.promise(
    "several imports of one file at once",
    "every record is there once",
)
def test_processes_that_import_the_same_file_add_it_once(tmp_path: Path) -> None:
    path, database = tmp_path / "records.jsonl", tmp_path / "records.db"
    path.write_bytes(b"".join(record_line(record) for record in many(600)))
    command = ("-m", "autotune", "records", "import", str(path), "--json", "-")
    processes = [start_python(*command, "--database", str(database)) for _ in range(3)]
    ended = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], ended
    assert not list(tmp_path.glob("*corrupt*")), ended
    reports = [json.loads(output) for output, _ in ended]
    assert sum(report["added"] for report in reports) == 600
    assert all(report["added"] + report["known"] == 600 for report in reports)
    with open_database(database, read_only=True) as opened:
        stored = sorted(opened.records(), key=lambda record: record.trial)
    assert stored == imported(many(600))
