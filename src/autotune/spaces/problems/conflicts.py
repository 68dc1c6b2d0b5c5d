"""Why a problem has no solution: a smallest set of its constraints that contradict each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.spaces.problems.problem import ConstraintProblem, variables_of
from autotune.spaces.problems.solutions import solve
from autotune.spaces.problems.vocabulary import Constraint
from autotune.spaces.problems.wording import constraint_text, domain_text, origin_text

__all__ = ["ContradictoryConstraints", "require_solutions", "smallest_conflict"]


class ContradictoryConstraints(InvalidValueError):
    """Constraints that nothing satisfies; the message lists a smallest set of them."""


def require_solutions(problem: ConstraintProblem) -> None:
    """Nothing where ``problem`` has a solution.

    Raises:
        ContradictoryConstraints: it has none; names a smallest set of constraints with none.
        InvalidValueError: it is too large to be solved.
    """
    conflict = smallest_conflict(problem)
    if conflict is not None:
        raise ContradictoryConstraints(_message(problem, conflict))


def smallest_conflict(problem: ConstraintProblem) -> tuple[Constraint, ...] | None:
    """As few constraints as possible that contradict each other; None where none do.

    With the domains of the variables alone (an empty one) for a conflict, the empty tuple. The
    search is by hitting sets (Ignatiev et al., "Smallest MUS extraction with minimal hitting set
    dualization", CP'15): a set without solutions takes at least one constraint from the complement
    of every satisfiable set; a smallest such choice that has no solution is a smallest conflict.

    Raises:
        InvalidValueError: a part of the problem is too large to be solved.
    """
    constraints = problem.constraints

    def satisfiable(chosen: Sequence[int]) -> bool:
        return _has_solutions(problem, [constraints[index] for index in chosen])

    if satisfiable(range(len(constraints))):
        return None
    found = _smallest(len(constraints), satisfiable)
    return tuple(constraints[index] for index in found)


def _smallest(size: int, satisfiable: Callable[[Sequence[int]], bool]) -> tuple[int, ...]:
    corrections: list[frozenset[int]] = []
    while True:
        chosen = _hitting_set(corrections)
        if not satisfiable(chosen):
            return chosen
        grown = set(chosen)
        for index in range(size):
            if index not in grown and satisfiable(sorted({*grown, index})):
                grown.add(index)
        corrections.append(frozenset(range(size)) - grown)


def _hitting_set(sets: Sequence[frozenset[int]]) -> tuple[int, ...]:
    """A smallest set that shares an element with every given one, first in order."""
    elements = sorted(frozenset().union(*sets))
    for size in range(len(elements) + 1):
        for chosen in itertools.combinations(elements, size):
            if all(not of.isdisjoint(chosen) for of in sets):
                return chosen
    raise InvalidValueError("an empty set cannot be hit")


def _has_solutions(problem: ConstraintProblem, constraints: Sequence[Constraint]) -> bool:
    """Whether some of the constraints can hold together; other variables are left out."""
    if any(variable.domain == () for variable in problem.variables):
        return False
    used = frozenset().union(*map(variables_of, constraints))
    variables = tuple(variable for variable in problem.variables if variable.name in used)
    part = evolve(
        problem, variables=variables or problem.variables[:1], constraints=tuple(constraints)
    )
    return solve(part).count > 0


def _message(problem: ConstraintProblem, conflict: Sequence[Constraint]) -> str:
    lines = []
    for constraint in conflict:
        origin = origin_text(constraint)
        lines.append(constraint_text(constraint) + (f" ({origin})" if origin else ""))
    used = frozenset().union(*map(variables_of, conflict)) if conflict else problem.variable_names
    domains = [
        f"{variable.name} in {domain_text(variable.domain)}"
        for variable in problem.variables
        if variable.name in used
    ]
    held = "; ".join(lines) or "the domains alone"
    return f"problem {problem.name!r} has no solution: {held}; with {', '.join(domains)}"
