"""The command line. Subcommands are imported when they are used."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its status."""
    from autotune.cli.app import run

    sys.exit(run(sys.argv[1:]))
