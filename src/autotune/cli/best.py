"""``autotune best``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import json_option
from autotune.cli.query import Query, open_for_reading, query_options, record_json

if TYPE_CHECKING:
    from autotune.store.records import Record

__all__ = ["command", "fastest_of_backends"]

EPILOG = """\b
Examples:
  autotune best
  autotune best gemm --shape m=512 --database records.db --json -
"""


def fastest_of_backends(records: Sequence[Record]) -> list[Record]:
    """Of records that differ in backend and its versions only, the best; order is kept."""
    best: dict[tuple[str, str, int, str], Record] = {}
    for record in records:
        key = record.key
        alike = (
            record.candidate.sketch.workload.digest,
            key.target,
            key.threads,
            key.protocol,
        )
        found = best.setdefault(alike, record)
        if record.rank < found.rank:
            best[alike] = record
    kept = {id(record) for record in best.values()}
    return [record for record in records if id(record) in kept]


@click.command("best", epilog=EPILOG)
@query_options
@click.option("--limit", type=click.IntRange(min=1), help="Show at most this many.")
@json_option
def command(database: str, limit: int | None, json_path: str | None, **options: Any) -> int:
    """Show the fastest record of each workload, of WORKLOAD only if it is given.

    Records of different targets, thread counts and measuring protocols are not comparable and are
    listed separately. Those of different backends are: the fastest is shown, or, with --backend,
    the fastest of that backend for each of its versions. An imported record is shown, and said to
    be one, only where nothing was measured here.
    """
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output, notify
    from autotune.report import records_table

    query = Query.read(**options)
    with open_for_reading(database) as opened:
        records = query.best(opened)
        missing = "" if records else query.none_matches(opened)
    if query.backend is None:
        records = fastest_of_backends(records)
    records = records[:limit]
    output = Output(json_path)
    output.json([record_json(record) for record in records])
    if not records:
        notify(f"autotune: {missing}")
        return NOTHING_FOUND
    output.table(records_table(records))
    return OK
