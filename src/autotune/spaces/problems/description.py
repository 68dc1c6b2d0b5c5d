"""A problem as text for people."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.spaces.problems.problem import ConstraintProblem
from autotune.spaces.problems.wording import constraint_text, domain_text, origin_text

__all__ = ["describe_problem"]


def describe_problem(problem: ConstraintProblem, count: int) -> str:
    """Variables, then constraints with their origins; ``count`` is the number of solutions."""
    variables = [
        (variable.name, variable.kind, domain_text(variable.domain))
        for variable in problem.variables
    ]
    constraints = [
        (
            constraint_text(constraint),
            "hard" if constraint.origin.hard else "soft",
            origin_text(constraint),
        )
        for constraint in problem.constraints
    ]
    return "\n".join(
        [
            f"problem {problem.name}, digest {problem.digest}: {len(variables)} variables, "
            f"{len(constraints)} constraints, {count} solutions",
            "",
            *_aligned(variables),
            "",
            *_aligned(constraints),
        ]
    )


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
