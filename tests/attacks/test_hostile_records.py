"""Records that somebody wrote to break something: a line is imported, or named and skipped."""

from __future__ import annotations

import json
import signal
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attack_cases import sampled
from command_lines import IN_PROCESS, TUNE
from tripwires import CALLABLES, trip_wires

from autotune.store.sqlite import open_database

pytestmark = pytest.mark.attack("hostile record")

LINES = (Path(__file__).parents[1] / "files_of_0_1" / "records.jsonl").read_bytes().splitlines()
RECORD: dict[str, Any] = json.loads(LINES[0])
BEFORE, AFTER = LINES[1], LINES[2]


CPU_SECONDS = 30.0
"""Processor seconds within which all commands have an end, whatever they read."""

READERS: tuple[tuple[str, ...], ...] = (
    ("best",),
    ("best", "gemm", "--shape", "m=8", "--json", "-"),
    ("records", "list"),
    ("records", "runs"),
    ("records", "failures"),
    ("train", "info"),
    ("show", "gemm", "--part", "readings", "--part", "steps", "--part", "nest"),
    ("explain", "gemm"),
    ("records", "export", "out.jsonl", "--force"),
    ("records", "check"),
)
OF_ONE: tuple[tuple[str, ...], ...] = (
    *(("show", "--part", part) for part in ("readings", "steps", "nest", "tape", "constraints")),
    ("explain",),
)
"""Commands for a record by name."""

RUN = (*TUNE, *IN_PROCESS, "--trials", "4", "--quiet")


@contextmanager
def processor_seconds(limit: float) -> Iterator[None]:
    """Fail after so many seconds of this process's own time: others may keep the machine busy."""

    def stop(number: int, frame: object) -> None:
        pytest.fail(f"no end within {limit:g} processor seconds")

    before = signal.signal(signal.SIGPROF, stop)
    # Again and again: something may catch it.
    signal.setitimer(signal.ITIMER_PROF, limit, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def unbroken(done: Any) -> Any:
    """A command that did its work, or said on one line why not; whatever it shows is harmless."""
    shown = done.stdout + done.stderr
    assert "Traceback" not in shown, shown
    assert all(it.isprintable() or it in "\n\t" for it in shown), ascii(shown)
    if done.status == 2:
        done.line()
    assert done.status in (0, 1, 2), done
    return done


def check_commands(command: Callable[..., Any], record: tuple[str, int] | None = None) -> int:
    """Run every command that reads records, and one that tunes with them; returns its status.

    Args:
        command: Runs commands in a folder with a database.
        record: Run and trial of one that is to be looked at closely.
    """
    with trip_wires(Path.cwd()), processor_seconds(CPU_SECONDS):
        for reader in READERS:
            unbroken(command(*reader))
        if record is not None and "\0" not in record[0]:
            for reader in OF_ONE:
                unbroken(command(*reader, "--record", f"{record[0]}/{record[1]}"))
    with processor_seconds(CPU_SECONDS):
        return int(unbroken(command(*RUN)).status)


def nested(depth: int) -> Any:
    """Lists within lists."""
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


JUNK: dict[str, Any] = {
    "null": None,
    "true": True,
    "minus one": -1,
    "zero": 0,
    "2^70": 1 << 70,
    "the largest integer": (1 << 63) - 1,
    "the smallest number": 5e-324,
    "the largest number": 1.7e308,
    "a word": "nope",
    "no text": "",
    "half a surrogate pair": "\ud800",
    "an escape code": "\x1b[2J\x07\u202e",
    "a NUL": "a\0b",
    "a long text": "a" * 1_000_000,
    "a callable": "tripwire:spring",
    "a path": "../../../../etc/passwd",
    "SQL": "'; DROP TABLE records; --",
    "markup": "[bold red]x[/] {0} %s",
    "a list": [],
    "an object": {},
    "deep lists": nested(150),
    "too deep lists": nested(900),
}
PER_PLACE = 2


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to every value within some JSON; of lists, to the first and last one."""
    if isinstance(data, dict):
        keys = list(data)
    elif isinstance(data, list):
        keys = sorted({0, len(data) - 1}) if data else []
    else:
        return
    for key in keys:
        yield (*path, key)
        yield from places(data[key], (*path, key))


Line = bytes | Callable[[], bytes]
"""A line, or what makes it: all of them together are large, and each process tries a few."""


def written(line: Line) -> bytes:
    return line if isinstance(line, bytes) else line()


def changed(path: tuple[Any, ...], value: Any) -> Line:
    """The line of a record with one value replaced."""
    return partial(_changed, path, value)


def _changed(path: tuple[Any, ...], value: Any) -> bytes:
    data = json.loads(json.dumps(RECORD))
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(data).encode()


def spoilt() -> dict[str, Line]:
    """A few wrong values for every place of a record, and the record without it."""
    found: dict[str, Line] = {}
    names = list(JUNK)
    for path in places(RECORD):
        name = ".".join(map(str, path))
        first = zlib.crc32(name.encode())
        for at in range(PER_PLACE):
            junk = names[(first + 7 * at) % len(names)]
            found[f"{name}: {junk}"] = changed(path, JUNK[junk])
    for key in RECORD:
        found[f"no {key}"] = json.dumps({k: v for k, v in RECORD.items() if k != key}).encode()
    return found


def with_steps(*steps: dict[str, Any]) -> Line:
    return changed(("sketch", "steps"), [*RECORD["sketch"]["steps"], *steps])


def growing(depth: int) -> Any:
    """An expression whose value doubles at every level."""
    found: Any = "C.i.0"
    for _ in range(depth):
        found = ["mul", found, found] if depth < 30 else ["mul", 2, found]
    return found


def many_params(count: int) -> bytes:
    """A sketch of so many parameters, of which nothing is required."""
    names = [f"p{number}" for number in range(count)]
    data = json.loads(LINES[0])
    data["sketch"]["params"] += [["ordinal", name, [1, 2, 3, 4]] for name in names]
    data["config"].update(dict.fromkeys(names, 1))
    return json.dumps(data).encode()


def shape(size: int) -> Line:
    """A record of a product of square matrices, whose configuration is that of smaller ones."""
    text = json.dumps(RECORD["workload"]).replace("32,", f"{size},").replace("32]", f"{size}]")
    return changed(("workload",), json.loads(text))


TENSORIZE = {"step": "tensorize", "stage": "C", "loop": "i.2"}
AIMED: dict[str, Line] = {
    **{f"backend {name}": changed(("key", "backend"), name) for name in CALLABLES},
    **{f"intrinsic {name}": with_steps({**TENSORIZE, "intrinsic": name}) for name in CALLABLES},
    **{f"step {name}": with_steps({"step": name, "stage": "C"}) for name in CALLABLES},
    **{
        f"element type {name}": changed(("workload", "parameters", "dtype"), name)
        for name in CALLABLES[:2]
    },
    **{f"space {name}": changed(("space",), name) for name in CALLABLES[:2]},
    "a latency of 1e-300 s": changed(("outcome", "latency"), 1e-300),
    "samples of 1e-300 s": changed(("outcome", "samples"), [1e-300]),
    "a drift of 1e300": changed(("outcome", "drift"), 1e300),
    "a million samples": changed(("outcome", "samples"), [1e-6] * 1_000_000),
    "NaN": LINES[0].replace(b'"trial":3', b'"trial":NaN'),
    "an infinity": LINES[0].replace(b'"drift":4.772', b'"drift":Infinity,"x":4.772'),
    "1e999": LINES[0].replace(b'"drift":4.772', b'"drift":1e999,"x":4.772'),
    "a key twice": LINES[0].replace(b'"trial":3', b'"trial":3,"trial":"x"'),
    "a byte order mark": b"\xef\xbb\xbf" + LINES[0],
    "no UTF-8": LINES[0].replace(b"gemm", b"\xff\xfe"),
    "a NUL byte": LINES[0].replace(b"gemm", b"ge\0m"),
    "UTF-16": LINES[0].decode().encode("utf-16"),
    "a carriage return": LINES[0] + b"\r",
    "two records on a line": LINES[0] + LINES[3],
    "half a record": LINES[0][:2000],
    "lists without end": b"[" * 100_000,
    "objects without end": b'{"a":' * 100_000,
    "a number of a million digits": b'{"schema":' + b"9" * 1_000_000 + b"}",
    "a gzip": b"\x1f\x8b\x08\x00" + bytes(100),
    "a line of 70 MB": lambda: b" " * (70 << 20) + b"x",
    "a database": b"SQLite format 3\0" + bytes(4000),
    "the line before again": BEFORE,
    "another record of that name": BEFORE.replace(b'"created":', b'"created":1'),
    "a later schema": changed(("schema",), 3),
    "4096 steps": changed(("sketch", "steps"), [RECORD["sketch"]["steps"][-1]] * 4096),
    "160,000 steps": changed(("sketch", "steps"), [RECORD["sketch"]["steps"][-1]] * 160_000),
    "an order of loops that do not exist": changed(("sketch", "steps", 5, "loops", 0), "C.nope.0"),
    "100,000 constraints": changed(
        ("sketch", "constraints"), [RECORD["sketch"]["constraints"][-1]] * 100_000
    ),
    "4096 constraints": changed(
        ("sketch", "constraints"), [RECORD["sketch"]["constraints"][-1]] * 4096
    ),
    "100,000 stages": changed(("workload", "stages"), RECORD["workload"]["stages"] * 100_000),
    "a product of 100,000 factors": changed(
        ("sketch", "constraints", 3, "expression"), ["mul", *["C.i.0"] * 100_000]
    ),
    "a product of 1000 factors": changed(
        ("sketch", "constraints", 3, "expression"), ["mul", *["C.i.0"] * 1000]
    ),
    "a product of parameters that do not exist": changed(
        ("sketch", "constraints", 0, "factors"), ["C.i.0", "nope"]
    ),
    "a product of an unknown total": changed(("sketch", "constraints", 0, "total"), "nope"),
    "a total that is a sum": changed(
        ("sketch", "constraints", 0, "total"), ["add", "C.i.0", "C.i.1"]
    ),
    "half a value": changed(("config", "C.i.1"), 8.5),
    "a text for a value": changed(("config", "C.i.1"), "8"),
    "60 more parameters": many_params(60),
    "2000 more parameters": many_params(2000),
    "an index of 2^120": changed(("workload", "stages", 0, "body", 1, 2, 0), ["add", "i", 2**120]),
    "an index of 2^62": changed(("workload", "stages", 0, "body", 1, 2, 0), ["mul", "i", 2**62]),
    "a division by zero": changed(
        ("workload", "stages", 0, "body", 1, 2, 0), ["floordiv", "i", 0]
    ),
    "a limit of 2^150": changed(("sketch", "constraints", 3, "expression"), growing(150)),
    "a power tower": changed(("sketch", "constraints", 3, "expression"), growing(16)),
    "a division by a parameter of zero": changed(
        ("sketch", "constraints", 3, "expression"), ["floordiv", 8, ["sub", "C.i.0", "C.i.0"]]
    ),
    "2^40 rows": shape(1 << 40),
    "2^62 rows": shape(1 << 62),
    "no rows": shape(0),
    "a stage that reads itself": changed(
        ("workload", "stages", 0, "body"), ["add", ["load", "C", ["i", "j"]], 1]
    ),
    "500 stages": changed(("workload", "stages"), RECORD["workload"]["stages"] * 500),
    "a million values of a parameter": changed(
        ("sketch", "params", 0), ["ordinal", "C.i.extent", list(range(1, 1_000_001))]
    ),
    "a program of 10 MB": changed(("program",), "module {" * 1_250_000),
    "a program that nests": changed(("program",), "(" * 100_000),
    "a target of 2^40 cores": changed(("target", "cores"), 1 << 40),
    "caches of no bytes": changed(("target", "caches", 0, "size_bytes"), 0),
    "a bandwidth of zero": changed(("target", "memory_bandwidth"), 0.0),
    "2^40 threads": changed(("key", "threads"), 1 << 40),
}
"""Lines that were thought out."""

CASES = {**AIMED, **spoilt()}


@pytest.mark.parametrize(
    "line",
    sampled(CASES, now=12, slow=48, always=["an order of loops that do not exist"], least=200),
)
@pytest.mark.promise(
    "a line of a file of records that is wrong, or means harm",
    "nothing in it is executed; it is imported, or named by its number and skipped",
)
def test_a_hostile_line(
    line: Line, command: Callable[..., Any], verdict: Callable[[str], None]
) -> None:
    Path("in.jsonl").write_bytes(BEFORE + b"\n" + written(line) + b"\n" + AFTER + b"\n")
    with trip_wires(Path.cwd()), processor_seconds(CPU_SECONDS):
        done = unbroken(command("records", "import", "in.jsonl"))
    assert done.status in (0, 1), done
    with open_database("autotune.db", read_only=True) as database:
        stored = [(record.run_id, record.trial) for record in database.records()]
    good = [(it["run_id"], it["trial"]) for it in map(json.loads, (BEFORE, AFTER))]
    assert [name for name in stored if name in good] == good
    others = [name for name in stored if name not in good]
    if done.status:
        assert "line 2" in done.stderr and not others
    assert check_commands(command, *others) == 0
    assert command("records", "check").status == 0
    verdict("refused" if done.status else "read")


@pytest.mark.long
def test_an_export_is_what_was_imported(
    command: Callable[..., Any], verdict: Callable[[str], None]
) -> None:
    """Every line that is taken at once, in one database."""
    lines = map(written, CASES.values())
    content = b"\n".join(line for line in lines if len(line) < 1 << 20)
    Path("in.jsonl").write_bytes(content)
    with trip_wires(Path.cwd()), processor_seconds(4 * CPU_SECONDS):
        unbroken(command("records", "import", "in.jsonl"))
        unbroken(command("records", "export", "out.jsonl"))
        unbroken(command("records", "import", "out.jsonl", "--database", "again.db"))
        assert command("records", "export", "again.jsonl", "--database", "again.db").status == 0
    assert Path("again.jsonl").read_bytes() == Path("out.jsonl").read_bytes()
    verdict("read")
