"""The derived nest against what TVM makes of the same schedule."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("tvm")

from autotune_tvm.emit import module_for
from autotune_tvm.lowered import LoweredNest, lowered_nest
from autotune_tvm.replay import schedule

from autotune.expressions import Binary, IntExpr, Load, const, var
from autotune.expressions.integer import evaluate
from autotune.nest import derive_nest
from autotune.sketches import (
    STEP_TYPES,
    Accumulate,
    Candidate,
    Order,
    Pack,
    Sketch,
    SplitReduction,
    Tile,
)
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset
from autotune.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")


def two_products() -> Workload:
    """Two matrix products that read, and may pack, the same left operand."""

    def product(name: str, right: str, columns: int) -> Stage:
        axes = (Axis("i", 12), Axis("j", columns), Axis("k", 6, "reduce"))
        left = Load("A", (var("i"), var("k")))
        body = Binary("mul", left, Load(right, (var("k"), var("j"))))
        return Stage(Tensor(name, (12, columns), "float32"), axes, body, "add")

    inputs = (
        Tensor("A", (12, 6), "float32"),
        Tensor("B", (6, 16), "float32"),
        Tensor("E", (6, 32), "float32"),
    )
    stages = (product("C", "B", 16), product("D", "E", 32))
    return Workload("two", inputs, stages, ("C", "D"))


WORKLOADS = (
    gemm(m=64, n=64, k=64),
    gemm(m=37, n=53, k=29),
    gemm(m=31, n=8, k=16),
    gemm(m=1, n=7, k=3),
    gemm(m=32, n=32, k=32, dtype="int8"),
    gemm(m=13, n=24, k=20, dtype="float64"),
    batch_matmul(b=2, m=3, n=4, k=5),
    batch_matmul(b=3, m=33, n=40, k=50),
    dense(m=8, n=9, k=64),
    dense(m=33, n=64, k=64, bias=0),
    conv2d(h=14, w=14, ci=16, co=32, pad=1),
    conv2d(h=13, w=11, ci=3, co=17, pad=1, stride=2, bias=1, relu=1),
    conv2d(h=15, w=15, ci=8, co=16, kh=5, kw=3, dilation=2, stride=3),
    conv2d(n=2, h=7, w=9, ci=5, co=7, kh=1, kw=1, relu=1),
    depthwise_conv2d(h=14, w=14, c=32, pad=1),
    depthwise_conv2d(h=15, w=14, c=19, pad=1, stride=2, dilation=2),
    depthwise_conv2d(n=2, h=8, w=5, c=12, kh=4, kw=4, pad=2),
    softmax(m=5, n=7),
    softmax(m=64, n=64),
    softmax(m=12, n=256),
    softmax(m=6, n=31),
    softmax(m=2, n=100, dtype="float64"),
    elementwise(m=4, n=6),
    elementwise(m=7, n=48),
    two_products(),
)


def without_ones(extents: tuple[IntExpr, ...], candidate: Candidate) -> tuple[int, ...]:
    numbers = (int(evaluate(extent, candidate.config)) for extent in extents)
    return tuple(number for number in numbers if number != 1)


def compare(candidate: Candidate, lowered: LoweredNest) -> None:
    nest = derive_nest(candidate.sketch)
    stores = Counter(
        without_ones(tuple(loop.extent for loop in statement.loops), candidate)
        for statement in nest.statements
    )
    allocations = Counter(without_ones(buffer.shape, candidate) for buffer in nest.buffers)
    where = f"{candidate.sketch.name} {candidate.config}"
    assert stores == Counter(lowered.stores), where
    assert allocations == Counter(lowered.allocations), where


@pytest.mark.parametrize("target", ["haswell-2core", "skylake-avx512-4core"])
@pytest.mark.parametrize(
    "workload",
    WORKLOADS,
    ids=lambda workload: f"{workload.name} {' '.join(map(str, workload.parameters.values()))}",
)
def test_loops_and_allocations_are_those_of_the_lowered_program(
    workload: Workload, target: str
) -> None:
    space = SketchSpace(workload, preset(target), LIMITS)
    module = module_for(workload)
    for candidate in space.sample(2 * len(space.sketches()), np.random.default_rng(0)):
        compare(candidate, lowered_nest(schedule(module, candidate, workload).mod))


def numbers(*values: int) -> tuple[IntExpr, ...]:
    return tuple(map(const, values))


ROWS = Tile("C", "i", numbers(2, 4))
SPLIT = Tile("C", "k", numbers(2, 2))
HAND_MADE = {
    "nothing": (),
    "tiles": (ROWS, SPLIT),
    "a tile around the whole reduction": (
        ROWS,
        Order("C", ("i.0", "i.1", "k.0", "j.0")),
        Accumulate("C", "i.1", numbers(1, 16)),
    ),
    "a tile that an outer reduction loop carries": (
        ROWS,
        SPLIT,
        Order("C", ("i.0", "k.0", "i.1", "k.1", "j.0")),
        Accumulate("C", "i.1", numbers(1, 16)),
    ),
    "a tile inside a reduction loop": (
        ROWS,
        Order("C", ("i.0", "k.0", "i.1", "j.0")),
        Accumulate("C", "k.0", numbers(4, 4)),
    ),
    "copies inside a reduction loop": (
        ROWS,
        SPLIT,
        Order("C", ("i.0", "k.0", "i.1", "k.1", "j.0")),
        Pack("C", "A", "k.0", None, None, 2),
        Pack("C", "B", "i.1", 1, const(8), 8),
    ),
    "a copy of what one element needs": (
        Order("C", ("i.0", "k.0", "j.0")),
        Pack("C", "A", "j.0", None, None, 1),
    ),
    "a split reduction": (
        SplitReduction("C", "k", 2),
        Order("C_partial", ("i.0", "j.0", "k.0", "k_lane.0")),
        Order("C", ("i.0", "j.0", "k_lane.0")),
    ),
}


CARRIED = "a tile that an outer reduction loop carries"


@pytest.mark.parametrize("name", HAND_MADE)
def test_steps_that_no_built_in_rule_combines(name: str) -> None:
    workload = gemm(m=8, n=16, k=4)
    candidate = Candidate(Sketch(name, workload, (), (), HAND_MADE[name]), ())
    compare(candidate, lowered_nest(schedule(module_for(workload), candidate, workload).mod))


def test_an_unscheduled_program() -> None:
    lowered = lowered_nest(module_for(softmax(m=5, n=1)))
    # One loop over rows for each of maximum, exponential, sum (two with their initial values) and
    # quotient; extents of 1 are left out.
    assert lowered.stores == ((5,),) * 6
    assert lowered.allocations == ((5,), (5,), (5,))
