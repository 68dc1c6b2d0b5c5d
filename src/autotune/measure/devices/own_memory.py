"""Memory and contexts that this process keeps on CUDA devices, which do not make them busy."""

from __future__ import annotations

import sys
from typing import Any

from autotune.measure.devices.shared import kept_bytes

__all__ = ["held_bytes"]

# A context, with the code of libraries that is loaded into it.
_CONTEXT_BYTES = 1 << 30


def held_bytes() -> dict[int, int]:
    """Bytes of each device that torch and tuned programs keep in this process, by its number.

    Of torch, which is not imported here, that is what its allocator has reserved.
    """
    found = kept_bytes()
    for index, size in _reserved_by_torch(sys.modules.get("torch")).items():
        found[index] = found.get(index, 0) + size
    return {index: size + _CONTEXT_BYTES for index, size in found.items()}


def _reserved_by_torch(torch: Any) -> dict[int, int]:
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return {}
    reserved = {index: cuda.memory_reserved(index) for index in range(cuda.device_count())}
    current = cuda.current_device()
    return {index: size for index, size in reserved.items() if size or index == current}
