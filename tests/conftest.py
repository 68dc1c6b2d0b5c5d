"""Spaces that the tests of several rooms share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotune.ir.workloads import Workload
from autotune.sketches import STEP_TYPES
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import Target, preset

SpaceOf = Callable[[Workload], SketchSpace]


@pytest.fixture(scope="session")
def target() -> Target:
    return preset("skylake-avx512-2core")


@pytest.fixture(scope="session")
def space_of(target: Target) -> SpaceOf:
    """Makes the space of a workload for one fixed machine."""
    limits = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")
    return lambda workload: SketchSpace(workload, target, limits)


@pytest.fixture(scope="session")
def gpu_space_of() -> SpaceOf:
    """Makes the space of a workload for one GPU."""
    limits = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")
    return lambda workload: SketchSpace(workload, preset("a100"), limits)
