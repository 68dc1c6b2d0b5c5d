"""Records as files that other installations read: one JSON object a line."""

from __future__ import annotations

from autotune.store.jsonl.atomic_file import replacing
from autotune.store.jsonl.json_lines import BadLine, read_lines, record_line, write_lines
from autotune.store.jsonl.transfer import ImportReport, import_lines

__all__ = [
    "BadLine",
    "ImportReport",
    "import_lines",
    "read_lines",
    "record_line",
    "replacing",
    "write_lines",
]
