"""Constraint problems of sketches as text, and the conflicts of infeasible ones."""

from __future__ import annotations

from autotune.spaces.problems.problem import (
    ConstraintProblem,
    ContradictoryConstraints,
    Demand,
    Variable,
    describe_problem,
    problem_of,
    require_solutions,
    smallest_conflict,
)

__all__ = [
    "ConstraintProblem",
    "ContradictoryConstraints",
    "Demand",
    "Variable",
    "describe_problem",
    "problem_of",
    "require_solutions",
    "smallest_conflict",
]
