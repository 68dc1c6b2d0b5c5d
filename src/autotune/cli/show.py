"""``autotune show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import json_option
from autotune.cli.query import Query, best_records, query_options

if TYPE_CHECKING:
    from autotune.database import Database
    from autotune.records import Record

__all__ = ["command"]

EPILOG = """\b
Examples:
  autotune show gemm --shape m=512,n=512,k=512 --database records.db
  autotune show --record 0123456789ab/17
"""

PARTS = ("steps", "script", "nest")


@click.command("show", epilog=EPILOG)
@query_options
@click.option("--record", "record_id", metavar="RUN/TRIAL", help="A record, as `best` names it.")
@click.option(
    "--part",
    "parts",
    type=click.Choice(PARTS),
    multiple=True,
    help="Show only this part; may be repeated.",
)
@json_option
def command(
    database: str,
    record_id: str | None,
    parts: tuple[str, ...],
    json_path: str | None,
    **options: Any,
) -> int:
    """Show the fastest recorded schedule of WORKLOAD, or a given record.

    Its steps and parameters, the scheduled program in the compiler's own language, and the loop
    nest that the search reasoned about.
    """
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output
    from autotune.database import open_database
    from autotune.report import records_table, step_lines

    query = Query.read(**options)
    with open_database(database, read_only=True) as opened:
        record = _chosen(opened, query, record_id)
    output = Output(json_path)
    if record is None:
        click.echo(f"autotune: no valid record in {database} matches", err=True)
        output.json(None)
        return NOTHING_FOUND
    wanted = parts or PARTS
    texts = {
        "steps": lambda: "\n".join(step_lines(record.candidate)),
        "script": lambda: _script(record),
        "nest": lambda: _nest(record),
    }
    shown = {part: texts[part]() for part in PARTS if part in wanted}
    output.json({"record": record.to_json(), **shown})
    output.table(records_table([record]))
    titles = {"steps": "Steps", "script": "Script", "nest": "Loop nest"}
    for part, text in shown.items():
        output.say(f"\n{titles[part]}\n\n{text.rstrip()}")
    return OK


def _chosen(database: Database, query: Query, record_id: str | None) -> Record | None:
    if record_id is None:
        return min(
            best_records(query.select(database)),
            key=lambda record: record.latency or 0.0,
            default=None,
        )
    from autotune.database import RecordFilter
    from autotune.errors import InvalidValueError

    run, slash, trial = record_id.partition("/")
    if not (slash and trial.isdigit()):
        raise InvalidValueError(f"--record {record_id!r} is not of the form RUN/TRIAL")
    records = database.records(RecordFilter(run_id=run))
    return next((record for record in records if record.trial == int(trial)), None)


def _script(record: Record) -> str:
    from autotune.backends import Backend, BuildRequest
    from autotune.parts import create_part
    from autotune.targets import Target

    backend: Backend = create_part("backend", record.key.backend)
    workload = record.candidate.sketch.workload
    target = Target.from_json(record.target)
    return backend.show(BuildRequest(workload, None, record.candidate, target, record.key.threads))


def _nest(record: Record) -> str:
    from autotune.nest import describe

    return describe(record.candidate.sketch, record.candidate.config)
