"""``autotune plugins``, ``workloads`` and ``fleet``: lists of what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from autotune.cli.app import NOTHING_FOUND, OK
from autotune.cli.arguments import Nothing, command_of
from autotune.cli.options import tuning
from autotune.cli.output import Output, warn

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


@command_of("plugins", Nothing, PLUGINS_EPILOG)
def plugins(_: Nothing, output: Output) -> int:
    """List every registered part: kind, name, distribution, version and status.

    A plugin that failed to load is listed with the error that stopped it.
    """
    from autotune.plugins.manager import manager
    from autotune.report import plugins_table

    statuses = manager().report()
    output.json([attrs.asdict(status) for status in statuses])
    output.table(plugins_table(statuses))
    return OK


WORKLOADS_EPILOG = """\b
Example:
  autotune workloads
"""


@command_of("workloads", Nothing, WORKLOADS_EPILOG)
def workloads(_: Nothing, output: Output) -> int:
    """List workload builders and their shape parameters."""
    from autotune.plugins.manager import manager
    from autotune.plugins.workload_names import builder_info
    from autotune.report import builders_table

    builders = [builder_info(name) for name in manager().names("workload")]
    output.json([attrs.asdict(builder) for builder in builders])
    output.table(builders_table(builders))
    return OK


FLEET_EPILOG = """\b
Examples:
  autotune fleet
  autotune fleet --runner local --runner-option builders=2 --json -

Machines with the same fingerprint and the same speed may share a race and records. Drift is what
the reference program takes now, over what it took when the machine joined.
"""


@attrs.frozen
class _Asked:
    options: TuneOptions = tuning("target", "backend", "threads", parts=("runner",))


@command_of("fleet", _Asked, FLEET_EPILOG)
def fleet(asked: _Asked, output: Output) -> int:
    """List the machines of a runner: fingerprint, load, and whether their speed has drifted."""
    from autotune.report import fleet_table
    from autotune.tuning.machines import look_at_fleet

    fleet = look_at_fleet(asked.options)
    output.json(fleet.to_json())
    output.table(fleet_table(fleet))
    for message in fleet.warnings:
        warn(message)
    return OK if any(it.takes_part for it in fleet.machines) else NOTHING_FOUND
