"""``autotune records``: the contents of a database, and records to and from files."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from autotune.cli.app import CommandGroup
from autotune.cli.destinations import InputFile, OutputFile
from autotune.cli.options import database_option, existing_database_option, json_option
from autotune.cli.query import Query, open_for_reading, query_options
from autotune.store.statuses import OUTCOME_STATUSES

if TYPE_CHECKING:
    from autotune.backends import Backend, ExportReport
    from autotune.cli.output import Output
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


@click.command("export", epilog=EXPORT_EPILOG)
@click.argument("path", metavar="FILE|-", type=OutputFile("records"))
@query_options
@click.option(
    "--status",
    type=click.Choice(("any", *OUTCOME_STATUSES)),
    help="Only records of this outcome.  [default: any; ok in a backend's format]",
)
@click.option("--protocol", metavar="NAME", help="Measuring protocol, such as warm-3.")
@click.option("--run", "run_id", metavar="RUN", help="Only records of this run.")
@click.option("--best-only", is_flag=True, help="The fastest of each workload only.")
@click.option(
    "--format",
    "format_name",
    metavar="NAME",
    default=JSON_LINES,
    show_default=True,
    help="jsonl, or a format that the backend of the records offers.",
)
@json_option
def export(
    path: str,
    database: str,
    status: str | None,
    best_only: bool,
    format_name: str,
    json_path: str | None,
    **options: Any,
) -> int:
    """Write records to FILE, one JSON object per line; - for standard output.

    The file appears when complete. With --format, the output is for other tools: a
    folder for TVM's MetaSchedule, schedules for mlir-opt. See `autotune export` for code.
    """
    from autotune.cli.output import Output
    from autotune.errors import InvalidValueError

    to_backend = format_name != JSON_LINES
    wanted = status or ("ok" if to_backend or best_only else "any")
    if best_only and wanted != "ok":
        raise InvalidValueError(f"--best-only is for valid records, not for --status {wanted}")
    query = Query.read(status=None if wanted == "any" else wanted, **options)
    output = Output(json_path, path)
    with open_for_reading(database) as opened:
        records: Iterable[Record] = query.best(opened) if best_only else query.everything(opened)
        if to_backend:
            return _export_by_backend(output, records, format_name, path, query.backend)
        return _export_lines(output, records, path, database)


def _export_lines(output: Output, records: Iterable[Record], path: str, database: str) -> int:
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import notify
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


def _export_by_backend(
    output: Output, records: Iterable[Record], format_name: str, path: str, given: str | None
) -> int:
    from autotune.backends import ExportReport
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import notify
    from autotune.errors import InvalidValueError, UnknownNameError
    from autotune.plugins.guarded_parts import hold
    from autotune.plugins.parts import recorded_part
    from autotune.tuning.foreign_programs import export_records

    found = iter(records)
    first = next(found, None)
    report = ExportReport(0, (), ())
    if path == "-":
        raise InvalidValueError(f"format {format_name!r} cannot be written to standard output")
    if first is not None:
        recorded = recorded_part("backend", first.key.backend, given)
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
    from autotune.errors import InvalidValueError

    yield first
    for count, record in enumerate(others, start=1):
        if record.key.backend != first.key.backend:
            raise InvalidValueError(
                f"the records are of several backends ({first.key.backend}, "
                f"{record.key.backend}); choose one with --backend"
            )
        progress(count)
        yield record


@click.command("import", epilog=IMPORT_EPILOG)
@click.argument("path", metavar="FILE|-", type=InputFile())
@database_option
@click.option(
    "--format",
    "format_name",
    metavar="NAME",
    default=JSON_LINES,
    show_default=True,
    help="jsonl, or a format of another tool that a backend reads.",
)
@click.option(
    "--target",
    type=InputFile(),
    help="What another tool's records are taken for: cpu for this machine, a preset, or a JSON "
    "file.  [default: cpu]",
)
@click.option("--skip-bad", is_flag=True, help="Succeed despite records that are left out.")
@json_option
def import_(
    path: str,
    database: str,
    format_name: str,
    target: str | None,
    skip_bad: bool,
    json_path: str | None,
) -> int:
    """Add the records of FILE to the database, which is made if it does not exist.

    Known records are skipped. Lines that hold no record are named and
    skipped; the status is then 1, unless --skip-bad is given. With
    --format, FILE is what another tool wrote: a folder of TVM's MetaSchedule.
    """
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output
    from autotune.errors import InvalidValueError

    output = Output(json_path)
    if format_name != JSON_LINES:
        left_out = _import_by_backend(output, path, database, format_name, target or "cpu")
    elif target is not None:
        raise InvalidValueError("--target is for formats of other tools: a record names its own")
    else:
        left_out = _import_lines(output, path, database)
    return NOTHING_FOUND if left_out and not skip_bad else OK


def _import_lines(output: Output, path: str, database: str) -> int:
    """Add records of JSON lines; returns how many lines hold none."""
    from autotune.cli.output import notify
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


def _import_by_backend(
    output: Output, path: str, database: str, format_name: str, target: str
) -> int:
    """Add what a backend reads of another tool's records; returns how many it leaves out."""
    from autotune.cli.output import notify
    from autotune.errors import InvalidValueError
    from autotune.tuning.foreign_programs import imported_records
    from autotune.tuning.options import described_target

    if path == "-":
        raise InvalidValueError(f"format {format_name!r} cannot be read from standard input")
    if not Path(path).exists():
        raise InvalidValueError(f"{path!r} cannot be read: No such file or directory")
    backend = _importing_backend(format_name)
    described, now = described_target(target, None), time.time()
    with imported_records(Path(path), format_name, backend, described, now) as (lines, refused):
        report = _add(lines, database, _refuse_line)
    reasons: dict[str, list[str]] = {}
    for where, reason in refused:
        reasons.setdefault(reason, []).append(where)
    output.json(
        {
            "format": format_name,
            "file": path,
            "database": database,
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
        f"{_records(report.added)} added to {database}, {report.known} were there already, "
        f"{len(refused)} left out"
    )
    return len(refused)


def _importing_backend(format_name: str) -> str:
    """The name of the first installed backend that reads a format.

    Raises:
        UnknownNameError: none does.
    """
    from autotune.errors import PluginError, UnknownNameError
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
    from autotune.errors import PluginError

    raise PluginError(f"the backend read no record in what it was given: {line.reason}")


def _add(
    lines: Iterable[Record | BadLine], database: str, on_bad: Callable[[BadLine], None]
) -> ImportReport:
    from autotune.cli.output import warn
    from autotune.store.jsonl import import_lines
    from autotune.store.sqlite import open_database

    with open_database(database, warn=warn) as opened, _progress("records read") as progress:
        return import_lines(lines, opened, on_bad, progress)


@click.command("list", epilog=LIST_EPILOG)
@query_options
@json_option
def list_(database: str, json_path: str | None, **options: Any) -> int:
    """List recorded workloads with their number of records, the best, and what untuned is."""
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output, notify
    from autotune.report import holdings_table, summarize

    query = Query.read(status=None, **options)
    with open_for_reading(database) as opened:
        holdings = summarize(query.everything(opened))
    output = Output(json_path)
    output.json([holding.to_json() for holding in holdings])
    if not holdings:
        notify(f"autotune: no record in {database} matches")
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
    from autotune.errors import InvalidValueError

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


@click.command("runs", epilog=RUNS_EPILOG)
@existing_database_option
@json_option
def runs(database: str, json_path: str | None) -> int:
    """List runs of the tuner, and which of them the same call would continue."""
    from autotune.cli.app import OK
    from autotune.cli.output import Output
    from autotune.report import Table

    output = Output(json_path)
    with open_for_reading(database) as opened:
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


@click.command("check", epilog=CHECK_EPILOG)
@existing_database_option
@json_option
def check(database: str, json_path: str | None) -> int:
    """Read the whole database and verify its checksums; nothing is written.

    The status is 1 where it is damaged. A command that writes to a damaged database recovers
    what can be read and keeps the damaged file beside it.
    """
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output, notify
    from autotune.errors import DatabaseDamaged

    output = Output(json_path)
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


@click.command("convert", epilog=CONVERT_EPILOG)
@click.argument("source", metavar="SPACE", type=InputFile())
@click.argument("path", metavar="FILE", type=OutputFile("space"))
@click.option(
    "--parameters",
    "described_by",
    metavar="FILE",
    type=InputFile(),
    help="A T1 file with the parameters and constraints of the space, which are checked.",
)
@json_option
def convert(source: str, path: str, described_by: str | None, json_path: str | None) -> int:
    """Write the recorded space in SPACE to FILE, in the format that its name ends in.

    SPACE is a cache of Kernel Tuner or a T4 file; FILE ends in .json (a cache), .t4.json, or
    .t1.json for the parameters and constraints alone. Either may end in .gz, too.
    """
    from autotune.cli.app import OK
    from autotune.cli.output import Output
    from autotune.errors import InvalidValueError
    from autotune.evaluation.replay.formats import (
        format_of,
        read_description,
        read_space,
        space_bytes,
    )
    from autotune.store.jsonl import replacing

    if path == "-":
        raise InvalidValueError("FILE '-' has no format: name a file, whose name ends in one")
    kind = format_of(path)
    description = None if described_by is None else read_description(described_by)
    space = read_space(source, description)
    data = space_bytes(space, description, path)
    with replacing(path) as stream:
        stream.write(data)
    output = Output(json_path)
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


@click.command("failures", epilog=FAILURES_EPILOG)
@query_options
@click.option(
    "--chance",
    type=click.FloatRange(0.0, 1.0, min_open=True),
    default=0.01,
    show_default=True,
    help="Omit rules that random failures would produce more often than this.",
)
@json_option
def failures(database: str, chance: float, json_path: str | None, **options: Any) -> int:
    """Find what failed candidates have in common, as constraints that would have excluded them.

    For the candidates that failed in one phase: the parameters and limited expressions that are
    larger or smaller in them than in any valid candidate, first over all sketches of a workload,
    then over single ones.
    """
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output, notify
    from autotune.store.failures import grouped_failures

    query = Query.read(status=None, **options)
    with open_for_reading(database) as opened:
        records = list(query.select(opened))
    if not records:
        notify(f"autotune: no record in {database} matches")
        return NOTHING_FOUND
    groups = grouped_failures(records, chance)
    output = Output(json_path)
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
