"""A table as data; drawing it is left to the caller."""

from __future__ import annotations

from typing import Any

from attrs import frozen

__all__ = ["Table"]


@frozen
class Table:
    """Text in rows and columns.

    Attributes:
        title: What it shows.
        columns: Headings; one that ends in ``>`` is right-aligned, without the mark.
        rows: One tuple of texts per row, as long as ``columns``.
        notes: Lines below the table.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def headings(self) -> tuple[str, ...]:
        """Column headings without alignment marks."""
        return tuple(column.removesuffix(">") for column in self.columns)

    def right_aligned(self, column: int) -> bool:
        """Return whether a column is right-aligned."""
        return self.columns[column].endswith(">")

    def to_text(self) -> str:
        """The table in plain text: aligned columns, no colours, no lines."""
        lines = [self.headings, *self.rows]
        widths = [max(len(line[c]) for line in lines) for c in range(len(self.columns))]
        text = [self.title] if self.title else []
        for line in lines:
            cells = [
                cell.rjust(width) if self.right_aligned(c) else cell.ljust(width)
                for c, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            text.append("  ".join(cells).rstrip())
        return "\n".join([*text, *self.notes])

    def to_json(self) -> list[dict[str, Any]]:
        """Make an object per row, keyed by heading."""
        return [dict(zip(self.headings, row, strict=True)) for row in self.rows]
