"""``autotune plugins``, ``workloads`` and ``fleet``: lists of what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from autotune.cli.options import json_option, tune_options

if TYPE_CHECKING:
    from autotune.tuning.options import TuneOptions

__all__ = [
    "fleet",
    "plugins",
    "workloads",
]


PLUGINS_EPILOG = """\b
Example:
  autotune plugins --json -
"""


@click.command("plugins", epilog=PLUGINS_EPILOG)
@json_option
def plugins(json_path: str | None) -> None:
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


WORKLOADS_EPILOG = """\b
Example:
  autotune workloads
"""


@click.command("workloads", epilog=WORKLOADS_EPILOG)
@json_option
def workloads(json_path: str | None) -> None:
    """List workload builders and their shape parameters."""
    import attrs

    from autotune.cli.output import Output
    from autotune.plugins.manager import manager
    from autotune.plugins.workload_names import builder_info
    from autotune.report import builders_table

    builders = [builder_info(name) for name in manager().names("workload")]
    output = Output(json_path)
    output.json([attrs.asdict(builder) for builder in builders])
    output.table(builders_table(builders))


FLEET_EPILOG = """\b
Examples:
  autotune fleet
  autotune fleet --runner local --runner-option builders=2 --json -

Machines with the same fingerprint and the same speed may share a race and records. Drift is what
the reference program takes now, over what it took when the machine joined.
"""


@click.command("fleet", epilog=FLEET_EPILOG)
@tune_options(*("target", "backend", "threads"), parts=("runner",))
@json_option
def fleet(options: TuneOptions, json_path: str | None) -> int:
    """List the machines of a runner: fingerprint, load, and whether their speed has drifted."""
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output, warn
    from autotune.report import fleet_table
    from autotune.tuning.machines import look_at_fleet

    fleet = look_at_fleet(options)
    output = Output(json_path)
    output.json(fleet.to_json())
    output.table(fleet_table(fleet))
    for message in fleet.warnings:
        warn(message)
    return OK if any(it.takes_part for it in fleet.machines) else NOTHING_FOUND
