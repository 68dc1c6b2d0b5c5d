"""``autotune train``: training data, and cost models trained on it."""

from __future__ import annotations

import click

from autotune.cli.groups import CommandGroup
from autotune.cli.train.fit import fit
from autotune.cli.train.record import info, record

__all__ = ["command"]

EPILOG = """\b
Examples:
  autotune train record --tasks cpu-60 --time 3600 --database cpu.db
  autotune train info --database cpu.db
  autotune train fit --cost-model gbdt --database cpu.db --output gbdt.npz --hold-out 5

Then: autotune tune gemm --shape m=512,n=512,k=512 --cost-model gbdt --load-cost-model gbdt.npz
"""


@click.group("train", cls=CommandGroup, epilog=EPILOG)
def command() -> None:
    """Record schedules of many tasks, and train a cost model on them.

    Every command takes --json.
    """


for _member in (record, fit, info):
    command.add_command(_member)
