"""Recorded spaces as files of others: caches of Kernel Tuner, T4 results, T1 descriptions."""

from __future__ import annotations

from autotune.evaluation.replay.formats.files import (
    ENDINGS,
    format_of,
    read_description,
    read_space,
    read_spaces,
    space_bytes,
)
from autotune.evaluation.replay.formats.t1 import Description

__all__ = [
    "ENDINGS",
    "Description",
    "format_of",
    "read_description",
    "read_space",
    "read_spaces",
    "space_bytes",
]
