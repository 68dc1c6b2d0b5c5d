"""The feasible set of a sketch, exactly: divisor lattices joined by constraints."""

from __future__ import annotations

from autotune.spaces.lattice.groups import Group, Matrix, ordered_factorizations
from autotune.spaces.lattice.lattice import (
    COMBINATION_LIMIT,
    Lattice,
    build_lattice,
    join_groups,
)
from autotune.spaces.lattice.points import PointSet
from autotune.spaces.lattice.terms import Range, Relational, expression_range

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
