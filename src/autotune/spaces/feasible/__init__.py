"""The feasible set of a sketch, exactly: tables of factorizations joined by constraints."""

from __future__ import annotations

from autotune.spaces.feasible.build import FeasibleSet, build_feasible_set

__all__ = ["FeasibleSet", "build_feasible_set"]
