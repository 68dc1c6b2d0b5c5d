"""``autotune fleet``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from autotune.cli.options import json_option, tune_options

if TYPE_CHECKING:
    from autotune.tuning.options import TuneOptions

__all__ = ["command"]

EPILOG = """\b
Examples:
  autotune fleet
  autotune fleet --runner local --runner-option builders=2 --json -

Machines with the same fingerprint and the same speed may share a race and records. Drift is what
the reference program takes now, over what it took when the machine joined.
"""


@click.command("fleet", epilog=EPILOG)
@tune_options(*("target", "backend", "threads"), parts=("runner",))
@json_option
def command(options: TuneOptions, json_path: str | None) -> int:
    """List the machines of a runner: fingerprint, load, and whether their speed has drifted."""
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output, warn
    from autotune.report import fleet_table
    from autotune.tuning.fleet import look_at_fleet

    fleet = look_at_fleet(options)
    output = Output(json_path)
    output.json(fleet.to_json())
    output.table(fleet_table(fleet))
    for message in fleet.warnings:
        warn(message)
    return OK if any(it.takes_part for it in fleet.machines) else NOTHING_FOUND
