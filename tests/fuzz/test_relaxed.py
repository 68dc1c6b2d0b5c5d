"""Wrong and random arguments for relaxed tapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fuzzing import CASES, attempt, mutated, numbers, row_count, tape_arguments, thread_count

from autotune import _native as native

FORM_COUNT = 17


def relaxed_arguments(rng: np.random.Generator) -> dict[str, Any]:
    tape = tape_arguments(rng)
    return {
        "inputs": tape["inputs"],
        "constants": numbers(rng, tape["constants"].shape),
        "forms": rng.integers(0, FORM_COUNT, len(tape["operations"])).astype(np.uint8),
        "operands": tape["operands"],
        "outputs": tape["outputs"],
        "temperature": float(np.exp2(rng.uniform(-4, 2))),
        "epsilon": float(np.exp2(rng.uniform(-6, 0))),
        "half_step": bool(rng.integers(2)),
        "simd": tape["simd"],
    }


def test_relaxed_tapes_survive() -> None:
    evaluated = differentiated = 0
    for seed in range(4 * CASES):
        rng = np.random.default_rng(seed)
        program = attempt(native.RelaxedProgram, mutated(rng, relaxed_arguments(rng)))
        if program is None:
            continue
        points = numbers(rng, (row_count(rng), min(program.inputs, 1000)))
        threads = thread_count(rng)
        values = attempt(program.values, mutated(rng, {"points": points, "threads": threads}))
        cotangents = numbers(rng, (len(points), program.outputs))
        arguments = {"points": points, "cotangents": cotangents, "threads": threads}
        gradients = attempt(program.vector_jacobian, mutated(rng, arguments))
        if values is not None:
            assert values.dtype == np.float64 and values.shape[1] == program.outputs
            evaluated += 1
        if gradients is not None:
            assert gradients.dtype == np.float64 and gradients.shape[1] == program.inputs
            differentiated += 1
    assert min(evaluated, differentiated) > CASES / 4


def test_numbers_at_odd_addresses_are_refused() -> None:
    nothing = np.zeros(0)
    program = native.RelaxedProgram(
        1,
        nothing,
        nothing.astype(np.uint8),
        np.zeros((0, 3), np.int32),
        np.zeros(1, np.int32),
        0.25,
        0.1,
        False,
    )
    points = np.arange(5.0)[:, None]
    assert program.values(points).tolist() == points.tolist()
    odd = np.frombuffer(b"\0" + points.tobytes(), np.uint8)[1:].view(np.float64)[:, None]
    with pytest.raises(TypeError):
        program.values(odd)
