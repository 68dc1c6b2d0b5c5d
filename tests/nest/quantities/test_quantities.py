"""Every quantity on the tape against the nest walked one execution at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_workloads import DRAWN_WORKLOADS, TINY_WORKLOADS
from oracles.nest import nest_quantities
from workload_names import named

from autotune.ir.workloads import Workload
from autotune.nest import nest_tape
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace

SpaceOf = Callable[[Workload], SketchSpace]

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


@pytest.mark.parametrize("workload", TINY_WORKLOADS, ids=named)
def test_every_sketch_of_every_builder(workload: Workload, either_space_of: SpaceOf) -> None:
    space = either_space_of(workload)
    for candidate in space.sample(2 * len(space.sketches()), np.random.default_rng(7)):
        check(candidate)


@given(DRAWN_WORKLOADS, st.integers(0, 2**32))
def test_random_workloads_and_candidates(
    either_space_of: SpaceOf, workload: Workload, seed: int
) -> None:
    for candidate in either_space_of(workload).sample(1, np.random.default_rng(seed)):
        check(candidate)
