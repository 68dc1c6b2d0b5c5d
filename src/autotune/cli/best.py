"""``autotune best``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from attrs import frozen

from autotune.cli.app import NOTHING_FOUND, OK
from autotune.cli.arguments import command_of, nested, option
from autotune.cli.output import Output, notify
from autotune.cli.query import Query, Selected, open_for_reading, record_json

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


@frozen
class _Asked:
    selected: Selected = nested(Selected)
    limit: int | None = option("--limit", "Show at most this many.", click.IntRange(min=1))


@command_of("best", _Asked, EPILOG)
def command(asked: _Asked, output: Output) -> int:
    """Show the fastest record of each workload, of WORKLOAD only if it is given.

    Records of different targets, thread counts and measuring protocols are not comparable and are
    listed separately. Those of different backends are: the fastest is shown, or, with --backend,
    the fastest of that backend for each of its versions. An imported record is shown, and said to
    be one, only where nothing was measured here.
    """
    from autotune.report import records_table

    query = Query.read(asked.selected)
    with open_for_reading(asked.selected.database) as opened:
        records = query.best(opened)
        missing = "" if records else query.none_matches(opened)
    if asked.selected.backend is None:
        records = fastest_of_backends(records)
    records = records[: asked.limit]
    output.json([record_json(record) for record in records])
    if not records:
        notify(f"autotune: {missing}")
        return NOTHING_FOUND
    output.table(records_table(records))
    return OK
