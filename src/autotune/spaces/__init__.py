"""Search spaces: the interface, sketch rules and feasible sampling."""

from __future__ import annotations

from autotune.sketches.limits import ScheduleLimits
from autotune.spaces.feasible import FeasibleSet, build_feasible_set
from autotune.spaces.feasible_space import FeasibleSpace
from autotune.spaces.search_space import SearchSpace, SpaceContext
from autotune.spaces.sketch_space import (
    BUILT_IN_RULES,
    GPU_RULES,
    EmptySpace,
    SketchSpace,
)

__all__ = [
    "BUILT_IN_RULES",
    "GPU_RULES",
    "EmptySpace",
    "FeasibleSet",
    "FeasibleSpace",
    "ScheduleLimits",
    "SearchSpace",
    "SketchSpace",
    "SpaceContext",
    "build_feasible_set",
]
