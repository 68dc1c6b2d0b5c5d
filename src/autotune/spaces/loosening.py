"""Soft constraints that no configuration satisfies together with the hard ones give way."""

from __future__ import annotations

from attrs import evolve

from autotune.sketches import Sketch
from autotune.spaces.feasible import FeasibleSet, build_feasible_set

__all__ = ["loosen"]


def loosen(sketch: Sketch) -> tuple[Sketch, FeasibleSet, tuple[str, ...]]:
    """The sketch without the soft constraints that leave it no configuration.

    Sketches list their soft constraints the most important first; the last one goes first.

    Returns:
        The sketch, its feasible set, and the sources of the constraints that were dropped. The
        set is empty where the hard constraints alone have no solution.

    Raises:
        InvalidValueError: see :func:`~autotune.spaces.feasible.build_feasible_set`.
    """
    feasible = build_feasible_set(sketch)
    dropped: list[str] = []
    for constraint in reversed(sketch.constraints):
        if feasible.count:
            break
        if not constraint.hard:
            kept = tuple(it for it in sketch.constraints if it is not constraint)
            sketch = evolve(sketch, constraints=kept)
            feasible = build_feasible_set(sketch)
            dropped.append(constraint.source)
    return sketch, feasible, tuple(dropped)
