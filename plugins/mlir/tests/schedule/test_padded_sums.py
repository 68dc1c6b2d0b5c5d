"""Reductions over padding in the loops of other stages."""

from __future__ import annotations

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.scripted import scheduled_text
from hypothesis import given, settings
from hypothesis import strategies as st
from mlir_schedules import candidates
from poolings import average_pooling, padded_pooling

from autotune.ir.workloads import Workload
from autotune.sketches import names_used
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target, detect_cpu, preset
from autotune.testing.programs import check_candidate, request_for


@pytest.mark.parametrize("channels", [16, 48])
def test_sums_of_windows_are_in_vectors(
    channels: int, backend: MLIRBackend, target: Target
) -> None:
    workload = average_pooling(channels=channels)
    for candidate in candidates(workload, target, 2):
        text = scheduled_text(request_for(candidate, target))
        assert "tensor.pad" not in text
        assert "arith.addf" in text and ": vector<16xf32>" in text
        # The sums begin in a loop, and not as one vector of all of them.
        assert f"vector<1x5x5x{channels}xf32>" not in text
        check_candidate(backend, candidate, target)


def test_channels_that_are_padded_stay_elements(backend: MLIRBackend, target: Target) -> None:
    """Lanes of a vector would be shifted, and some of them in the margin."""
    for candidate in candidates(average_pooling(margin=16), target, 1):
        assert "tensor.pad" in scheduled_text(request_for(candidate, target))
        check_candidate(backend, candidate, target)


@pytest.mark.parametrize("target", ["avx2", "avx512"])
def test_no_stage_that_pads_moves_into_a_loop(target: str, backend: MLIRBackend) -> None:
    limits = backend.limits(preset(target))
    space = SketchSpace(average_pooling(), preset(target), limits)
    assert not any("fuse_producer.padding" in names_used(it) for it in space.sketches())


@st.composite
def poolings(draw: st.DrawFn) -> Workload:
    pad = draw(st.integers(0, 2))
    kernel = draw(st.integers(pad + 1, pad + 3))
    extent = draw(st.sampled_from((3, 5, 7, 8, 11)))
    channels = draw(st.sampled_from((1, 3, 8, 17, 32)))
    margin, images = draw(st.sampled_from((0, 0, 1))), draw(st.integers(1, 2))
    return average_pooling(extent, channels, kernel, draw(st.integers(1, 3)), pad, margin, images)


@settings(max_examples=12, deadline=None)
@given(workload=poolings(), seed=st.integers(0, 1000))
def test_poolings_are_what_the_workload_says(workload: Workload, seed: int) -> None:
    backend, target = MLIRBackend(), detect_cpu()
    space = SketchSpace(workload, target, backend.limits(target))
    for candidate in space.sample(3, np.random.default_rng(seed)):
        check_candidate(backend, candidate, target)


@pytest.mark.parametrize("margin", [0, 1])
@pytest.mark.parametrize("combiner", ["max", "add"])
def test_padded_extents_of_padded_images_are_replayed(
    combiner: str, margin: int, backend: MLIRBackend, target: Target
) -> None:
    """Margins of another number, and of channels, are in the loops of what pads extents."""
    workload = padded_pooling(combiner, margin=margin)
    seen = set()
    for candidate in candidates(workload, target, 2):
        check_candidate(backend, candidate, target)
        seen.add(candidate.sketch.name)
    assert {"plain-outer", "plain-rows"} <= seen


@settings(max_examples=12, deadline=None)
@given(
    combiner=st.sampled_from(("max", "add")),
    extent=st.sampled_from((3, 5, 8, 11)),
    channels=st.sampled_from((1, 3, 16, 17, 32)),
    pad=st.integers(0, 2),
    margin=st.integers(0, 2),
    stride=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_padded_poolings_are_what_the_workload_says(
    combiner: str, extent: int, channels: int, pad: int, margin: int, stride: int, seed: int
) -> None:
    backend, target = MLIRBackend(), detect_cpu()
    kernel = pad + 1
    margin = margin or int(pad == 0)
    workload = padded_pooling(combiner, extent, channels, kernel, stride, pad, margin)
    space = SketchSpace(workload, target, backend.limits(target))
    for candidate in space.sample(3, np.random.default_rng(seed)):
        check_candidate(backend, candidate, target)
