"""``autotune best``."""

from __future__ import annotations

from typing import Any

import click

from autotune.cli.options import json_option
from autotune.cli.query import Query, query_options

__all__ = ["command"]

EPILOG = """\b
Examples:
  autotune best
  autotune best gemm --shape m=512 --database records.db --json -
"""


@click.command("best", epilog=EPILOG)
@query_options
@click.option("--limit", type=click.IntRange(min=1), help="Show at most this many.")
@json_option
def command(database: str, limit: int | None, json_path: str | None, **options: Any) -> int:
    """Show the fastest record of each workload, of WORKLOAD only if it is given.

    Records of different targets, backends, thread counts and measuring protocols are not
    comparable and are listed separately.
    """
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output
    from autotune.database import open_database
    from autotune.report import records_table

    query = Query.read(**options)
    with open_database(database, read_only=True) as opened:
        records = query.best(opened)[:limit]
    output = Output(json_path)
    output.json([record.to_json() for record in records])
    if not records:
        click.echo(f"autotune: no valid record in {database} matches", err=True)
        return NOTHING_FOUND
    output.table(records_table(records))
    return OK
