"""Wrong and random arguments for PAM features."""

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

COLUMNS, ACCESSES, BUFFER_WIDTH = 164, 8, 15


def table(rng: np.random.Generator, rows: int, *limits: int) -> np.ndarray:
    """int32 ``[rows, len(limits)]``, every column below its limit."""
    return np.stack([rng.integers(0, limit, rows) for limit in limits], axis=1).astype(np.int32)


def _sorted(rows: np.ndarray) -> np.ndarray:
    """By the statement in the first column, as a plan wants it."""
    return np.ascontiguousarray(rows[np.argsort(rows[:, 0], kind="stable")])


def plan_arguments(rng: np.random.Generator) -> dict[str, Any] | None:
    """Arguments of a ``PamPlan`` that it accepts; None where its program was refused."""
    tape = tape_arguments(rng)
    program = attempt(native.TapeProgram, tape)
    outputs = len(tape["outputs"])
    if program is None or outputs == 0:
        return None
    statements = int(rng.integers(1, 5))
    rows = np.where(rng.random(statements) < 0.3, -1, 0).astype(np.int32)
    rows[rows == 0] = rng.permutation(np.count_nonzero(rows == 0))
    columns = int(rng.integers(0, 20))
    described = np.sort(rng.integers(0, statements, int(rng.integers(0, 9))))
    buffers = table(rng, len(described), statements, 3, 9, *[outputs] * (BUFFER_WIDTH - 3))
    buffers[:, 0] = described
    loops = table(rng, int(rng.integers(0, 9)), statements, *[outputs] * 3)
    loops = _sorted(loops)
    accesses = table(rng, ACCESSES, len(buffers) + 1, 3, outputs + 1)
    accesses[:, [0, 2]] -= 1
    return {
        "program": program,
        "rows": rows,
        "operations": numbers(rng, (statements,)),
        "columns": _sorted(table(rng, columns, statements, COLUMNS, outputs, 2)),
        "scales": numbers(rng, (columns,)),
        "buffers": buffers,
        "loops": loops,
        "accesses": accesses,
        "access_operations": numbers(rng, (ACCESSES,)),
        "operations_squared": bool(rng.integers(2)),
    }


def test_features_survive() -> None:
    planned = evaluated = 0
    for seed in range(4 * CASES):
        rng = np.random.default_rng(seed)
        arguments = plan_arguments(rng)
        plan = attempt(native.PamPlan, mutated(rng, arguments)) if arguments else None
        del arguments  # The plan must not need the program that it was made from.
        if plan is None:
            continue
        planned += 1
        matrix = integers(rng, (row_count(rng), plan.inputs), extreme=0.02)
        made = mutated(rng, {"matrix": matrix, "threads": thread_count(rng)})
        result = attempt(plan.evaluate, made)
        if result is not None:
            features, flow = result
            assert features.shape[1:] == (plan.rows, COLUMNS)
            assert flow.shape[:2] == (len(features), ACCESSES)
            evaluated += 1
    assert planned > CASES / 2 and evaluated > CASES / 8
