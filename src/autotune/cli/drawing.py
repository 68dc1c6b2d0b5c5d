"""Tables on a terminal. Imported only where there is one: it costs time."""

from __future__ import annotations

from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from autotune.ir.printable import printable
from autotune.report import Table

__all__ = ["draw_table", "rich_table"]

STYLES = {
    "ok": "green",
    "warning": "yellow",
    "error": "red",
    "quarantined": "red",
    "disabled": "dim",
}


def rich_table(table: Table) -> RichTable:
    """The table as a rich renderable, without its notes."""
    drawn = RichTable(title=table.title or None, box=box.SIMPLE_HEAD, title_justify="left")
    for column, heading in enumerate(table.headings):
        drawn.add_column(heading, justify="right" if table.right_aligned(column) else "left")
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell), style=STYLES.get(cell, "")) for cell in row))
    return drawn


def draw_table(table: Table, stream: TextIO) -> None:
    """Draw a table and its notes."""
    console = Console(file=stream, highlight=False)
    console.print(rich_table(table))
    for note in table.notes:
        console.print(Text(printable(note)))
