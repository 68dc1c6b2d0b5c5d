"""The feasible set of a sketch, exactly: divisor lattices joined by constraints."""

from __future__ import annotations

from autotune.spaces.lattice.groups import Matrix, ordered_factorizations
from autotune.spaces.lattice.lattice import Lattice, build_lattice

__all__ = ["Lattice", "Matrix", "build_lattice", "ordered_factorizations"]
