"""Facts that follow from the architecture of an NVIDIA GPU."""

from __future__ import annotations

import re

from autotune.targets.target import Target

__all__ = ["compute_capability", "most_shared_memory"]

# Letters mark what only this architecture has (`sm_90a`).
_ARCHITECTURE = re.compile(r"sm_(\d+)[a-z]?")
# From this capability on, all shared memory of a multiprocessor but what the system keeps for a
# block may be one block's ("Technical Specifications per Compute Capability" of CUDA's guide).
_AMPERE, _RESERVED_BYTES = 80, 1024


def compute_capability(processor: str) -> int:
    """The compute capability in NVIDIA's name of an architecture: 80 of ``sm_80``; else 0."""
    found = _ARCHITECTURE.fullmatch(processor)
    return int(found.group(1)) if found else 0


def most_shared_memory(target: Target) -> int:
    """Bytes of shared memory that a block may have where it asks for them when it is launched.

    At least ``shared_memory_bytes``, which a block has without asking.
    """
    if compute_capability(target.processor) < _AMPERE:
        return target.shared_memory_bytes
    requested = target.shared_memory_per_multiprocessor - _RESERVED_BYTES
    return max(target.shared_memory_bytes, requested)
