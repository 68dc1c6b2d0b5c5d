"""Constraint problems of sketches as text, and the conflicts of infeasible ones."""

from __future__ import annotations

from autotune.spaces.problems.conflicts import (
    ContradictoryConstraints,
    require_solutions,
    smallest_conflict,
)
from autotune.spaces.problems.description import describe_problem
from autotune.spaces.problems.generation import problem_of
from autotune.spaces.problems.problem import ConstraintProblem
from autotune.spaces.problems.vocabulary import (
    AtLeast,
    AtMost,
    Constraint,
    Divides,
    Domain,
    Equal,
    IntRange,
    Member,
    Origin,
    Product,
    Sum,
    Variable,
)
from autotune.spaces.problems.wording import constraint_text, domain_text, origin_text

__all__ = [
    "AtLeast",
    "AtMost",
    "Constraint",
    "ConstraintProblem",
    "ContradictoryConstraints",
    "Divides",
    "Domain",
    "Equal",
    "IntRange",
    "Member",
    "Origin",
    "Product",
    "Sum",
    "Variable",
    "constraint_text",
    "describe_problem",
    "domain_text",
    "origin_text",
    "problem_of",
    "require_solutions",
    "smallest_conflict",
]
