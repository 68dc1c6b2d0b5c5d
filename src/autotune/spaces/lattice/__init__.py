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
from autotune.spaces.lattice.terms import Relational

__all__ = [
    "COMBINATION_LIMIT",
    "Group",
    "Lattice",
    "Matrix",
    "PointSet",
    "Relational",
    "build_lattice",
    "join_groups",
    "ordered_factorizations",
]
