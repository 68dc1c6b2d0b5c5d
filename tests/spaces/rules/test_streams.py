"""Tests of which results may be written past the caches."""

from __future__ import annotations

import pytest
from attrs import evolve
from rule_sketches import LIMITS, TARGET

from autotune.errors import AutotuneError
from autotune.ir.expressions import const
from autotune.ir.workloads import Workload, elementwise, gemm, softmax
from autotune.nest import derive_nest
from autotune.sketches import Ordinal, Sketch, SoftwarePipeline, Stream
from autotune.spaces import BUILT_IN_RULES, ScheduleLimits, SketchSpace
from autotune.spaces.rules import generate_sketches
from autotune.targets import Target
from autotune.targets.target import Cache

# 256 rows of 64 floats are as large as this cache.
SMALL = evolve(TARGET, caches=(Cache(1, 1 << 10, False), Cache(2, 1 << 16, True)))


def choices(
    workload: Workload, target: Target = SMALL, limits: ScheduleLimits = LIMITS
) -> list[bool]:
    """For each sketch, whether it has the choice, with a parameter of its own.

    Those that write a row during the next one have none.
    """
    found = []
    for sketch in generate_sketches(workload, target, limits, BUILT_IN_RULES).sketches:
        steps = [step for step in sketch.core_steps if isinstance(step, Stream)]
        if any(isinstance(step, SoftwarePipeline) for step in sketch.core_steps):
            assert steps == [Stream("Y", const(1))]
            continue
        named = [param for param in sketch.params if param.name.endswith(".stream")]
        assert len(steps) == len(named) <= 1
        assert all(isinstance(it, Ordinal) and it.values == (0, 1) for it in named)
        found.append(bool(steps))
    assert found
    return found


@pytest.mark.parametrize("workload", [elementwise(m=256, n=64), softmax(m=256, n=64)])
def test_results_that_no_cache_holds_have_the_choice(workload: Workload) -> None:
    assert all(choices(workload))


@pytest.mark.parametrize(
    "workload", [elementwise(m=255, n=64), softmax(m=255, n=64), gemm(m=256, n=64, k=8)]
)
def test_results_that_a_cache_holds_or_that_are_sums_have_not(workload: Workload) -> None:
    assert not any(choices(workload))


def test_rows_that_end_inside_a_line_have_not() -> None:
    assert not any(choices(elementwise(m=300, n=63)))


def test_without_a_known_cache_or_a_backend_that_can_there_is_no_choice() -> None:
    workload = elementwise(m=256, n=64)
    assert not any(choices(workload, evolve(SMALL, caches=())))
    assert not any(choices(workload, limits=evolve(LIMITS, steps=LIMITS.steps - {"stream"})))


def test_both_ways_of_storing_are_in_the_space() -> None:
    space = SketchSpace(elementwise(m=256, n=64), SMALL, LIMITS)
    (sketch,) = space.sketches()
    without = evolve(LIMITS, steps=LIMITS.steps - {"stream"})
    assert space.count() == 2 * SketchSpace(sketch.workload, SMALL, without).count()


def test_only_outputs_pass_the_caches() -> None:
    workload = softmax(m=8, n=16)
    sketch = Sketch("by-hand", workload, (), (), (Stream("E", const(1)),))
    with pytest.raises((AutotuneError, ValueError), match="'E' is no output"):
        derive_nest(sketch)
