"""A warp in numpy: ``ldmatrix`` and ``mma.sync`` on the registers of 32 lanes.

Written from the figures of the PTX ISA, by register names (a0, a1, ...; b0, ...; c0, ...), not
from the library's fragments, which it is there to check. Registers are arrays [32, elements].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LANES = 32
_ROW_BYTES = 16


def load_matrices(memory: Array, starts: Sequence[int], *, transposed: bool = False) -> Array:
    """``ldmatrix.sync.aligned.m8n8.xN[.trans].shared.b16`` from flat ``memory``.

    Lanes 8m to 8m + 7 give the places, in elements, at which the rows of matrix m begin.
    Returns what every lane has then, register by register.
    """
    wide = _ROW_BYTES // memory.itemsize
    word = 4 // memory.itemsize
    count = len(starts) // 8
    result = np.zeros((LANES, count * word), memory.dtype)
    for matrix in range(count):
        rows = np.stack([memory[start : start + wide] for start in starts[8 * matrix :][:8]])
        for lane in range(LANES):
            own = slice(matrix * word, (matrix + 1) * word)
            if transposed:
                # Elements of 16 bits: those of column `lane / 4`, in two rows.
                result[lane, own] = rows[2 * (lane % 4) :, lane // 4][:2]
            else:
                first = lane % 4 * word
                result[lane, own] = rows[lane // 4, first : first + word]
    return result


def multiply(kind: str, a: Array, b: Array, c: Array) -> Array:
    """``mma.sync.aligned.m16n8kK.row.col``: what the accumulators of all lanes are afterwards.

    ``kind`` is the type of the factors: ``f16`` or ``bf16`` (K = 16), ``tf32`` (8), ``s8`` (32).
    """
    left, right = np.zeros((16, _DEPTH[kind]), c.dtype), np.zeros((_DEPTH[kind], 8), c.dtype)
    sums = np.zeros((16, 8), c.dtype)
    for lane in range(LANES):
        group, member = lane // 4, lane % 4
        for i in range(a.shape[1]):
            left[_place_a(kind, group, member, i)] = a[lane, i]
        for i in range(b.shape[1]):
            right[_place_b(kind, group, member, i)] = b[lane, i]
        for i in range(4):
            sums[_place_c(group, member, i)] = c[lane, i]
    sums = sums + left @ right
    result = np.zeros_like(c)
    for lane in range(LANES):
        for i in range(4):
            result[lane, i] = sums[_place_c(lane // 4, lane % 4, i)]
    return result


_DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "s8": 32}


def _place_a(kind: str, group: int, member: int, i: int) -> tuple[int, int]:
    if kind in ("f16", "bf16"):
        row = group if i < 2 or 4 <= i < 6 else group + 8
        return row, member * 2 + (i & 1) + (8 if i >= 4 else 0)
    if kind == "tf32":
        return (group if i in (0, 2) else group + 8), (member if i < 2 else member + 4)
    row = group if i < 4 or 8 <= i < 12 else group + 8
    return row, member * 4 + (i & 3) + (16 if i >= 8 else 0)


def _place_b(kind: str, group: int, member: int, i: int) -> tuple[int, int]:
    if kind in ("f16", "bf16"):
        return member * 2 + (i & 1) + (8 if i >= 2 else 0), group
    if kind == "tf32":
        return (member if i == 0 else member + 4), group
    return member * 4 + (i & 3) + (16 if i >= 4 else 0), group


def _place_c(group: int, member: int, i: int) -> tuple[int, int]:
    return (group if i < 2 else group + 8), member * 2 + (i & 1)
