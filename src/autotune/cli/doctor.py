"""``autotune doctor``."""

from __future__ import annotations

import click

from autotune.cli.options import json_option

__all__ = ["command"]

EPILOG = """\b
Example:
  autotune doctor --json -
"""


@click.command("doctor", epilog=EPILOG)
@json_option
def command(json_path: str | None) -> int:
    """Check versions, compiler, target, threads, disk, and whether timing is stable here."""
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.diagnosis import diagnose
    from autotune.cli.output import Output
    from autotune.report import findings_table

    diagnosis = diagnose()
    output = Output(json_path)
    output.json(diagnosis.to_json())
    output.table(findings_table(diagnosis.findings))
    return NOTHING_FOUND if any(f.status == "error" for f in diagnosis.findings) else OK
