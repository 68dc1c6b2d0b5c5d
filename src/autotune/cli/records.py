"""``autotune records``: the contents of a database, and records to and from files."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from attrs import frozen

from autotune.cli.app import NOTHING_FOUND, OK, CommandGroup
from autotune.cli.arguments import argument, command_of, nested, option
from autotune.cli.destinations import InputFile, OutputFile
from autotune.cli.options import database_option, read_database
from autotune.cli.output import Output, notify, warn
from autotune.cli.query import Query, Selected, open_for_reading
from autotune.errors import DatabaseDamaged, InvalidValueError, PluginError, UnknownNameError
from autotune.store.statuses import OUTCOME_STATUSES

if TYPE_CHECKING:
    from autotune.backends import Backend, ExportReport
    from autotune.report import Table
    from autotune.store.failures import FailureGroup
    from autotune.store.jsonl import BadLine, ImportReport
    from autotune.store.records import Record, Run

__all__ = ["command"]

JSON_LINES = "jsonl"
# So many bad lines, or records that cannot be exported, are named; all are counted.
NAMED = 20
PROGRESS_SECONDS = 2.0
EXPORT_EPILOG = """\b
Examples:
  autotune records export records.jsonl
  autotune records export - gemm --shape m=512 --best-only | gzip > gemm.gz
  autotune records export tuned --format metaschedule --best-only --backend tvm
  autotune records export tuned.mlir --format transform-library --best-only --backend mlir
"""
IMPORT_EPILOG = """\b
Examples:
  autotune records import records.jsonl
  zcat gemm.gz | autotune records import - --database other.db
  autotune records import tuned --format metaschedule
"""
LIST_EPILOG = """\b
Examples:
  autotune records list
  autotune records list gemm --database records.db --json -
"""


@frozen
class _Export:
    path: str = argument("FILE|-", OutputFile("records"))
    selected: Selected = nested(Selected)
    status: str | None = option(
        "--status",
        "Only records of this outcome.  [default: any; ok in a backend's format]",
        click.Choice(("any", *OUTCOME_STATUSES)),
    )
    protocol: str | None = option("--protocol NAME", "Measuring protocol, such as warm-3.")
    run_id: str | None = option("--run RUN", "Only records of this run.")
    best_only: bool = option("--best-only", "The fastest of each workload only.")
    format_name: str = option(
        "--format NAME",
        "jsonl, or a format that the backend of the records offers.",
        shown=JSON_LINES,
    )


@command_of("export", _Export, EXPORT_EPILOG)
def export(asked: _Export, output: Output) -> int:
    """Write records to FILE, one JSON object per line; - for standard output.

    The file appears when complete. With --format, the output is for other tools: a
    folder for TVM's MetaSchedule, schedules for mlir-opt. See `autotune export` for code.
    """
    to_backend = asked.format_name != JSON_LINES
    wanted = asked.status or ("ok" if to_backend or asked.best_only else "any")
    if asked.best_only and wanted != "ok":
        raise InvalidValueError(f"--best-only is for valid records, not for --status {wanted}")
    status = None if wanted == "any" else wanted
    query = Query.read(asked.selected, status, asked.protocol, asked.run_id)
    with open_for_reading(asked.selected.database) as opened:
        records: Iterable[Record] = (
            query.best(opened) if asked.best_only else query.everything(opened)
        )
        if to_backend:
            return _export_by_backend(output, records, asked)
        return _export_lines(output, records, asked.path, asked.selected.database)


def _export_lines(output: Output, records: Iterable[Record], path: str, database: str) -> int:
    from autotune.store.jsonl import write_lines

    count = 0
    with _target(path) as stream, _progress("records written") as report:
        for count in write_lines(records, stream):
            report(count)
        stream.flush()
    output.json({"format": JSON_LINES, "file": path, "records": count})
    if not count:
        notify(f"autotune: no record in {database} matches; the file is empty")
        return NOTHING_FOUND
    output.say(f"{_records(count)} written to {'standard output' if path == '-' else path}")
    return OK


def _export_by_backend(output: Output, records: Iterable[Record], asked: _Export) -> int:
    from autotune.backends import ExportReport
    from autotune.plugins.guarded_parts import hold
    from autotune.plugins.parts import recorded_part
    from autotune.tuning.foreign_programs import export_records

    format_name, path = asked.format_name, asked.path
    found = iter(records)
    first = next(found, None)
    report = ExportReport(0, (), ())
    if path == "-":
        raise InvalidValueError(f"format {format_name!r} cannot be written to standard output")
    if first is not None:
        recorded = recorded_part("backend", first.key.backend, asked.selected.backend)
        writers = _writers(hold("backend", recorded), first.key.backend)
        if format_name not in writers:
            raise UnknownNameError("export format", format_name, (JSON_LINES, *writers))
        with _progress("records exported") as progress:
            one_backend = _of_one_backend(first, found, progress)
            name = writers[format_name]
            report = export_records(one_backend, format_name, Path(path), name)
    output.json(_report_json(report, format_name, path))
    for name, reason in report.refused[:NAMED]:
        notify(f"autotune: record {name} is left out: {reason}")
    if len(report.refused) > NAMED:
        notify(f"autotune: and {len(report.refused) - NAMED} more are left out")
    if not report.exported:
        notify("autotune: no record could be exported")
        return NOTHING_FOUND
    left_out = f"; {len(report.refused)} left out" if report.refused else ""
    output.say(f"{_records(report.exported)} written to {path}{left_out}")
    if report.usage:
        output.say(report.usage)
    return NOTHING_FOUND if report.refused else OK


def _writers(backend: Backend, name: str) -> dict[str, str]:
    """Name the backend that writes each format: that of the records, or another for sketches.

    A sketch is the same whichever backend timed it.
    """
    from autotune.plugins.guarded_parts import create_held_part
    from autotune.tuning.programs import compiling_backends

    found = dict.fromkeys(backend.export_formats(), name)
    for other in compiling_backends():
        part: Backend = create_held_part("backend", other)
        for format_name in part.export_formats():
            found.setdefault(format_name, other)
    return found


def _report_json(report: ExportReport, format_name: str, path: str) -> dict[str, Any]:
    return {
        "format": format_name,
        "file": path,
        "records": report.exported,
        "files": list(report.files),
        "usage": report.usage,
        "refused": [{"record": name, "reason": reason} for name, reason in report.refused],
    }


def _of_one_backend(first: Record, others: Iterator[Record], progress: Any) -> Iterator[Record]:
    yield first
    for count, record in enumerate(others, start=1):
        if record.key.backend != first.key.backend:
            raise InvalidValueError(
                f"the records are of several backends ({first.key.backend}, "
                f"{record.key.backend}); choose one with --backend"
            )
        progress(count)
        yield record


@frozen
class _Import:
    path: str = argument("FILE|-", InputFile())
    database: str = database_option()
    format_name: str = option(
        "--format NAME",
        "jsonl, or a format of another tool that a backend reads.",
        shown=JSON_LINES,
    )
    target: str | None = option(
        "--target",
        "What another tool's records are taken for: cpu for this machine, a preset, or a JSON "
        "file.  [default: cpu]",
        InputFile(),
    )
    skip_bad: bool = option("--skip-bad", "Succeed despite records that are left out.")


@command_of("import", _Import, IMPORT_EPILOG)
def import_(asked: _Import, output: Output) -> int:
    """Add the records of FILE to the database, which is made if it does not exist.

    Known records are skipped. Lines that hold no record are named and
    skipped; the status is then 1, unless --skip-bad is given. With
    --format, FILE is what another tool wrote: a folder of TVM's MetaSchedule.
    """
    if asked.format_name != JSON_LINES:
        left_out = _import_by_backend(output, asked)
    elif asked.target is not None:
        raise InvalidValueError("--target is for formats of other tools: a record names its own")
    else:
        left_out = _import_lines(output, asked.path, asked.database)
    return NOTHING_FOUND if left_out and not asked.skip_bad else OK


def _import_lines(output: Output, path: str, database: str) -> int:
    """Add records of JSON lines; returns how many lines hold none."""
    from autotune.store.jsonl import read_lines

    bad: list[BadLine] = []

    def note(line: BadLine) -> None:
        if len(bad) < NAMED:
            bad.append(line)
            notify(f"autotune: line {line.number} is skipped: {line.reason}")

    with _source(path) as stream:
        report = _add(read_lines(stream), database, note)
    if report.bad > NAMED:
        notify(f"autotune: and {report.bad - NAMED} more lines are skipped")
    output.json(
        {
            "file": path,
            "database": database,
            "added": report.added,
            "known": report.known,
            "bad": report.bad,
            "bad_lines": [{"line": line.number, "reason": line.reason} for line in bad],
        }
    )
    output.say(
        f"{_records(report.added)} added to {database}, {report.known} were there already, "
        f"{report.bad} lines skipped"
    )
    return report.bad


def _import_by_backend(output: Output, asked: _Import) -> int:
    """Add what a backend reads of another tool's records; returns how many it leaves out."""
    from autotune.tuning.foreign_programs import imported_records
    from autotune.tuning.options import described_target

    path, format_name = asked.path, asked.format_name
    if path == "-":
        raise InvalidValueError(f"format {format_name!r} cannot be read from standard input")
    if not Path(path).exists():
        raise InvalidValueError(f"{path!r} cannot be read: No such file or directory")
    backend = _importing_backend(format_name)
    described, now = described_target(asked.target or "cpu", None), time.time()
    with imported_records(Path(path), format_name, backend, described, now) as (lines, refused):
        report = _add(lines, asked.database, _refuse_line)
    reasons: dict[str, list[str]] = {}
    for where, reason in refused:
        reasons.setdefault(reason, []).append(where)
    output.json(
        {
            "format": format_name,
            "file": path,
            "database": asked.database,
            "added": report.added,
            "known": report.known,
            "refused": [{"record": where, "reason": reason} for where, reason in refused],
        }
    )
    for reason, places in list(reasons.items())[:NAMED]:
        more = f" and {len(places) - 1} more are" if len(places) > 1 else " is"
        notify(f"autotune: {places[0]}{more} left out: {reason}")
    if len(reasons) > NAMED:
        notify(f"autotune: and others are left out for {len(reasons) - NAMED} more reasons")
    output.say(
        f"{_records(report.added)} added to {asked.database}, {report.known} were there already, "
        f"{len(refused)} left out"
    )
    return len(refused)


def _importing_backend(format_name: str) -> str:
    """The name of the first installed backend that reads a format.

    Raises:
        UnknownNameError: none does.
    """
    from autotune.plugins.guarded_parts import create_held_part
    from autotune.plugins.manager import manager

    formats: dict[str, str] = {}
    for name in manager().names("backend"):
        with contextlib.suppress(PluginError):  # said when somebody asks for it
            backend: Backend = create_held_part("backend", name)
            formats |= {it: name for it in backend.import_formats() if it not in formats}
    if format_name not in formats:
        raise UnknownNameError("import format", format_name, (JSON_LINES, *formats))
    return formats[format_name]


def _refuse_line(line: BadLine) -> None:
    raise PluginError(f"the backend read no record in what it was given: {line.reason}")


def _add(
    lines: Iterable[Record | BadLine], database: str, on_bad: Callable[[BadLine], None]
) -> ImportReport:
    from autotune.store.jsonl import import_lines
    from autotune.store.sqlite import open_database

    with open_database(database, warn=warn) as opened, _progress("records read") as progress:
        return import_lines(lines, opened, on_bad, progress)


@frozen
class _List:
    selected: Selected = nested(Selected)


@command_of("list", _List, LIST_EPILOG)
def list_(asked: _List, output: Output) -> int:
    """List recorded workloads with their number of records, the best, and what untuned is."""
    from autotune.report import holdings_table, summarize

    query = Query.read(asked.selected, status=None)
    with open_for_reading(asked.selected.database) as opened:
        holdings = summarize(query.everything(opened))
    output.json([holding.to_json() for holding in holdings])
    if not holdings:
        notify(f"autotune: no record in {asked.selected.database} matches")
        return NOTHING_FOUND
    output.table(holdings_table(holdings))
    return OK


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


@contextlib.contextmanager
def _target(path: str) -> Iterator[BinaryIO]:
    from autotune.store.jsonl import replacing

    if path == "-":
        yield sys.stdout.buffer
        return
    with replacing(path) as stream:
        yield stream


@contextlib.contextmanager
def _source(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(path).open("rb") as stream:
            yield stream
    except OSError as error:
        raise InvalidValueError(f"{path!r} cannot be read: {error.strerror}") from error


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Any]:
    """A callback that takes a count and shows it on a terminal every few seconds."""
    shown = False
    last = time.monotonic()

    def report(count: int) -> None:
        nonlocal shown, last
        if sys.stderr.isatty() and time.monotonic() - last > PROGRESS_SECONDS:
            last, shown = time.monotonic(), True
            click.echo(f"\r{count} {what}", nl=False, err=True)

    yield report
    if shown:
        click.echo(err=True)


RUNS_EPILOG = """\b
Example:
  autotune records runs --database records.db --json -
"""


@frozen
class _Database:
    path: str = read_database()


@command_of("runs", _Database, RUNS_EPILOG)
def runs(asked: _Database, output: Output) -> int:
    """List runs of the tuner, and which of them the same call would continue."""
    from autotune.report import Table

    with open_for_reading(asked.path) as opened:
        found = [_as_json(run) for run in opened.runs()]
    output.json(found)
    heads = ("run", "tasks", "strategy", "space", "seed>", "trials>", "status", "note")
    names = [head.rstrip(">") for head in heads]
    rows = tuple(
        tuple(_tasks(run[name]) if name == "tasks" else str(run[name]) for name in names)
        for run in found
    )
    output.table(Table("", heads, rows))
    return OK


def _as_json(run: Run) -> dict[str, Any]:
    from autotune.tuning.resume import why_not_resumable

    why = why_not_resumable(run)
    return {
        "run": run.run_id,
        "tasks": list(run.task_names),
        "strategy": run.strategy,
        "space": run.space,
        "seed": run.seed,
        "trials": _trials(run),
        "budget": run.trials or None,
        "status": run.status,
        "note": f"cannot be continued: {why}" if why else "",
        "created": run.created,
    }


def _tasks(names: list[str]) -> str:
    """The first of the tasks, and how many more there are."""
    from autotune.report import formats

    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return formats.shortened(names[0]) + more if names else "-"


def _trials(run: Run) -> int:
    """Candidates that have an outcome; the budget where nothing else is known."""
    if run.checkpoint is None:
        return run.trials
    return sum(map(len, run.checkpoint["progress"]["logs"]))


CHECK_EPILOG = """\b
Examples:
  autotune records check
  autotune records check --database records.db --json -
"""


@command_of("check", _Database, CHECK_EPILOG)
def check(asked: _Database, output: Output) -> int:
    """Read the whole database and verify its checksums; nothing is written.

    The status is 1 where it is damaged. A command that writes to a damaged database recovers
    what can be read and keeps the damaged file beside it.
    """
    database = asked.path
    try:
        with open_for_reading(database) as opened:
            opened.check()
            counts = {
                "records": opened.count(),
                "baselines": len(opened.baselines()),
                "runs": len(opened.runs()),
            }
    except DatabaseDamaged as error:
        output.json({"database": database, "sound": False, "message": str(error)})
        notify(f"autotune: {error}")
        return NOTHING_FOUND
    output.json({"database": database, "sound": True, **counts})
    listed = ", ".join(f"{count} {noun}" for noun, count in counts.items())
    output.say(f"{database} is sound: {listed}")
    return OK


CONVERT_EPILOG = """\b
Examples:
  autotune records convert gemm-A100.json.gz gemm-A100.t4.json.gz
  autotune records convert gemm-A100.t4.json gemm-A100.json --parameters gemm.t1.json
  autotune records convert gemm-A100.json gemm.t1.json
"""


@frozen
class _Convert:
    source: str = argument("SPACE", InputFile())
    path: str = argument("FILE", OutputFile("space"))
    described_by: str | None = option(
        "--parameters FILE",
        "A T1 file with the parameters and constraints of the space, which are checked.",
        InputFile(),
    )


@command_of("convert", _Convert, CONVERT_EPILOG)
def convert(asked: _Convert, output: Output) -> int:
    """Write the recorded space in SPACE to FILE, in the format that its name ends in.

    SPACE is a cache of Kernel Tuner or a T4 file; FILE ends in .json (a cache), .t4.json, or
    .t1.json for the parameters and constraints alone. Either may end in .gz, too.
    """
    from autotune.evaluation.replay.formats import (
        format_of,
        read_description,
        read_space,
        space_bytes,
    )
    from autotune.store.jsonl import replacing

    path, described_by = asked.path, asked.described_by
    if path == "-":
        raise InvalidValueError("FILE '-' has no format: name a file, whose name ends in one")
    kind = format_of(path)
    description = None if described_by is None else read_description(described_by)
    space = read_space(asked.source, description)
    data = space_bytes(space, description, path)
    with replacing(path) as stream:
        stream.write(data)
    output.json(
        {
            "file": path,
            "format": kind,
            "kernel": space.kernel,
            "device": space.device,
            "parameters": len(space.parameters),
            "configurations": len(space),
        }
    )
    output.say(f"{len(space)} configurations of {space.kernel} written to {path}")
    return OK


FAILURES_EPILOG = """\b
Examples:
  autotune records failures
  autotune records failures gemm --backend tvm --database records.db --json -
"""


@frozen
class _Failures:
    selected: Selected = nested(Selected)
    chance: float = option(
        "--chance",
        "Omit rules that random failures would produce more often than this.",
        click.FloatRange(0.0, 1.0, min_open=True),
        shown=0.01,
    )


@command_of("failures", _Failures, FAILURES_EPILOG)
def failures(asked: _Failures, output: Output) -> int:
    """Find what failed candidates have in common, as constraints that would have excluded them.

    For the candidates that failed in one phase: the parameters and limited expressions that are
    larger or smaller in them than in any valid candidate, first over all sketches of a workload,
    then over single ones.
    """
    from autotune.store.failures import grouped_failures

    query = Query.read(asked.selected, status=None)
    with open_for_reading(asked.selected.database) as opened:
        records = list(query.select(opened))
    if not records:
        notify(f"autotune: no record in {asked.selected.database} matches")
        return NOTHING_FOUND
    groups = grouped_failures(records, asked.chance)
    output.json([group.to_json() for group in groups])
    if not groups:
        output.say(f"none of {len(records)} records is of a failure")
        return OK
    output.table(_table(groups))
    for group in groups:
        if group.messages and not group.sketch:
            output.say(f"{group.workload}, {group.phase}: {group.messages[0]}")
    return OK


def _table(groups: Sequence[FailureGroup]) -> Table:
    from autotune.report import Table

    rows = []
    for group in groups:
        where = f"{group.backend}, {group.target}, {group.threads}"
        head = (group.workload, group.sketch or "all", where, group.phase, str(group.passed))
        for rule in group.rules:
            rows.append((*head, str(rule.failures), f"never {rule}", f"{rule.chance:.1g}"))
        if group.unexplained:
            rows.append((*head, str(group.unexplained), "no rule", ""))
    heads = ("workload", "sketch", "backend, target, threads", "phase")
    return Table("", (*heads, "ok>", "failed>", "rule", "chance>"), tuple(rows))


EPILOG = """\b
Examples:
  autotune records list --json -
  autotune records export records.jsonl
  autotune records import records.jsonl --database other.db
  autotune records check --database other.db
  autotune records failures gemm
"""


@click.group("records", cls=CommandGroup, epilog=EPILOG)
def command() -> None:
    """List, exchange and check records and runs, and find what failures have in common.

    Recorded spaces of others are converted.

    Every command takes --json.
    """


for _member in (list_, runs, export, import_, convert, check, failures):
    command.add_command(_member)
