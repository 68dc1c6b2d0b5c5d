"""Arrays between guard pages: a program that strays ends."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import DTypeLike

from autotune.backends import ALIGNMENT, BoundCall, Executable
from autotune.backends.backend import Array
from autotune.ir.workloads import Workload

__all__ = ["guarded_calls", "guarded_empty"]

# On either side: what strays by a row or a tile does not step over it.
_GUARD = 1 << 20
_NO_ACCESS = 0


def guarded_empty(shape: Sequence[int], dtype: DTypeLike, *, at_end: bool) -> Array:
    """An aligned array of zeros; reads and writes beside it end in SIGSEGV.

    Args:
        shape: Its extents; it is in row-major order.
        dtype: Type of its elements.
        at_end: Whether what must not be touched begins where the array ends, but for what is
            missing to a multiple of the alignment; else it ends where the array begins. On the
            other side it is less than a page away.

    Raises:
        OSError: the system does not protect memory.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    length = _up(max(size, 1), mmap.PAGESIZE)
    memory = np.frombuffer(mmap.mmap(-1, _GUARD + length + _GUARD), np.uint8)
    for begin in (0, _GUARD + length):
        _protect(memory[begin : begin + _GUARD])
    first = _GUARD + (length - _up(size, ALIGNMENT) if at_end else 0)
    return memory[first : first + size].view(kind).reshape(tuple(shape))


def guarded_calls(
    executable: Executable, workload: Workload, inputs: Sequence[Array]
) -> Iterator[BoundCall]:
    """A program, bound to copies of ``inputs`` and to outputs, all of them guarded.

    First at their ends, then at their beginnings.

    Args:
        executable: The program.
        workload: Says what the outputs are.
        inputs: In the workload's order.
    """
    outputs = [workload.tensors[name] for name in workload.outputs]
    for at_end in (True, False):
        given = [guarded_empty(array.shape, array.dtype, at_end=at_end) for array in inputs]
        for copy, array in zip(given, inputs, strict=True):
            np.copyto(copy, array)
        results = [guarded_empty(it.shape, it.element.dtype, at_end=at_end) for it in outputs]
        yield executable.bind(given, results)


def _protect(memory: Array) -> None:
    """Make these pages inaccessible."""
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if protect(memory.ctypes.data, memory.nbytes, _NO_ACCESS) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
