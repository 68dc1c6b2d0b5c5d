"""Files of records with anything wrong in them, for both importers, and what reads the records.

The native module evaluates what a record describes: with the sanitizers, an access out of bounds
or an undefined operation ends the process. With ``AUTOTUNE_FUZZ_SECONDS`` each test goes on for so
long, with other examples all the time.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzzing import CASES
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from autotune.errors import AutotuneError
from autotune.models import ModelContext
from autotune.models.explanation import explain
from autotune.models.features.nest import pooled_features
from autotune.plugins.parts import create_part
from autotune.sketches import CandidateBatch
from autotune.store.jsonl import BadLine, import_lines, read_lines, record_line
from autotune.store.records import Record
from autotune.store.sqlite import open_database
from autotune.store.sqlite.schema import COLUMNS, row_checksum
from autotune.targets import Target

FILES = Path(__file__).parents[1] / "files_of_0_1"
LINES = (FILES / "records.jsonl").read_bytes().splitlines()
GOOD = LINES[1].replace(b'"run_id":"', b'"run_id":"good')
DATABASE = (FILES / "records.db").read_bytes()
SECONDS = float(os.environ.get("AUTOTUNE_FUZZ_SECONDS", "0"))

NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**15, 2**31, 2**62, 2**63 - 1, 2**63]),
    st.floats(allow_nan=False, allow_infinity=False),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8))
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Every container within some JSON with each of its keys."""
    keys = list(data) if isinstance(data, dict) else range(len(data))
    for key in keys:
        yield data, key
        if isinstance(data[key], (dict, list)):
            yield from places(data[key])


def mutate(data: st.DataObject, value: Any) -> None:
    """Change one thing within some JSON."""
    container, key = data.draw(st.sampled_from(list(places(value))))
    how = data.draw(st.sampled_from(("junk", "graft", "delete", "again", "number")))
    if how == "delete":
        del container[key]
    elif how == "again" and isinstance(container, list):
        container.insert(key, container[key])
    elif how == "graft":
        other = json.loads(data.draw(st.sampled_from(LINES)))
        part, name = data.draw(st.sampled_from(list(places(other))))
        container[key] = part[name]
    elif how == "number":
        container[key] = data.draw(NUMBERS)
    else:
        container[key] = data.draw(JUNK)


def tried(body: Callable[[st.DataObject], None], examples: int) -> None:
    """Try examples once, or for as long as was asked."""
    begin, number = time.monotonic(), 0
    while number == 0 or time.monotonic() - begin < SECONDS:
        attempt = given(st.data())(body)
        attempt = settings(max_examples=examples, database=None)(attempt)
        seed(number)(attempt)()
        number += 1


def use(record: Record) -> None:
    """Evaluate what a record describes, as commands do; it may be refused."""
    batch = CandidateBatch.of([record.candidate])
    with contextlib.suppress(AutotuneError):
        target = Target.from_json(record.target)
        with contextlib.suppress(AutotuneError):
            pooled_features(batch, target)
        context = ModelContext(target=target, threads=record.key.threads)
        for kind, name in (("pruning_model", "psa"), ("cost_model", "analytic")):
            with contextlib.suppress(AutotuneError):
                model = create_part(kind, name, context)
                if kind == "pruning_model":
                    model.score(batch)
                else:
                    explain(model, record.candidate)


@pytest.mark.promise(
    "a file of records that a program has garbled",
    "the process survives; each line is a record that can be used and written again, or refused",
)
def test_lines_of_records() -> None:
    def body(data: st.DataObject) -> None:
        value = json.loads(data.draw(st.sampled_from(LINES)))
        for _ in range(data.draw(st.integers(1, 4))):
            mutate(data, value)
        line = json.dumps(value).encode()
        if data.draw(st.integers(0, 9)) == 0:
            at = data.draw(st.integers(0, len(line)))
            line = line[:at] + data.draw(st.binary(max_size=8)) + line[at + 4 :]
        found = list(read_lines(io.BytesIO(line.replace(b"\n", b"") + b"\n" + GOOD)))
        assert isinstance(found[-1], Record)
        for record in found[:-1]:
            if isinstance(record, BadLine):
                continue
            assert list(read_lines(io.BytesIO(record_line(record)))) == [record]
            use(record)
        with open_database(":memory:") as database:
            import_lines(found, database, lambda bad: None)
            stored = [record_line(record) for record in database.records()]
        assert GOOD + b"\n" in stored
        assert set(stored) <= {record_line(it) for it in found if isinstance(it, Record)}

    tried(body, CASES // 10)


def spoil(data: st.DataObject, connection: sqlite3.Connection) -> None:
    """Change a value of a row, whose checksum then holds again."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    table = data.draw(st.sampled_from(sorted(tables.intersection(COLUMNS))))
    rows = connection.execute(f"SELECT {', '.join(COLUMNS[table])} FROM {table}").fetchall()
    if not rows:
        return
    row = list(data.draw(st.sampled_from(rows)))
    at = data.draw(st.integers(0, len(row) - 1))
    old = row[at]
    if isinstance(old, str) and old[:1] in "[{" and data.draw(st.booleans()):
        value = json.loads(old)
        if value:
            mutate(data, value)
        row[at] = json.dumps(value)
    else:
        scalars = st.one_of(SCALARS, st.binary(max_size=8)).filter(_fits)
        row[at] = data.draw(scalars)
    names = ", ".join(f"{name} = ?" for name in COLUMNS[table])
    checksum = row_checksum(table, *row)
    with contextlib.suppress(sqlite3.Error, UnicodeEncodeError):
        connection.execute(
            f"UPDATE OR REPLACE {table} SET {names}, checksum = ? WHERE id = ?",
            (*row, checksum, rows[0][0] if at == 0 else row[0]),
        )


def _fits(value: object) -> bool:
    return not isinstance(value, int) or -(2**63) <= value < 2**63


@pytest.mark.promise(
    "a database that a program has garbled, with checksums that hold",
    "the process survives; each row is a record that can be used, or refused",
)
def test_databases(tmp_path: Path) -> None:
    path = tmp_path / "records.db"

    def body(data: st.DataObject) -> None:
        for item in tmp_path.iterdir():
            item.unlink()
        path.write_bytes(DATABASE)
        if data.draw(st.integers(0, 3)):
            with contextlib.closing(sqlite3.connect(path)) as connection:
                for _ in range(data.draw(st.integers(1, 3))):
                    spoil(data, connection)
                connection.commit()
        else:
            content = bytearray(DATABASE)
            for _ in range(data.draw(st.integers(1, 8))):
                at = data.draw(st.integers(0, len(content) - 1))
                content[at] = data.draw(st.integers(0, 255))
            path.write_bytes(content[: data.draw(st.integers(1, 4)) * len(content) // 4])
        for read_only in (True, False):
            with (
                contextlib.suppress(AutotuneError),
                open_database(path, read_only=read_only, warn=lambda said: None) as database,
            ):
                for run in database.runs():
                    assert isinstance(run.run_id, str)
                for record in database.records():
                    record_line(record)
                    if not read_only:
                        use(record)

    tried(body, CASES // 50)
