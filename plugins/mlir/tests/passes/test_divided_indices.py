"""Reductions at quotients and remainders: what is constant in their loops, and in their lanes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.scripted import scheduled_text
from divided_reductions import fractional_convolution, grouped_convolution, multiplied_channels
from hypothesis import given, settings
from hypothesis import strategies as st
from mlir_schedules import candidates

from autotune.ir.workloads import Workload
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target, detect_cpu, preset
from autotune.testing.programs import check_candidate, request_for


@pytest.mark.parametrize(
    "workload",
    [
        fractional_convolution(),
        fractional_convolution(strides=(1, 3), taps=(3, 5), extents=(4, 6)),
        grouped_convolution(groups=2, inside=3, out=32),
        multiplied_channels(),
    ],
    ids=["fractional", "other strides", "grouped", "multiplied"],
)
def test_no_lane_reads_by_itself(workload: Workload, backend: MLIRBackend, target: Target) -> None:
    for candidate in candidates(workload, target, 4, draws=40):
        assert "vector.gather" not in scheduled_text(request_for(candidate, target))
        check_candidate(backend, candidate, target)


@pytest.mark.parametrize(("machine", "lanes"), [("haswell-2core", 8), ("zen4-2core", 16)])
def test_guards_are_dropped_where_channels_are_padded_to_twice_as_many(
    machine: str, lanes: int
) -> None:
    target = preset(machine)
    workload = fractional_convolution(extents=(8, 6), channels=3, out=lanes + 1)
    drawn = candidates(workload, target, 3)
    found = [it for it in drawn if it.config.get("Y.c.extent") == 2 * lanes]
    assert found
    for candidate in found:
        text = scheduled_text(request_for(candidate, target))
        assert not any(kind in text for kind in ("arith.remui", "arith.andi", "cmpi eq"))


@settings(max_examples=12, deadline=None)
@given(
    extents=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    taps=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    out=st.sampled_from((5, 16, 17, 23, 31)),
    seed=st.integers(0, 1000),
)
def test_fractional_strides_compute_what_the_workload_says(
    extents: tuple[int, int], strides: tuple[int, int], taps: tuple[int, int], out: int, seed: int
) -> None:
    backend, target = MLIRBackend(), detect_cpu()
    workload = fractional_convolution(extents, strides, taps, 3, out)
    space = SketchSpace(workload, target, backend.limits(target))
    for candidate in space.sample(2, np.random.default_rng(seed)):
        check_candidate(backend, candidate, target)


def test_products_with_zeros_between_elements_are_dropped(target: Target) -> None:
    """So are the guards; each vector of a tile is written once."""
    for candidate in candidates(fractional_convolution(), target, 4, draws=40):
        text = scheduled_text(request_for(candidate, target))
        assert not any(kind in text for kind in ("arith.remui", "arith.andi", "cmpi eq"))
        if candidate.config.get("Y.c.extent", 16) > 16:
            continue  # Tiles begin at multiples of quotients, and vectors are written in parts.
        assert not any(kind in text for kind in ("arith.select", "arith.cmpi"))
        config = candidate.config
        taps = math.prod(config[f"Y.{axis}.1"] for axis in "abk")
        tile = math.prod(config[f"Y.{axis}.2"] for axis in "hwc")
        stores = text.count("vector.transfer_write")
        assert stores <= tile + 3
        assert 0 < text.count("arith.mulf") < taps * tile
