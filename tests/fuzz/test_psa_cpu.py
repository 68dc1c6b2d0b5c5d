"""Wrong and random arguments for PSA on CPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzzing import (
    CASES,
    attempt,
    integers,
    mutated,
    numbers,
    row_count,
    tape_arguments,
    thread_count,
)

from autotune import _native as native

MACHINE_VALUES = 25


def statement_arguments(rng: np.random.Generator, outputs: int) -> dict[str, Any]:
    """Arguments of a ``CpuStatement`` that a model over so many outputs accepts."""
    loops, buffers = int(rng.integers(0, 9)), int(rng.integers(1, 6))

    def columns(*shape: int) -> np.ndarray:
        return rng.integers(0, outputs, shape).astype(np.int32)

    def flags(count: int) -> np.ndarray:
        return rng.integers(0, 2, count).astype(np.uint8)

    tables = ("regions", "rows", "lines", "apart", "traffic")
    return {
        "extents": columns(loops),
        "parallel": flags(loops),
        "remains": flags(loops),
        "reduces": flags(loops),
        "vector": int(rng.integers(-1, loops)) if loops else -1,
        "declared": bool(rng.integers(2)),
        "work": float(rng.integers(0, 20)),
        "calls": float(rng.integers(0, 20)),
        "body": int(rng.integers(0, loops + 1)),
        "lanes": float(rng.choice([1, 4, 16])),
        "narrow": float(rng.choice([1, 4, 8])),
        **{name: columns(buffers, loops + 1) for name in tables},
        "element_bytes": rng.choice([1, 4, 8], buffers).astype(np.int32),
        "meets": rng.integers(0, 3, buffers).astype(np.uint8),
        "written": int(rng.integers(0, buffers)),
        "aligned": columns(buffers) - np.int32(rng.integers(0, 2)),
        "divided": columns(buffers),
        "early": int(rng.integers(-1, outputs)),
        "hides": bool(rng.integers(2)),
    }


def test_cycles_survive() -> None:
    made = evaluated = 0
    for seed in range(3 * CASES):
        rng = np.random.default_rng(seed)
        tape = tape_arguments(rng)
        program = attempt(native.TapeProgram, tape)
        if program is None or program.outputs == 0:
            continue
        statements = [
            attempt(native.CpuStatement, mutated(rng, statement_arguments(rng, program.outputs)))
            for _ in range(int(rng.integers(0, 4)))
        ]
        arguments = {
            "program": program,
            "statements": [statement for statement in statements if statement is not None],
            "program_bytes": float(numbers(rng, ())),
            "nests": float(rng.integers(0, 4)),
            "machine": numbers(rng, (MACHINE_VALUES,)),
        }
        model = attempt(native.PsaCpu, mutated(rng, arguments))
        matrix = integers(rng, (row_count(rng), program.inputs), extreme=0.02)
        del arguments, program  # The model must not need what it was made from.
        if model is None:
            continue
        made += 1
        given = mutated(rng, {"matrix": matrix, "threads": thread_count(rng)})
        result = attempt(model.cycles, given)
        if result is not None:
            assert result.dtype == np.float64 and result.ndim == 1
            evaluated += 1
    assert made > CASES / 4 and evaluated > CASES / 8
