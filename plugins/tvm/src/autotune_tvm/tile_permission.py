"""Linux's permission to use the tile registers of AMX.

A process that uses them without having asked is killed (SIGILL). Threads and forked processes
inherit the permission; a program that is started anew does not. This needs no TVM, so that
processes that only run programs can ask, too.
"""

from __future__ import annotations

import ctypes

__all__ = ["ask_for_tiles"]

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def ask_for_tiles() -> bool:
    """Ask Linux for the tile registers, for all threads of this process; False if refused."""
    return int(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)) == 0
