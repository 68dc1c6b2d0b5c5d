"""Number of blocks that a multiprocessor is to hold, said to the compiler of a kernel.

Where that is not said, ptxas gives kernels on tensor cores few registers, so that more blocks fit:
it loads fragments right before the products that read them, in whatever order the source has the
two. With a number of blocks it takes the registers that these leave, and loads a step ahead.
"""

from __future__ import annotations

import math

from autotune.targets import Target

__all__ = ["resident_blocks"]

# What blocks share, of a target.
_SHARED = (
    "multiprocessors",
    "max_blocks_per_multiprocessor",
    "max_threads_per_multiprocessor",
    "registers_per_multiprocessor",
    "shared_memory_per_multiprocessor",
)
# Registers are given to threads by eights, and shared memory to blocks with so many bytes more.
_REGISTER_UNIT, _RESERVED_SHARED = 8, 1024


def resident_blocks(
    grid: tuple[int, ...], block: tuple[int, ...], registers: int, shared: int, target: Target
) -> int:
    """Blocks that a multiprocessor holds, of those there are; at least one.

    Args:
        grid: Blocks along each dimension.
        block: Threads of a block along each dimension.
        registers: What each thread needs.
        shared: Bytes of shared memory of a block.
        target: What the blocks share.

    Returns:
        Their number; 0 where the target does not say what they share.
    """
    if not all(getattr(target, name) for name in _SHARED):
        return 0
    threads = math.prod(block)
    held = math.ceil(registers / _REGISTER_UNIT) * _REGISTER_UNIT
    limits = (
        math.ceil(math.prod(grid) / target.multiprocessors),
        target.max_blocks_per_multiprocessor,
        target.max_threads_per_multiprocessor // threads,
        target.registers_per_multiprocessor // (held * threads),
        target.shared_memory_per_multiprocessor // (shared + _RESERVED_SHARED),
    )
    return max(1, min(limits))
