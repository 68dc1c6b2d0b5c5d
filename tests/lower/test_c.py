"""Programs that are printed as C compute what the reference does, whatever compiler takes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from c_programs import compiled
from indexed_workloads import chosen_elements
from written import written

from autotune.backends.backend import Array
from autotune.backends.native import NativeBackend
from autotune.backends.native.exports import machine_of
from autotune.ir.workloads import (
    Workload,
    attention,
    batch_matmul,
    conv1d,
    conv2d,
    conv3d,
    cumsum,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.lower import CEmitter, print_candidate
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.targets import preset
from autotune.testing.programs import check_executable, run_executable

COMPILERS = [
    pytest.param(name, marks=pytest.mark.needs(name), id=name) for name in ("gcc", "clang")
]

# Odd sizes, so that there are masks, tails, and vectors of several lengths.
WORKLOADS = (
    *(gemm(m=7, n=24, k=13, dtype=dtype) for dtype in ("float32", "float16", "bfloat16")),
    *(gemm(m=6, n=16, k=5, dtype=dtype) for dtype in ("float64", "int8", "u8s8s32")),
    batch_matmul(b=2, m=5, n=16, k=7),
    dense(m=5, n=17, k=9, bias=1, relu=1),
    conv1d(w=7, ci=3, co=8, pad=1),
    conv2d(h=5, w=6, ci=3, co=8, pad=1),
    conv3d(d=3, h=4, w=3, ci=2, co=8, pad=1),
    depthwise_conv2d(h=6, w=6, c=8, pad=1),
    softmax(m=3, n=33),
    softmax(m=3, n=17, dtype="float64"),
    elementwise(m=5, n=31, dtype="bfloat16"),
    cumsum(m=3, n=17),
    attention(h=2, n=8, m=12, d=5),
    attention(h=2, n=8, d=5, causal=1),
    chosen_elements(),
)


def drawn(workload: Workload, seed: int) -> Candidate:
    """A candidate of any sketch for 8 lanes."""
    target = preset("haswell-2core")
    space = SketchSpace(workload, target, NativeBackend().limits(target))
    sketches = len(space.sketches())
    return list(space.sample(sketches, np.random.default_rng(seed)))[seed % sketches]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_builder_computes_what_the_reference_does(compiler: str, tmp_path: Path) -> None:
    candidates = [drawn(workload, seed) for seed, workload in enumerate(WORKLOADS)]
    machine = machine_of(preset("haswell"))
    for candidate, executable in zip(
        candidates, compiled(candidates, machine, compiler, tmp_path), strict=True
    ):
        workload = candidate.sketch.workload
        check_executable(executable, workload, about=f"{workload.name} {candidate.sketch.name}")


def cast(source: str, dtype: str, count: int) -> Candidate:
    """The workload that converts numbers."""
    workload = written(f"X[i]: {source}", f"Y[i]: {dtype} = {dtype}(X[i])", i=count)
    return drawn(workload, 0)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_half_precision_is_converted_as_by_the_standard(compiler: str, tmp_path: Path) -> None:
    """All numbers of 16 bits, and those on and beside the middle between two of them."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        wide = halves.astype(np.float32)
        middle = ((halves.astype(np.float64) + np.roll(halves, 1)) / 2).astype(np.float32)
        singles = np.concatenate(
            [middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)]
        ).astype(np.float32)
        narrow = singles.astype(np.float16)
    candidates = [
        cast("float16", "float32", halves.size),
        cast("float32", "float16", singles.size),
    ]
    made = compiled(candidates, machine_of(preset("haswell")), compiler, tmp_path)
    wanted: tuple[Array, ...] = (wide, narrow)
    for candidate, executable, given, expected in zip(
        candidates, made, (halves, singles), wanted, strict=True
    ):
        (found,) = run_executable(executable, candidate.sketch.workload, {"X": np.asarray(given)})
        np.testing.assert_array_equal(found, expected)


def test_vectors_are_no_wider_than_registers() -> None:
    """GCC compares wider ones lane by lane."""
    workload = softmax(m=8, n=128)
    target = preset("haswell-2core")
    space = SketchSpace(workload, target, NativeBackend().limits(target))
    wide = [sketch for sketch in space.sketches() if "wide" in sketch.name]
    assert wide
    for sketch in wide:
        candidate = next(
            it
            for it in space.sample(64, np.random.default_rng(0))
            if it.sketch.digest == sketch.digest
        )
        text = str(print_candidate(candidate, CEmitter("f", 8), 8).text)
        assert "f32x8" in text
        assert "f32x16" not in text


def test_the_same_candidate_gives_the_same_text() -> None:
    candidate = drawn(WORKLOADS[0], 1)
    texts = {str(print_candidate(candidate, CEmitter("f", 8), 8).text) for _ in range(2)}
    assert len(texts) == 1
