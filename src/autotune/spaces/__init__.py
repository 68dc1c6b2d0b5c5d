"""Search spaces: the interface, sketch rules and feasible sampling."""

from __future__ import annotations

from autotune.spaces.limits import ScheduleLimits
from autotune.spaces.search_space import SearchSpace
from autotune.spaces.sketch_space import SketchSpace, default_rules

__all__ = ["ScheduleLimits", "SearchSpace", "SketchSpace", "default_rules"]
