"""``autotune records``."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from file_parts import Exporting

from autotune.ir.workloads import gemm
from autotune.store.jsonl import record_line
from autotune.store.records import Outcome, Record
from autotune.store.sqlite import open_database
from autotune.testing.sample_records import KEY, sample_record

SMALL = gemm(m=4, n=4, k=4)
RECORDS = (
    sample_record(0, 3e-3),
    sample_record(1, 1e-3),
    sample_record(2, status="crash"),
    sample_record(0, 2e-3, workload=SMALL, run_id="run-2"),
    sample_record(1, 1e-4, workload=SMALL, run_id="run-2", key=evolve(KEY, protocol="cold-1")),
)


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database with a few records, where the commands look for it."""
    with open_database(tmp_path / "autotune.db") as opened:
        opened.append_missing(RECORDS)


def lines(path: Path) -> list[Record]:
    return [Record.from_json(json.loads(line)) for line in path.read_text().splitlines()]


def test_check_reads_every_checksum(cli: Any) -> None:
    done = cli("records", "check")
    assert (done.status, done.stdout) == (
        0,
        "autotune.db is sound: 5 records, 0 baselines, 0 runs\n",
    )
    with closing(sqlite3.connect("autotune.db")) as connection:
        connection.execute("UPDATE records SET latency = 2 * latency WHERE id = 4")
        connection.commit()
    content = Path("autotune.db").read_bytes()
    done = cli("records", "check", "--json", "-")
    assert done.status == 1 and "row 4 of records is not what was written" in done.stderr
    assert json.loads(done.stdout)["sound"] is False
    assert Path("autotune.db").read_bytes() == content
    assert cli("records", "check", "--database", "none.db").status == 2


def test_export_writes_everything(cli: Any) -> None:
    done = cli("records", "export", "out.jsonl", "--json", "-")
    assert done.status == 0 and "5 records written to out.jsonl" in done.stderr
    assert json.loads(done.stdout) == {"format": "jsonl", "file": "out.jsonl", "records": 5}
    assert lines(cli.folder / "out.jsonl") == list(RECORDS)
    assert cli.files() == {"autotune.db", "out.jsonl"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("gemm",), [0, 1, 2, 3, 4]),
        (("gemm", "--shape", "m=4"), [3, 4]),
        (("--status", "ok"), [0, 1, 3, 4]),
        (("--status", "crash"), [2]),
        (("--best-only",), [1, 3, 4]),
        (("--best-only", "--protocol", "warm-1"), [1, 3]),
        (("--protocol", "cold-1"), [4]),
        (("--run", "run-2"), [3, 4]),
        (("--threads", "2", "--backend", "reference"), [0, 1, 2, 3, 4]),
    ],
)
def test_filters(arguments: tuple[str, ...], expected: list[int], cli: Any) -> None:
    assert cli("records", "export", "out", *arguments).status == 0
    assert lines(cli.folder / "out") == [RECORDS[index] for index in expected]


def test_standard_output_has_records_only(cli: Any) -> None:
    done = cli("records", "export", "-")
    assert done.status == 0
    found = [Record.from_json(json.loads(line)) for line in done.stdout.splitlines()]
    assert found == list(RECORDS)
    assert "5 records written to standard output" in done.stderr


def test_nothing_to_export_is_status_1(cli: Any) -> None:
    done = cli("records", "export", "out", "conv2d")
    assert done.status == 1 and "no record in autotune.db matches" in done.stderr
    assert (cli.folder / "out").read_bytes() == b""
    assert cli("records", "list", "softmax", "--json", "-").status == 1


def test_import_adds_what_is_missing(cli: Any) -> None:
    cli("records", "export", "out", "--status", "ok")
    done = cli("records", "import", "out", "--database", "other.db", "--json", "-")
    assert done.status == 0
    report = json.loads(done.stdout)
    assert {name: report[name] for name in ("added", "known", "bad", "bad_lines")} == {
        "added": 4,
        "known": 0,
        "bad": 0,
        "bad_lines": [],
    }
    done = cli("records", "import", "out", "--database", "other.db")
    assert "0 records added to other.db, 4 were there already, 0 lines skipped" in done.stdout
    cli("records", "export", "again", "--database", "other.db")
    assert (cli.folder / "again").read_bytes() == (cli.folder / "out").read_bytes()


def test_records_of_others_are_shown_as_claims_where_there_is_nothing_else(cli: Any) -> None:
    cli("records", "export", "out", "--status", "ok")
    cli("records", "import", "out", "--database", "other.db")
    for command in (("best",), ("show", "--part", "steps"), ("records", "list")):
        shown = cli(*command, "--database", "other.db").stdout
        assert "imported, not measured here" in shown
        assert "imported" not in cli(*command).stdout
    found = json.loads(cli("best", "--database", "other.db", "--json", "-").stdout)
    assert found and all(record["imported"] for record in found)
    # What was measured here is preferred, however fast others claim to be.
    cli("records", "import", "out")
    assert "imported" not in cli("best").stdout


def test_bad_lines_are_named_and_skipped(cli: Any) -> None:
    good = [record_line(record) for record in RECORDS]
    content = good[0] + b"garbage\n" + good[1] + good[2][:100]
    (cli.folder / "torn").write_bytes(content)
    done = cli("records", "import", "torn", "--database", "other.db", "--json", "-")
    assert done.status == 1
    assert "line 2 is skipped" in done.stderr and "line 4 is skipped" in done.stderr
    report = json.loads(done.stdout)
    assert (report["added"], report["bad"]) == (2, 2)
    assert [line["line"] for line in report["bad_lines"]] == [2, 4]
    done = cli("records", "import", "torn", "--database", "other.db", "--skip-bad")
    assert done.status == 0 and "2 lines skipped" in done.stdout


def test_text_that_no_database_holds_costs_its_own_line(cli: Any) -> None:
    good = [record_line(record) for record in RECORDS]
    bad = [good[0].replace(b'"run-1"', b'"\\ud800"'), good[0].replace(b'"gemm"', b'"\\udcff"')]
    (cli.folder / "mixed").write_bytes(b"".join([good[0], bad[0], good[1], bad[1], *good[2:]]))
    done = cli("records", "import", "mixed", "--database", "other.db", "--json", "-")
    report = json.loads(done.stdout)
    assert (done.status, report["added"]) == (1, len(good))
    assert [line["line"] for line in report["bad_lines"]] == [2, 4]
    assert done.stderr.count("half of a surrogate pair") == 2


def test_control_characters_of_records_are_written_out(cli: Any) -> None:
    foreign = evolve(RECORDS[0], run_id="\x1b[2Jrun\x9b\u202e")
    (cli.folder / "foreign").write_bytes(record_line(foreign).replace(b'"gemm"', b'"\\u001b[31m"'))
    assert cli("records", "import", "foreign", "--database", "other.db").status == 0
    for command in (("best",), ("records", "list"), ("show", "--part", "steps", "--part", "nest")):
        done = cli(*command, "--database", "other.db")
        assert done.status == 0
        assert not {"\x1b", "\x9b", "\u202e"} & {*done.stdout, *done.stderr}
        assert "\\x1b[31m" in done.stdout
    done = cli("show", "--database", "other.db", "--record", "\x1b")
    assert done.status == 2 and "\x1b" not in done.stderr


def test_many_bad_lines_are_counted(cli: Any) -> None:
    (cli.folder / "bad").write_bytes(b"x\n" * 100)
    done = cli("records", "import", "bad", "--database", "other.db")
    assert done.status == 1
    assert len(done.stderr.splitlines()) == 21 and "and 80 more lines" in done.stderr
    assert "100 lines skipped" in done.stdout


def test_import_from_standard_input(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(record_line(RECORDS[0])))
    monkeypatch.setattr("sys.stdin", stream)
    assert cli("records", "import", "-", "--database", "other.db").status == 0
    with open_database(cli.folder / "other.db", read_only=True) as opened:
        (found,) = opened.records()
        assert found.outcome.imported and found.to_json() == RECORDS[0].to_json()


def test_list(cli: Any) -> None:
    holdings = json.loads(cli("records", "list", "--json", "-").stdout)
    assert [(item["workload"]["name"], item["records"]) for item in holdings] == [
        ("gemm", 3),
        ("gemm", 1),
        ("gemm", 1),
    ]
    first = holdings[0]
    assert first["best"] == {"record": "run-1/1", "latency": 1e-3}
    assert first["outcomes"]["ok"] == 2 and first["outcomes"]["crash"] == 1
    assert first["workload"]["parameters"]["m"] == 8 and first["key"] == KEY.to_json()
    table = cli("records", "list", "gemm", "--shape", "m=8").stdout
    assert "gemm m=8 n=8 k=8 float32" in table and "1.00 ms" in table
    only_failed = cli("records", "list", "--run", "run-1").stderr
    assert "No such option" in only_failed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("export", "-", "--json", "-"), "FILE and --json both name '-'"),
        (("export", "a/b"), "'a/b' cannot be written"),
        (("export", "."), "FILE '.' cannot be written: Is a directory"),
        (("export", "autotune.db"), "FILE 'autotune.db' is the file that --database names"),
        (("export", "out", "--best-only", "--status", "crash"), "--best-only is for valid"),
        (("export", "out", "--status", "fine"), "'fine' is not one of"),
        (("export", "out", "--database", "none.db"), "none.db"),
        (("export", "out", "--format", "names"), "unknown backend 'reference'"),
        (("export", "-", "--format", "metaschedule"), "cannot be written to standard output"),
        (("import", "none"), "'none' cannot be read"),
        (("import", "autotune.db", "--database", "no/other.db"), "there is no folder"),
        (("expotr",), "available: list, runs, export, import, convert, check, failures. Did"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], message: str, cli: Any) -> None:
    done = cli("records", *arguments)
    assert done.status == 2 and message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert cli.files() == {"autotune.db"}


def test_a_backend_may_offer_a_format(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "file_parts:Exporting"
    monkeypatch.setattr(
        "autotune.plugins.parts.recorded_part", lambda kind, name, given: Exporting()
    )
    (cli.folder / "autotune.db").unlink()
    with open_database(cli.folder / "autotune.db") as opened:
        for record in RECORDS:
            opened.append_record(evolve(record, key=evolve(record.key, backend=name)))
    done = cli("records", "export", "out", "--format", "names", "--json", "-")
    assert done.status == 1
    assert "record run-1/0 is left out: just so" in done.stderr
    assert "3 records written to out; 1 left out\nread out" in done.stderr
    assert json.loads(done.stdout) == {
        "format": "names",
        "file": "out",
        "records": 3,
        "files": ["out"],
        "usage": "read out",
        "refused": [{"record": "run-1/0", "reason": "just so"}],
    }
    assert (cli.folder / "out").read_text() == "run-1/0\nrun-1/1\nrun-2/0\nrun-2/1"
    assert cli("records", "export", "out", "--format", "names").status == 2
    with open_database(cli.folder / "autotune.db") as opened:
        other = evolve(RECORDS[0], key=evolve(KEY, backend="other"), outcome=Outcome("ok", 1.0))
        opened.append_record(other)
    unknown = cli("records", "export", "new", "--format", "nams")
    assert unknown.status == 2
    # Every installed backend that prints sketches adds its own to these.
    assert "unknown export format 'nams'; available: jsonl, " in unknown.stderr
    assert "Did you mean 'names'?" in unknown.stderr
    mixed = cli("records", "export", "new", "--format", "names")
    assert mixed.status == 2 and f"several backends ({name}, other)" in mixed.stderr
    assert cli.files() == {"autotune.db", "out"}


def test_an_interrupted_export_leaves_nothing(spawn: Any, tmp_path: Path) -> None:
    """While it waits for a reader of its output, halfway through."""
    with open_database(tmp_path / "autotune.db") as opened:
        opened.append_missing([sample_record(trial, program="x" * 4096) for trial in range(5, 40)])
    process = spawn("records", "export", "-")
    assert process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 130
    with open_database(tmp_path / "autotune.db", read_only=True) as opened:
        assert opened.count() == len(RECORDS) + 35
