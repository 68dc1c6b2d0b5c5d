"""Values in one piece of memory, which those that are never needed at the same time share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np

__all__ = ["place_values", "rounded"]

Key = TypeVar("Key", str, int)


def place_values(
    sizes: Mapping[Key, int], lives: Mapping[Key, tuple[int, int]], alignment: int
) -> tuple[dict[Key, int], int]:
    """Offsets of values in one piece of memory, and its size.

    The largest is placed first, each at the lowest offset that is free for as long as it is
    needed.

    Args:
        sizes: Bytes of each value.
        lives: First and last moment that each is needed at, both included.
        alignment: Of every offset, in bytes.
    """
    names = sorted(sizes, key=lambda it: (-sizes[it], it))
    first, last = (np.array([lives[it][end] for it in names], np.int64) for end in (0, 1))
    begins, ends = (np.zeros(len(names), np.int64) for _ in range(2))
    for number, name in enumerate(names):
        size = rounded(sizes[name], alignment)
        meet = (first[:number] <= last[number]) & (last[:number] >= first[number])
        others = begins[:number][meet].tolist(), ends[:number][meet].tolist()
        taken = sorted(zip(*others, strict=True))
        begins[number] = _lowest_gap(taken, size)
        ends[number] = begins[number] + size
    return dict(zip(names, begins.tolist(), strict=True)), int(ends.max(initial=0))


def _lowest_gap(taken: Iterable[tuple[int, int]], size: int) -> int:
    offset = 0
    for begin, end in taken:
        if offset + size <= begin:
            return offset
        offset = max(offset, end)
    return offset


def rounded(size: int, alignment: int) -> int:
    """A multiple of the alignment that is at least as large, and not 0."""
    return max(1, -(-size // alignment)) * alignment
