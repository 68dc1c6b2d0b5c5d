"""Places at which the excess of signed dot products is added up."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.backends.native import NativeBackend
from autotune.ir.workloads import Workload, conv2d, gemm
from autotune.nest import LoopNest, derive_nest
from autotune.nest.corrections import with_corrections
from autotune.spaces import SketchSpace
from autotune.targets import preset

TARGET = preset("cascadelake-1core")
PRODUCT = gemm(m=16, n=40, k=12, dtype="int8")


def nests_of(workload: Workload) -> list[LoopNest]:
    """Nests of all sketches, before corrections."""
    space = SketchSpace(workload, TARGET, NativeBackend().limits(TARGET))
    drawn = space.sample(2 * len(space.sketches()), np.random.default_rng(0))
    return [derive_nest(it) for it in {it.sketch.digest: it.sketch for it in drawn}.values()]


def excess_of(nest: LoopNest) -> list[str]:
    return [it.name for it in nest.buffers if it.name.endswith(".excess")]


@pytest.mark.parametrize("workload", [PRODUCT, conv2d(h=5, w=5, ci=8, co=24, pad=1, dtype="int8")])
def test_sums_start_with_what_is_added_up_behind_the_copy(workload: Workload) -> None:
    for nest in nests_of(workload):
        corrected = with_corrections(nest)
        (buffer,) = excess_of(corrected)
        names = [it.name for it in corrected.statements]
        at = names.index(buffer)
        assert names[at - 2 : at] == [buffer.removesuffix(".excess"), f"{buffer}.init"]
        call = next(it for it in corrected.statements if it.intrinsic and it.name != buffer)
        start = next(it for it in corrected.statements if it.name == f"{call.stage}.init")
        assert names.index(start.name) > at
        assert any(it.buffer == buffer for it in start.accesses)


def test_constants_are_corrected_before_the_first_call() -> None:
    """However few rows there are: nobody waits for it."""
    for nest in nests_of(gemm(m=1, n=40, k=12, dtype="int8").with_constants("B")):
        corrected = with_corrections(nest)
        if nest.packing:
            names = [it.name for it in corrected.packing]
            assert names == ["B.pack", "B.pack.excess.init", "B.pack.excess"]


@pytest.mark.parametrize(
    "workload", [gemm(m=16, n=40, k=12, dtype="u8s8s32"), gemm(m=3, n=40, k=12, dtype="int8")]
)
def test_other_nests_stay_as_they_are(workload: Workload) -> None:
    """Nests without an excess, and those whose few rows are not worth another pass."""
    for nest in nests_of(workload):
        assert with_corrections(nest) is nest
