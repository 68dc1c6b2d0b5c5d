"""Wrong and random arguments for the evaluation of tapes."""

from __future__ import annotations

import numpy as np
from fuzzing import CASES, attempt, integers, mutated, row_count, tape_arguments, thread_count

from autotune import _native as native


def test_tapes_survive() -> None:
    evaluated = 0
    for seed in range(4 * CASES):
        rng = np.random.default_rng(seed)
        program = attempt(native.TapeProgram, mutated(rng, tape_arguments(rng)))
        if program is None:
            continue
        rows = row_count(rng)
        matrix = integers(rng, (rows, min(program.inputs, 1000)))
        arguments = {"matrix": matrix, "threads": thread_count(rng)}
        result = attempt(program.evaluate, mutated(rng, arguments))
        if result is not None:
            assert result.dtype == np.int64 and result.shape[1] == program.outputs
            evaluated += 1
    assert evaluated > CASES / 4


def test_operations_and_slots_are_checked() -> None:
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        arguments = tape_arguments(rng)
        slots = arguments["inputs"] + len(arguments["constants"]) + len(arguments["operations"])
        for wrong in (-1, slots, slots + 64, 2**31 - 1, -(2**31)):
            outputs = np.append(arguments["outputs"], np.int32(wrong)).astype(np.int32)
            assert attempt(native.TapeProgram, {**arguments, "outputs": outputs}) is None
        if len(arguments["operations"]):
            operations = arguments["operations"].copy()
            operations[int(rng.integers(len(operations)))] = rng.integers(8, 256)
            assert attempt(native.TapeProgram, {**arguments, "operations": operations}) is None
