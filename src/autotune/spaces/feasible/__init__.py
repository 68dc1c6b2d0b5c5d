"""The feasible set of a sketch, exactly: tables of factorizations joined by constraints."""

from __future__ import annotations

from autotune.spaces.feasible.build import COMBINATION_LIMIT, build_feasible_set, join_groups
from autotune.spaces.feasible.feasible_set import FeasibleSet
from autotune.spaces.feasible.groups import ParamGroup, ordered_factorizations
from autotune.spaces.feasible.terms import Range, Relational, expression_range

__all__ = [
    "COMBINATION_LIMIT",
    "ParamGroup",
    "FeasibleSet",
    "Range",
    "Relational",
    "build_feasible_set",
    "expression_range",
    "join_groups",
    "ordered_factorizations",
]
