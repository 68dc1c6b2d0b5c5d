"""Tests of which stages surround a tensor with a constant."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from poolings import average_pooling
from written import written

from autotune.ir.expressions import Binary, Constant, IndexValue, Select, var
from autotune.ir.workloads import (
    Padding,
    Workload,
    conv2d,
    gemm,
    padding_of_stage,
    reference_outputs,
)


@given(
    extents=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    margins=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=3),
    value=st.sampled_from((0.0, -1.5)),
)
def test_what_is_found_is_what_numpy_pads(
    extents: list[int], margins: list[tuple[int, int]], value: float
) -> None:
    widths = margins[: len(extents)]
    if not any(map(any, widths)):
        widths[0] = (1, 0)
    places = [
        (f"a{at}", low, n, high)
        for at, (n, (low, high)) in enumerate(zip(extents, widths, strict=True))
    ]
    axes = ", ".join(f"{name}:{low + n + high}" for name, low, n, high in places)
    inside = " and ".join(f"{it} >= {low} and {it} < {low + n}" for it, low, n, _ in places)
    read = ", ".join(f"{name} - {low}" for name, low, _, _ in places)
    source = f"X[{', '.join(map(str, extents))}]"
    workload = written(source, f"P[{axes}] = X[{read}] if {inside} else {value}")
    (stage,) = workload.stages
    found = padding_of_stage(stage, workload)
    assert found is not None and found.sizes == tuple(extents)
    given_array = np.random.default_rng(0).standard_normal(extents).astype(np.float32)
    wanted = reference_outputs(workload, {"X": given_array})["P"]
    padded = np.pad(
        given_array, list(zip(found.low, found.high, strict=True)), constant_values=value
    )
    np.testing.assert_array_equal(padded, wanted)


def test_paddings_of_convolutions_and_poolings() -> None:
    workload = average_pooling(extent=5, channels=3, pad=2)
    low, high = (0, 2, 2, 0), (0, 2, 2, 0)
    zero = Constant(0.0, "float32")
    padding = Padding("X", (0, 0, 0, 0), (1, 5, 5, 3), low, high, zero)
    assert padding_of_stage(workload.stages[0], workload) == padding
    convolution = conv2d(h=6, w=6, ci=4, co=8, pad=1)
    assert padding_of_stage(convolution.stages[0], convolution) is not None


@pytest.mark.parametrize("workload", [gemm(m=4, n=4, k=4), average_pooling()])
def test_other_stages_are_none(workload: Workload) -> None:
    others = [stage for stage in workload.stages if stage.name != "P"]
    assert all(padding_of_stage(stage, workload) is None for stage in others)


def test_a_triangle_is_none() -> None:
    """A condition that holds on a triangle has no box."""
    stage = average_pooling().stages[0]
    read = stage.body.on_true  # type: ignore[attr-defined]
    below = Binary("le", IndexValue(var("h")), IndexValue(var("w")))
    triangle = evolve(stage, body=Select(below, read, Constant(0.0, "float32")))
    workload = evolve(average_pooling(), stages=(triangle,), outputs=(triangle.name,))
    assert padding_of_stage(triangle, workload) is None
