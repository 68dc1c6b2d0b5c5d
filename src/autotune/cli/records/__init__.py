"""``autotune records``: the contents of a database, and records to and from files."""

from __future__ import annotations

import click

from autotune.cli.groups import CommandGroup
from autotune.cli.records.check import check
from autotune.cli.records.convert import convert
from autotune.cli.records.exchange import export, import_, list_
from autotune.cli.records.failures import failures
from autotune.cli.records.runs import runs

__all__ = ["command"]

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
