"""Random tapes for fuzzing, as the arrays that the native programs are made from."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzzing import integers, simd_level

OPERATION_COUNT = 8


def tape_arguments(rng: np.random.Generator, *, inputs: int | None = None) -> dict[str, Any]:
    """Arguments of a ``TapeProgram`` that it accepts, unless the level is not available."""
    count = int(rng.integers(0, 7)) if inputs is None else inputs
    constants = integers(rng, (int(rng.integers(0, 6)),))
    length = int(rng.integers(0, 40))
    known = count + len(constants)
    if known == 0:
        length = 0
    operands = np.zeros((length, 3), np.int32)
    for index in range(length):
        operands[index] = rng.integers(0, known + index, 3)
    slots = known + length
    outputs = rng.integers(0, slots, int(rng.integers(0, 9))) if slots else np.zeros(0)
    return {
        "inputs": count,
        "constants": constants,
        "operations": rng.integers(0, OPERATION_COUNT, length).astype(np.uint8),
        "operands": operands,
        "outputs": outputs.astype(np.int32),
        "simd": simd_level(rng),
    }


def row_count(rng: np.random.Generator) -> int:
    """Numbers of rows around the size of a block, and none."""
    return int(rng.choice([0, 1, 2, 63, 64, 65, 130, 200]))


def thread_count(rng: np.random.Generator) -> int:
    """A few threads."""
    return int(rng.integers(1, 5))
