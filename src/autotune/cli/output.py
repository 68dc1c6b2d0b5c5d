"""Output of a command: tables for people, JSON for programs."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

from autotune.errors import AutotuneError
from autotune.ir.printable import printable

if TYPE_CHECKING:
    from autotune.process.interrupts import TuningInterrupted
    from autotune.report import Table

__all__ = ["Output", "drawing", "notify", "notify_interrupted", "warn", "write_text"]

_LIBRARIES = ("jinja2", "matplotlib")
_STYLES = {
    "ok": "green",
    "warning": "yellow",
    "error": "red",
    "quarantined": "red",
    "disabled": "dim",
}


def notify(text: str, stream: TextIO | None = None) -> None:
    """Write a line that no result depends on: where the disk is full, it is lost.

    Args:
        text: The line.
        stream: Where to; by default standard error.
    """
    try:
        click.echo(printable(text), file=sys.stderr if stream is None else stream)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def notify_interrupted(interrupted: TuningInterrupted, fresh: bool) -> None:
    """Say what is kept of a run that was stopped, and how it is resumed.

    Args:
        interrupted: How far it came.
        fresh: Whether it was asked to begin anew, which the command that resumes it is not.
    """
    command = "the same command without --fresh" if fresh else "the same command"
    notify(
        f"autotune: interrupted after {interrupted.trials} trials, which are recorded in "
        f"{interrupted.database}; {command} resumes the run"
    )


def warn(message: str) -> None:
    """Write a line on something a person should know; the command goes on."""
    notify(f"autotune: warning: {message}")


def write_text(path: str, text: str) -> None:
    """Write a whole file, which appears when complete; ``"-"`` is standard output.

    Raises:
        InvalidValueError: the file cannot be written.
    """
    from autotune.store.jsonl import replacing

    if path == "-":
        # As in a file: programs read UTF-8, whatever the terminal has.
        click.echo(text.encode(), nl=False)
        return
    with replacing(path) as stream:
        stream.write(text.encode())


@contextmanager
def drawing(what: str) -> Iterator[None]:
    """Say what to install, where a library that draws or writes pages is missing in the body.

    Args:
        what: What is made with it, such as ``"a plot is made"``.

    Raises:
        AutotuneError: such a library is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in _LIBRARIES:
            raise
        from autotune.plugins.installing import install_extra

        raise AutotuneError(
            f"{what} with {library}, which is not installed: run {install_extra('report')}"
        ) from error


class Output:
    """Writes text to standard output, or to standard error where JSON has the former.

    Args:
        json_path: File for the JSON form, ``"-"`` for standard output, None for none.
        log_path: Where a log goes that has standard output for itself when it is ``"-"``.
    """

    def __init__(self, json_path: str | None, log_path: str | None = None) -> None:
        self._json_path = json_path
        self.stream: TextIO = sys.stderr if "-" in (json_path, log_path) else sys.stdout

    def say(self, text: str = "") -> None:
        """Write lines."""
        click.echo(printable(text), file=self.stream)

    def table(self, table: Table) -> None:
        """Write a table: drawn on a terminal, aligned text elsewhere."""
        if self.stream.isatty():
            _draw(table, self.stream)
        else:
            self.say(table.to_text())

    def json(self, data: Any) -> None:
        """Write the JSON form, if it was asked for.

        Raises:
            InvalidValueError: the file cannot be written.
        """
        if self._json_path is None:
            return
        text = json.dumps(data, indent=1, sort_keys=False, allow_nan=False) + "\n"
        write_text(self._json_path, text)


def _draw(table: Table, stream: TextIO) -> None:
    """Draw a table and its notes."""
    # Imported only where there is a terminal: it costs time.
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=table.title or None, box=box.SIMPLE_HEAD, title_justify="left")
    for column, heading in enumerate(table.headings):
        drawn.add_column(heading, justify="right" if table.right_aligned(column) else "left")
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell), style=_STYLES.get(cell, "")) for cell in row))
    console = Console(file=stream, highlight=False)
    console.print(drawn)
    for note in table.notes:
        console.print(Text(printable(note)))
