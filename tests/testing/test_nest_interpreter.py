from __future__ import annotations

import attrs
import numpy as np
import pytest
from made_workloads import TINY_WORKLOADS
from rule_sketches import LIMITS
from workload_names import named

from autotune.ir.expressions import const
from autotune.ir.workloads import Workload, conv2d, depthwise_conv2d, gemm, softmax
from autotune.sketches import Accumulate, Candidate, Pack, Tile
from autotune.spaces import SketchSpace
from autotune.targets import preset
from autotune.testing.programs import check_nest

WORKLOADS = (
    *TINY_WORKLOADS,
    gemm(m=12, n=20, k=8),
    gemm(m=7, n=13, k=17),
    conv2d(h=6, w=6, ci=4, co=16, pad=1),
    conv2d(h=7, w=5, ci=3, co=17, pad=1, stride=2, bias=1, relu=1),
    conv2d(h=11, w=9, ci=2, co=6, dilation=2, stride=3),
    depthwise_conv2d(h=6, w=5, c=16, pad=1),
    softmax(m=2, n=31),
    softmax(m=6, n=64),
    softmax(m=4, n=256),
)


@pytest.mark.parametrize("workload", WORKLOADS, ids=named)
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


def test_the_candidate_to_doctor_is_right() -> None:
    check_nest(doctored(Pack), tolerance=1e-6)


def test_a_tile_inside_a_split_reduction_is_carried_by_it() -> None:
    check_nest(doctored(Accumulate, at="k.0"), tolerance=1e-6)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_no_tile_reaches_is_not_known() -> None:
    with pytest.raises(AssertionError):
        check_nest(doctored(Tile, "i", factors=(const(1), const(1), const(1))))
