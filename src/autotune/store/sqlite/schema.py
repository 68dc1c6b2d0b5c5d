"""The tables of the SQLite file and the checksums of their rows."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

__all__ = [
    "APPLICATION_ID",
    "COLUMNS",
    "DAMAGE_NOTE",
    "SCHEMA_VERSION",
    "SHARED_TABLES",
    "beside",
    "row_checksum",
]

SCHEMA_VERSION = 3

APPLICATION_ID = 0x4154554E
"""Marks a SQLite file as ours ("ATUN"), in its header."""

DAMAGE_NOTE = "-damaged"
"""Ends the name of an empty file beside one in which damage was found while it was read."""

COLUMNS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "workloads": ("id", "content_digest", "content", "digest", "name"),
        "sketches": ("id", "content_digest", "content", "workload_id"),
        "targets": ("id", "content_digest", "content"),
        "programs": ("id", "content_digest", "content"),
        "measure_keys": (
            "id",
            "target",
            "backend",
            "backend_version",
            "compiler_version",
            "threads",
            "protocol",
        ),
        "copies": ("id", "origin", "content"),
        "records": (
            "id",
            "run_id",
            "trial",
            "workload",
            "candidate",
            "sketch_id",
            "config",
            "key_id",
            "target_id",
            "space",
            "status",
            "latency",
            "outcome",
            "created",
            "elapsed",
            "program_id",
            "lowered",
            "binary",
            "duplicate_of",
        ),
        "baselines": ("id", "run_id", "workload", "key_id", "status", "outcome", "created"),
        "runs": (
            "id",
            "run_id",
            "identity",
            "workload",
            "key_id",
            "space",
            "strategy",
            "options",
            "seed",
            "trials",
            "status",
            "created",
            "checkpoint",
        ),
        "former_digests": ("id", "former", "digest"),
    }
)
"""The columns of every table in the order in which a row has them; ``checksum`` follows."""

SHARED_TABLES = ("workloads", "sketches", "targets", "programs", "measure_keys")
"""Tables of rows that others refer to; ``copies`` has each of these rows as a JSON array."""


def beside(path: Path, suffix: str) -> Path:
    """A file beside a database's, such as its log."""
    return path.with_name(path.name + suffix)


def row_checksum(table: str, *values: bytes | str | float | None) -> int:
    """CRC-32 of a row, by which damage within a page and a row's own table are recognised.

    Args:
        table: Name of the table.
        values: Values of its `COLUMNS`, in that order, as SQLite gives them back. Only damage
            makes one binary.
    """
    return zlib.crc32(json.dumps((table, *values), default=repr).encode())
