"""Commands that meet a damaged database."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from autotune.store.sqlite import open_database
from autotune.store.sqlite.rows import replace, select


def damage(cli: Any) -> bytes:
    path = cli.folder / "autotune.db"
    data = bytes(4096) + path.read_bytes()[4096:]
    path.write_bytes(data)
    return bytes(data)


def test_a_run_goes_on_with_what_was_recovered(tuned_cli: Any) -> None:
    data = damage(tuned_cli)
    refused = tuned_cli("best")
    assert refused.status == 2
    assert refused.stderr.count("\n") == 1
    assert "the next command that writes to it moves it aside" in refused.stderr
    assert tuned_cli.files() == {"autotune.db", "out.json"}
    done = tuned_cli.tune("--trials", "30", "--json", "out.json")
    assert done.status == 0, done.stderr
    assert done.stderr.count("was damaged: 20 records, 1 runs and 1 baselines") == 1
    report = json.loads((tuned_cli.folder / "out.json").read_text())
    assert report["trials"] == 30
    (aside,) = (name for name in tuned_cli.files() if ".corrupt-" in name)
    assert aside in done.stderr
    assert (tuned_cli.folder / aside).read_bytes() == data
    assert tuned_cli("best").status == 0
    again = tuned_cli.tune("--trials", "30")
    assert again.status == 0 and "damaged" not in again.stderr


@pytest.mark.slow
def test_who_asks_for_quiet_is_told_too(tuned_cli: Any) -> None:
    damage(tuned_cli)
    done = tuned_cli.tune("--trials", "30", "--progress", "quiet")
    assert done.status == 0, done.stderr
    assert done.stderr.count("\n") == 1
    assert "warning: database" in done.stderr
    assert "was damaged: 20 records, 1 runs and 1 baselines" in done.stderr


@pytest.mark.parametrize("command", ["best", "show"])
def test_a_file_that_is_nothing_at_all(cli: Any, command: str) -> None:
    (cli.folder / "autotune.db").write_bytes(b"notes\n" * 5000)
    for arguments in ((command,), ("tune", "gemm", "--shape", "m=8,n=8,k=8")):
        done = cli(*arguments)
        assert done.status == 2
        assert "another kind" in done.stderr
    assert cli.files() == {"autotune.db"}


HOSTILE = (
    "CREATE TRIGGER evil AFTER INSERT ON records BEGIN DELETE FROM runs; END",
    "ALTER TABLE records RENAME TO hidden; CREATE VIEW records AS "
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n",
)


@pytest.mark.parametrize("statements", HOSTILE)
def test_a_file_that_somebody_else_has_prepared(tuned_cli: Any, statements: str) -> None:
    path = tuned_cli.folder / "autotune.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(statements)
    before = path.read_bytes()
    for arguments in (
        ["best"],
        ["show", "gemm"],
        ["explain", "gemm", "--shape", "m=64,n=64,k=64"],
        ["records", "list"],
        ["records", "runs"],
        ["records", "failures"],
        ["records", "check"],
        ["records", "export", "-"],
    ):
        refused = tuned_cli(*arguments)
        assert refused.status == 2, arguments
        assert refused.stderr.count("\n") == 1
        assert "its schema is not one of this program" in refused.stderr
    assert path.read_bytes() == before


def test_a_damaged_log_is_one_line_beside_the_answer(tuned_cli: Any) -> None:
    path = tuned_cli.folder / "autotune.db"
    copy = tuned_cli.folder / "copy.db"
    with open_database(path) as database:
        database.append_record(evolve(next(database.records()), run_id="more"))
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    log = Path(f"{copy}-wal")
    log.write_bytes(log.read_bytes()[:-1])
    best = tuned_cli("best", "--database", str(copy))
    assert best.status == 0
    assert best.stderr.count("\n") == 1 and "warning: database" in best.stderr
    assert "frames of its log cannot be read" in best.stderr
    checked = tuned_cli("records", "check", "--database", str(copy))
    assert checked.status == 1
    assert "frames of its log cannot be read" in checked.stderr


def test_a_row_that_is_no_record_is_one_line_beside_the_answer(tuned_cli: Any) -> None:
    path = tuned_cli.folder / "autotune.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (row, *_) = select(connection, "records", "status = 'ok' ORDER BY latency")
        replace(connection, "records", row, {"trial": -1})
    best = tuned_cli("best")
    assert best.status == 0
    assert best.stderr.count("\n") == 1
    assert f"row {row['id']} of records: " in best.stderr
    assert tuned_cli("records", "check").status == 1
