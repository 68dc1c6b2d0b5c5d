"""The feasible set of a sketch, exactly: divisor lattices joined by constraints."""

from __future__ import annotations

from autotune.spaces.feasible.feasible_set import (
    COMBINATION_LIMIT,
    Lattice,
    build_lattice,
    join_groups,
)
from autotune.spaces.feasible.groups import Group, Matrix, ordered_factorizations
from autotune.spaces.feasible.points import PointSet
from autotune.spaces.feasible.terms import Range, Relational, expression_range

__all__ = [
    "COMBINATION_LIMIT",
    "Group",
    "Lattice",
    "Matrix",
    "PointSet",
    "Range",
    "Relational",
    "build_lattice",
    "expression_range",
    "join_groups",
    "ordered_factorizations",
]
