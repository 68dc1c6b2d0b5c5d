"""``autotune workloads``."""

from __future__ import annotations

import click

from autotune.cli.options import json_option

__all__ = ["command"]

EPILOG = """\b
Example:
  autotune workloads
"""


@click.command("workloads", epilog=EPILOG)
@json_option
def command(json_path: str | None) -> None:
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
