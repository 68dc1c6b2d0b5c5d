"""``autotune records failures``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import json_option
from autotune.cli.query import Query, open_for_reading, query_options

if TYPE_CHECKING:
    from autotune.report import Table
    from autotune.store.failures import FailureGroup

__all__ = ["failures"]

EPILOG = """\b
Examples:
  autotune records failures
  autotune records failures gemm --backend tvm --database records.db --json -
"""


@click.command("failures", epilog=EPILOG)
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

    For the candidates that failed in one phase: the smallest rules over at most two parameters
    or limited expressions that hold for them and for no valid candidate, first over all sketches
    of a workload, then over single ones.
    """
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output, notify
    from autotune.store.failures import mine_failures

    query = Query.read(status=None, **options)
    with open_for_reading(database) as opened:
        records = list(query.select(opened))
    if not records:
        notify(f"autotune: no record in {database} matches")
        return NOTHING_FOUND
    groups = mine_failures(records, chance)
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
