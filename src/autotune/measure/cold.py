"""Emptying the caches, so that a sample is of a program whose data are in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from autotune import _native
from autotune.backends.backend import Array
from autotune.errors import InvalidValueError
from autotune.targets import Cache, detect_cpu

__all__ = ["CacheFlusher"]

_MOST_BYTES = 128 << 20
# A cache that is twice as large as another does not fit into it, however it is replaced.
_TIMES = 2


class CacheFlusher:
    """Evicts data from the caches of the CPUs that programs are timed on.

    Two things are done, because neither is enough:

    - The lines of the program's arrays are flushed by name. That empties every cache of every
      core, also a last level that is shared with other machines and too large to be displaced.
    - Each CPU reads through a buffer of twice its own caches, and all together of twice the
      last level, up to 128 MiB. That displaces what has no name here: code, stacks, memory that
      the program allocates itself, translations of addresses.

    Args:
        cpus: Logical CPUs that programs are timed on.
        caches: Levels of cache of one of them; those of this machine unless given.

    Raises:
        InvalidValueError: no CPU is given.
    """

    def __init__(self, cpus: Sequence[int], caches: Sequence[Cache] | None = None) -> None:
        self._cpus = sorted(set(cpus))
        if not self._cpus:
            raise InvalidValueError("caches cannot be flushed for no CPU at all")
        levels = detect_cpu().caches if caches is None else caches
        private = max((level.size_bytes for level in levels if not level.shared), default=0)
        shared = max((level.size_bytes for level in levels if level.shared), default=0)
        wanted = _TIMES * max(shared, private * len(self._cpus))
        self._each = _TIMES * private
        # Ones and not zeros: untouched pages of zeros would all be the same page.
        self._buffer = np.ones(min(max(wanted, 4096), _MOST_BYTES), np.uint8)

    @property
    def buffer_bytes(self) -> int:
        """Size of the buffer that is read through."""
        return len(self._buffer)

    def flush(self, arrays: Iterable[Array]) -> None:
        """Make ``arrays`` and, as far as said above, everything else cold.

        Their contents stay as they are. Costs about 40 ms per GB of arrays and 0.1 ms per MB of
        the buffer.

        Raises:
            InvalidValueError: an array is not contiguous.
        """
        for array in arrays:
            if not array.flags.c_contiguous:
                raise InvalidValueError(f"an array of shape {array.shape} is not contiguous")
            _native.flush_memory(array.reshape(-1).view(np.uint8))
        # Last: to flush a line its address was translated.
        _native.stream_memory(self._buffer, self._cpus, self._each)
