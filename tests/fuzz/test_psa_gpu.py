"""Wrong and random arguments for PSA on GPUs."""

from __future__ import annotations

import numpy as np
import pytest
from fuzzing import (
    CASES,
    attempt,
    integers,
    mutated,
    numbers,
    row_count,
    simd_level,
    tape_arguments,
    thread_count,
)

from autotune import _native as native

# Symbols of a group, and numbers that describe a GPU, of either arithmetic.
SHAPES = {"published": 6, "corrected": 18}


def scorer(rng: np.random.Generator, arithmetic: str) -> object:
    """A scorer of a GPU of random numbers; None where they were refused."""
    for length in range(4, 32):
        gpu = numbers(rng, (length,), extreme=0.02).tolist()
        level = simd_level(rng)
        arguments = {"arithmetic": arithmetic, "gpu": gpu}
        # A processor that lacks the level refuses it.
        for simd in (level, "best"):
            made = attempt(native.PsaGpu, mutated(rng, {**arguments, "simd": simd}))
            if made is not None:
                return made
    return None


@pytest.mark.parametrize("arithmetic", SHAPES)
def test_scores_of_symbols_survive(arithmetic: str) -> None:
    scored = 0
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        psa = scorer(rng, arithmetic)
        if psa is None:
            continue
        groups = int(rng.integers(0, 5))
        symbols = numbers(rng, (row_count(rng), groups * SHAPES[arithmetic]))
        arguments = {"symbols": symbols, "threads": thread_count(rng)}
        result = attempt(psa.score_symbols, mutated(rng, arguments))  # type: ignore[attr-defined]
        scored += result is not None
    assert scored > CASES / 8


@pytest.mark.parametrize("arithmetic", SHAPES)
def test_scores_of_tapes_survive(arithmetic: str) -> None:
    scored = 0
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        psa = scorer(rng, arithmetic)
        tape = tape_arguments(rng)
        wanted = SHAPES[arithmetic] * int(rng.integers(0, 3))
        maxima = numbers(rng, (int(rng.integers(0, 4)),)).tolist()
        if len(tape["outputs"]):
            tape["outputs"] = np.resize(tape["outputs"], wanted + len(maxima))
        program = attempt(native.TapeProgram, tape)
        if psa is None or program is None:
            continue
        arguments = {
            "program": program,
            "matrix": integers(rng, (row_count(rng), program.inputs)),
            "maxima": maxima,
            "threads": thread_count(rng),
        }
        scored += attempt(psa.score, mutated(rng, arguments)) is not None  # type: ignore[attr-defined]
    assert scored > CASES / 16
