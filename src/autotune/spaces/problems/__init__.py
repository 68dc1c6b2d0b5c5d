"""Constraint problems: integers to be chosen under relations, solved exactly."""

from __future__ import annotations

from autotune.spaces.problems.conflicts import (
    ContradictoryConstraints,
    require_solutions,
    smallest_conflict,
)
from autotune.spaces.problems.description import describe_problem
from autotune.spaces.problems.generation import problem_of
from autotune.spaces.problems.problem import ConstraintProblem
from autotune.spaces.problems.solutions import PROBLEM_LIMIT, Solutions, solve
from autotune.spaces.problems.vocabulary import (
    AtLeast,
    AtMost,
    Clause,
    Constraint,
    Divides,
    Domain,
    Equal,
    IntRange,
    Member,
    NotEqual,
    Origin,
    Product,
    Select,
    Sum,
    Table,
    Variable,
)
from autotune.spaces.problems.wording import constraint_text, domain_text, origin_text

__all__ = [
    "PROBLEM_LIMIT",
    "AtLeast",
    "AtMost",
    "Clause",
    "Constraint",
    "ConstraintProblem",
    "ContradictoryConstraints",
    "Divides",
    "Domain",
    "Equal",
    "IntRange",
    "Member",
    "NotEqual",
    "Origin",
    "Product",
    "Select",
    "Solutions",
    "Sum",
    "Table",
    "Variable",
    "constraint_text",
    "describe_problem",
    "domain_text",
    "origin_text",
    "problem_of",
    "require_solutions",
    "smallest_conflict",
    "solve",
]
