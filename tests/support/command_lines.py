"""Command lines that need no compiler, and a measurer that needs no other process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click
from attrs import frozen
from toy_parts import REFERENCE_BACKEND, TOY_SPACE, InProcessMeasurer

from autotune.measure import MeasurerContext

PARTS = ("--backend", REFERENCE_BACKEND, "--space", TOY_SPACE, "--cost-model", "random")
IN_PROCESS = ("--measurer", "command_lines:ScriptedMeasurer")
"""Candidates are neither built nor run: their latencies are those of the reference backend."""


@frozen
class Done:
    """Outcome of a command."""

    status: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


class ScriptedMeasurer(InProcessMeasurer):
    """Gives every candidate the latency that the reference backend computes for it."""

    def __init__(self, context: MeasurerContext) -> None:
        super().__init__(context.workload)


def tune_square(size: int) -> tuple[str, ...]:
    """``autotune tune gemm`` for a product of two square matrices."""
    return ("tune", "gemm", "--shape", f"m={size},n={size},k={size}", *PARTS, "--threads", "1")


TUNE = tune_square(8)


def refused(done: Done) -> str:
    """The one line of a command that did not begin."""
    assert done.status == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    return str(line)


def commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """The commands of a group and of those within it, with their names."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command
