"""``autotune plugins``."""

from __future__ import annotations

import click

from autotune.cli.options import json_option

__all__ = ["command"]

EPILOG = """\b
Example:
  autotune plugins --json -
"""


@click.command("plugins", epilog=EPILOG)
@json_option
def command(json_path: str | None) -> None:
    """List every registered part: kind, name, distribution, version and status.

    A plugin that failed to load is listed with the error that stopped it.
    """
    import attrs

    from autotune.cli.output import Output
    from autotune.plugins.manager import manager
    from autotune.report import plugins_table

    statuses = manager().report()
    output = Output(json_path)
    output.json([attrs.asdict(status) for status in statuses])
    output.table(plugins_table(statuses))
