"""Statistics of a generation."""

from __future__ import annotations

from attrs import frozen

__all__ = ["GenerationReport"]


@frozen
class GenerationReport:
    """Counts over the children of one generation.

    Attributes:
        children: How many were made.
        distinct: How many of them differ from each other and from all rows of the round before.
        like_a_parent: How many equal one of their parents.
        infeasible: How many were infeasible; those that were repaired count too.
        keys: Mean number of keys that a child shares with its parents.
        sampler_seconds: What making them took.
    """

    children: int
    distinct: int
    like_a_parent: int
    infeasible: int
    keys: float
    sampler_seconds: float
