"""``autotune doctor``."""

from __future__ import annotations

from autotune.cli.app import NOTHING_FOUND, OK
from autotune.cli.arguments import Nothing, command_of
from autotune.cli.output import Output

__all__ = ["command"]

EPILOG = """\b
Example:
  autotune doctor --json -
"""


@command_of("doctor", Nothing, EPILOG)
def command(_: Nothing, output: Output) -> int:
    """Check versions, compiler, target, threads, disk, and whether timing is stable here."""
    from autotune.cli.diagnosis import diagnose
    from autotune.report import findings_table

    diagnosis = diagnose()
    output.json(diagnosis.to_json())
    output.table(findings_table(diagnosis.findings))
    return NOTHING_FOUND if any(f.status == "error" for f in diagnosis.findings) else OK
