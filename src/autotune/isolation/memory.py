"""How much memory there is."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_SHARE = 0.8


def default_memory_limit() -> int:
    """Bytes that a worker may allocate by default: most of what the machine or container has."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUP_LIMITS:
        try:
            available = min(available, int(Path(path).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return int(available * _SHARE)
