from __future__ import annotations

from pathlib import Path

import pytest
from small_disk import run_on_small_disk

from autotune.errors import DatabaseError
from autotune.store.sqlite import SQLiteDatabase, open_database
from autotune.testing.sample_records import sample_record, sample_run

# Appends until the disk is full, makes room, and goes on: with the connection that met the full
# disk, and with a new one.
SCRIPT = """
import os
from pathlib import Path
from autotune.store.sqlite import open_database
from autotune.errors import DatabaseError
from autotune.testing.sample_records import sample_record, sample_run
path = Path(os.environ["TMPDIR"]) / "records.db"
ballast = path.with_name("ballast")
ballast.write_bytes(bytes(1280 << 10))
reported = []
with open_database(path) as database:
    database.start_run(sample_run())
    try:
        for trial in range(100_000):
            database.append_record(sample_record(trial))
            reported.append(trial)
    except DatabaseError as error:
        print(error)
    found = [record.trial for record in database.records()]
    assert found == reported, (len(found), len(reported))
    try:
        database.update_run("run-1", checkpoint={"state": ["x" * 1000] * 1000})
    except DatabaseError as error:
        print(error)
    assert database.run("run-1").checkpoint is None
    ballast.unlink()
    database.append_record(sample_record(len(reported)))
    database.update_run("run-1", status="finished")
with open_database(path) as database:
    assert database.count() == len(reported) + 1
    database.append_record(sample_record(len(reported) + 1))
names = sorted(item.name for item in path.parent.iterdir())
assert names == ["records.db"], names
# A new file on a disk without any room.
try:
    with path.with_name("ballast").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
except OSError:
    pass
try:
    open_database(path.with_name("other.db"))
except DatabaseError as error:
    print(error)
path.with_name("other.db").unlink(missing_ok=True)
# A damaged file on such a disk: there is no room for what can be read of it.
with path.open("r+b") as file:
    file.write(bytes(4096))
damaged = path.read_bytes()
try:
    open_database(path)
except DatabaseError as error:
    print(error)
assert path.read_bytes() == damaged
names = sorted(item.name for item in path.parent.iterdir())
assert names == ["ballast", "records.db"], names
path.with_name("ballast").unlink()
with open_database(path, warn=print) as database:
    assert database.count() == len(reported) + 2
print("done")
"""


def test_on_a_file_system_without_room(tmp_path: Path) -> None:
    *messages, last = run_on_small_disk(SCRIPT, tmp_path, "size=2m").splitlines()
    assert last == "done"
    assert len(messages) == 5
    for number in (0, 1, 3):
        assert "the disk is full; make room" in messages[number]
    assert "full" in messages[2]
    assert "no record is missed" in messages[4]


def test_a_database_that_may_not_grow(tmp_path: Path) -> None:
    with open_database(tmp_path / "records.db") as database:
        assert isinstance(database, SQLiteDatabase)
        database.start_run(sample_run())
        database._connection.execute("PRAGMA max_page_count = 40")
        reported = 0
        with pytest.raises(DatabaseError, match="the disk is full; make room"):
            for trial in range(1000):
                database.append_record(sample_record(trial))
                reported += 1
        assert [record.trial for record in database.records()] == list(range(reported))
        database._connection.execute("PRAGMA max_page_count = 4000")
        database.append_record(sample_record(reported))
        assert database.count() == reported + 1
