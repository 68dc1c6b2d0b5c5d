"""Tests of which copies of halves are kept in single precision."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.backends.native import NativeBackend
from autotune.ir.workloads import Workload, conv2d, gemm
from autotune.lower.copies import with_wide_copies
from autotune.nest import derive_nest
from autotune.spaces import SketchSpace
from autotune.targets import preset


def copies_of(workload: Workload, machine: str = "haswell-1core") -> set[tuple[str, str]]:
    """Names and element types of the packed copies of all sketches."""
    target = preset(machine)
    space = SketchSpace(workload, target, NativeBackend().limits(target))
    drawn = space.sample(2 * len(space.sketches()), np.random.default_rng(0))
    nests = [with_wide_copies(derive_nest(it.sketch)) for it in drawn]
    return {(it.name, it.dtype) for nest in nests for it in nest.buffers if "pack" in it.name}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_converted_wherever_it_is_read_is_converted_once(dtype: str) -> None:
    product = gemm(m=64, n=64, k=64, dtype=dtype)
    assert copies_of(product) == {("A.pack", "float32"), ("B.pack", "float32")}
    image = conv2d(h=16, w=16, ci=64, co=64, pad=1, dtype=dtype)
    assert copies_of(image) == {("P.pack", "float32"), ("W.pack", "float32")}


def test_what_few_rows_read_stays_half_as_large() -> None:
    assert ("B.pack", "float16") in copies_of(gemm(m=3, n=256, k=256, dtype="float16"))


def test_instructions_take_halves() -> None:
    found = copies_of(gemm(m=40, n=64, k=64, dtype="bfloat16"), "sapphirerapids-1core")
    assert {dtype for _, dtype in found} == {"bfloat16"}


def test_other_types_stay() -> None:
    assert {dtype for _, dtype in copies_of(gemm(m=64, n=64, k=64))} == {"float32"}
