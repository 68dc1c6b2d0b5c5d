"""Every quantity on the tape against the nest walked one execution at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_workloads import sum_of_halves
from oracles.nest import nest_quantities
from workload_names import named

from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.nest import nest_tape
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace

SpaceOf = Callable[[Workload], SketchSpace]

# A busy machine is no reason to fail; the space depends on the machine of the session only.

# One of every builder; the test goes through all sketches of each.
WORKLOADS = (
    gemm(m=5, n=17, k=6),
    gemm(m=1, n=7, k=3),
    gemm(m=4, n=6, k=20, dtype="int8"),
    conv2d(h=5, w=6, ci=2, co=5, kh=2, kw=3, pad=1, stride=2, bias=1, relu=1),
    conv2d(h=6, w=7, ci=2, co=4, kh=2, kw=2, dilation=2),
    conv2d(h=9, w=7, ci=1, co=3, stride=3),
    depthwise_conv2d(h=5, w=4, c=5, pad=1),
    dense(m=3, n=5, k=16),
    batch_matmul(b=2, m=3, n=4, k=16),
    softmax(m=4, n=6),
    softmax(m=2, n=32),
    elementwise(m=4, n=6),
    sum_of_halves(4, 6),
)

SMALL = st.integers(1, 7)
DRAWN = st.one_of(
    st.builds(lambda m, n, k: gemm(m=m, n=n, k=k), SMALL, st.integers(1, 20), SMALL),
    st.builds(
        lambda h, w, co, k, s, d, p, e: conv2d(
            h=h, w=w, ci=2, co=co, kh=k, kw=2, stride=s, dilation=d, pad=p, bias=e, relu=e
        ),
        st.integers(5, 7),
        st.integers(5, 6),
        st.sampled_from([1, 3, 8]),
        st.integers(1, 3),
        st.integers(1, 3),
        st.integers(1, 2),
        st.integers(0, 1),
        st.integers(0, 1),
    ),
    st.builds(
        lambda h, s, p: depthwise_conv2d(h=h, w=5, c=3, stride=s, pad=p),
        st.integers(3, 7),
        st.integers(1, 3),
        st.integers(0, 1),
    ),
    st.builds(lambda m, n: softmax(m=m, n=n), SMALL, st.sampled_from([3, 8, 16, 32])),
    st.builds(lambda m, n: elementwise(m=m, n=n), SMALL, st.integers(1, 20)),
    st.builds(lambda b, m, n: batch_matmul(b=b, m=m, n=n, k=4), st.integers(1, 3), SMALL, SMALL),
)


# Strides, lines and reuse are held against an oracle of their own: tests/models/features.
ELSEWHERE = [
    [name]
    for name in (
        "stride",
        "step",
        "line_bytes",
        "contiguous",
        *(f"reuse_{part}" for part in ("loop", "serial", "count", "iterations", "bytes", "share")),
    )
]


def check(candidate: Candidate) -> None:
    made = nest_tape(candidate.sketch)
    row = made.tape.evaluate(np.array([candidate.values], dtype=np.int64))[0].tolist()
    values = {
        name: value
        for name, value in zip(made.tape.output_index, row, strict=True)
        if name.split("/")[1:2] not in ELSEWHERE
    }
    expected = nest_quantities(made.nest, candidate.config)
    assert set(values) == set(expected)
    wrong = {
        name: (values[name], count)
        for name, count in expected.items()
        if values[name] != count and not _may_be_more(candidate, name, values, count)
    }
    assert not wrong, (candidate.sketch.name, candidate.config)


def _may_be_more(candidate: Candidate, name: str, values: dict[str, int], count: int) -> bool:
    """Copied tiles of windows with both a stride and a dilation: an upper bound is allowed."""
    parameters = candidate.sketch.workload.parameters
    sparse = min(parameters.get(key, 1) for key in ("stride", "dilation")) > 1
    region = values.get(name.replace("/unique/", "/region/"), 0)
    return sparse and "/unique/" in name and count <= values[name] <= region


@pytest.fixture(params=["cpu", "gpu"])
def either_space_of(
    request: pytest.FixtureRequest, space_of: SpaceOf, gpu_space_of: SpaceOf
) -> SpaceOf:
    return space_of if request.param == "cpu" else gpu_space_of


@pytest.mark.parametrize("workload", WORKLOADS, ids=named)
def test_every_sketch_of_every_builder(workload: Workload, either_space_of: SpaceOf) -> None:
    space = either_space_of(workload)
    for candidate in space.sample(2 * len(space.sketches()), np.random.default_rng(7)):
        check(candidate)


@given(DRAWN, st.integers(0, 2**32))
def test_random_workloads_and_candidates(
    either_space_of: SpaceOf, workload: Workload, seed: int
) -> None:
    for candidate in either_space_of(workload).sample(1, np.random.default_rng(seed)):
        check(candidate)
