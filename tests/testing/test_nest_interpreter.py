from __future__ import annotations

import attrs
import numpy as np
import pytest

from autotune.ir.expressions import const
from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    random_inputs,
    reference_outputs,
    softmax,
)
from autotune.sketches import STEP_TYPES, Accumulate, Candidate, Pack, Tile
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset
from autotune.testing.nest_interpreter import run_candidate
from autotune.testing.programs import check_nest

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1 << 16, 512, "test")
WORKLOADS = [
    gemm(m=12, n=20, k=8),
    gemm(m=7, n=13, k=17),
    gemm(m=8, n=8, k=16, dtype="int8"),
    batch_matmul(b=2, m=3, n=4, k=5),
    dense(m=5, n=9, k=16),
    conv2d(h=6, w=6, ci=4, co=16, pad=1),
    conv2d(h=7, w=5, ci=3, co=17, pad=1, stride=2, bias=1, relu=1),
    conv2d(h=11, w=9, ci=2, co=6, dilation=2, stride=3),
    depthwise_conv2d(h=6, w=5, c=16, pad=1),
    softmax(m=5, n=7),
    softmax(m=6, n=64),
    softmax(m=4, n=256),
    softmax(m=2, n=31),
    elementwise(m=4, n=6),
]


def identify(workload: Workload) -> str:
    return workload.name + "".join(f"-{value}" for value in workload.parameters.values())


@pytest.mark.parametrize("workload", WORKLOADS, ids=identify)
def test_every_sketch_computes_the_workload(workload: Workload) -> None:
    space = SketchSpace(workload, preset("skylake-avx512"), LIMITS)
    for candidate in space.sample(3 * len(space.sketches()), np.random.default_rng(0)):
        check_nest(candidate, tolerance=1e-6)


def doctored(step_type: type, of_axis: str | None = None, **changes: object) -> Candidate:
    """A packed matrix product one of whose steps (that of an axis) says something else."""
    space = SketchSpace(gemm(m=8, n=64, k=16), preset("skylake-avx512"), LIMITS)
    sketch = next(sketch for sketch in space.sketches() if sketch.name == "packed-panel")
    steps = tuple(
        attrs.evolve(step, **changes)
        if isinstance(step, step_type) and getattr(step, "axis", None) == of_axis
        else step
        for step in sketch.steps
    )
    config = {param.name: 1 for param in sketch.params}
    config.update({"C.i.0": 2, "C.i.1": 2, "C.i.2": 2, "C.j.0": 2, "C.j.1": 2, "C.j.3": 16})
    config.update({"C.k.0": 16})
    if "C.j.extent" in config:
        config["C.j.extent"] = 64
    return Candidate.from_config(attrs.evolve(sketch, steps=steps), config)


def outputs_of(candidate: Candidate) -> tuple[np.ndarray, np.ndarray]:
    workload = candidate.sketch.workload
    inputs = random_inputs(workload, np.random.default_rng(0))
    return run_candidate(candidate, inputs)["C"], reference_outputs(workload, inputs)["C"]


def test_the_candidate_to_doctor_is_right() -> None:
    got, expected = outputs_of(doctored(Pack))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_tile_inside_a_split_reduction_is_carried_by_it() -> None:
    got, expected = outputs_of(doctored(Accumulate, at="k.0"))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_no_tile_reaches_is_not_known() -> None:
    got, expected = outputs_of(doctored(Tile, "i", factors=(const(1), const(1), const(1))))
    assert not np.allclose(got, expected)
