"""The tapes of all sketches of every builder: their size, and what readers may rely on."""

from __future__ import annotations

import pytest
from workload_names import named

from autotune.ir.workloads import Workload, conv2d, depthwise_conv2d, elementwise, gemm, softmax
from autotune.nest import derive_nest, nest_tape
from autotune.sketches import STEP_TYPES, Sketch
from autotune.spaces import BUILT_IN_RULES, ScheduleLimits
from autotune.spaces.rules import generate_sketches
from autotune.targets import preset

WORKLOADS = (
    gemm(m=512, n=512, k=512),
    conv2d(h=57, w=56, ci=64, co=64, pad=1, stride=2, bias=1, relu=1),
    depthwise_conv2d(h=112, w=112, c=32, pad=1),
    softmax(m=512, n=512),
    elementwise(m=512, n=512),
)
MACHINES = ("skylake-avx512-2core", "a100")
COMMUTATIVE = ("add", "mul", "min", "max")


@pytest.fixture(params=WORKLOADS, ids=named)
def workload(request: pytest.FixtureRequest) -> Workload:
    found: Workload = request.param
    return found


@pytest.fixture(params=MACHINES)
def sketches(request: pytest.FixtureRequest, workload: Workload) -> tuple[Sketch, ...]:
    limits = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")
    return generate_sketches(workload, preset(request.param), limits, BUILT_IN_RULES).sketches


def test_nothing_is_computed_twice_or_for_nobody(sketches: tuple[Sketch, ...]) -> None:
    for sketch in sketches:
        tape = nest_tape(sketch).tape
        seen = set()
        for operation, *slots in tape.instructions:
            ordered = sorted(slots) if operation in COMMUTATIVE else slots
            seen.add((operation, *ordered))
        assert len(seen) == len(tape.instructions)
        assert len(set(tape.constants)) == len(tape.constants)
        first = len(tape.inputs) + len(tape.constants)
        used = {slot for item in tape.instructions for slot in item[1:]}
        used.update(slot for _, slot in tape.outputs)
        computed = set(range(len(tape.inputs), first + len(tape.instructions)))
        assert computed <= used


def test_a_tape_is_small(sketches: tuple[Sketch, ...]) -> None:
    """Sharing keeps it to few instructions for each loop of each statement."""
    for sketch in sketches:
        tape = nest_tape(sketch).tape
        loops = sum(len(statement.loops) for statement in derive_nest(sketch).statements)
        assert len(tape.instructions) <= 30 * loops
        assert len(tape.instructions) <= 3 * len(tape.outputs)


def test_the_features_read_a_part_of_the_tape(sketches: tuple[Sketch, ...]) -> None:
    for sketch in sketches:
        made = nest_tape(sketch)
        names = dict(made.tape.outputs)
        assert set(made.feature_tape.output_index) < set(names)
        assert made.feature_tape.inputs == made.tape.inputs == sketch.param_names
        assert nest_tape(sketch) is made
