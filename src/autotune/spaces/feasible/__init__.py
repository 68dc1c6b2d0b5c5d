"""The feasible set of a sketch, exactly: tables of factorizations joined by constraints."""

from __future__ import annotations

from autotune.spaces.feasible.build import build_feasible_set
from autotune.spaces.feasible.feasible_set import FeasibleSet

__all__ = ["FeasibleSet", "build_feasible_set"]
