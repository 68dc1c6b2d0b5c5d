"""``autotune records check``."""

from __future__ import annotations

import click

from autotune.cli.options import existing_database_option, json_option
from autotune.cli.query import open_for_reading

__all__ = ["check"]

EPILOG = """\b
Examples:
  autotune records check
  autotune records check --database records.db --json -
"""


@click.command("check", epilog=EPILOG)
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
