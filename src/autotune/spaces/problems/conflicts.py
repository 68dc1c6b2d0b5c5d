"""Why a sketch has no configuration: a smallest set of its constraints that contradict."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.sketches import Constraint as SketchConstraint
from autotune.sketches import ProductEquals, Sketch
from autotune.spaces.feasible import build_feasible_set
from autotune.spaces.problems.generation import problem_of
from autotune.spaces.problems.problem import operands, variables_of
from autotune.spaces.problems.vocabulary import Constraint, Product
from autotune.spaces.problems.wording import constraint_text, domain_text, origin_text

__all__ = ["ContradictoryConstraints", "require_solutions", "smallest_conflict"]


class ContradictoryConstraints(InvalidValueError):
    """Constraints that nothing satisfies; the message lists a smallest set of them."""


def require_solutions(sketch: Sketch) -> None:
    """Nothing where ``sketch`` has a feasible configuration.

    Raises:
        ContradictoryConstraints: it has none; names a smallest set of limits with none, and the
            splits and sizes that they are about.
        InvalidValueError: it is too large to be solved.
    """
    conflict = smallest_conflict(sketch)
    if conflict is not None:
        raise ContradictoryConstraints(_message(sketch, conflict))


def smallest_conflict(sketch: Sketch) -> tuple[SketchConstraint, ...] | None:
    """As few limits of a sketch as possible that contradict each other; None where none do.

    What its loops are split into is taken as given; that contradicts itself where the result is
    empty. The search is by hitting sets (Ignatiev et al., "Smallest MUS extraction with minimal
    hitting set dualization", CP'15): a set without solutions takes at least one constraint from
    the complement of every satisfiable set; a smallest such choice that has no solution is a
    smallest conflict.

    Raises:
        InvalidValueError: a part of the sketch is too large to be solved.
    """
    splits = tuple(item for item in sketch.constraints if isinstance(item, ProductEquals))
    limits = _limits(sketch)

    def satisfiable(chosen: Sequence[int]) -> bool:
        part = evolve(sketch, constraints=(*splits, *(limits[index] for index in chosen)))
        return build_feasible_set(part).count > 0

    if satisfiable(range(len(limits))):
        return None
    return tuple(limits[index] for index in _smallest(len(limits), satisfiable))


def _limits(sketch: Sketch) -> list[SketchConstraint]:
    return [item for item in sketch.constraints if not isinstance(item, ProductEquals)]


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


def _message(sketch: Sketch, conflict: Sequence[SketchConstraint]) -> str:
    problem, limits = problem_of(sketch), _limits(sketch)
    # The problem has the limits last, in the order of the sketch.
    first = len(problem.constraints) - len(limits)
    chosen = [problem.constraints[first + limits.index(item)] for item in conflict]
    held = [*_about(chosen, problem.constraints[:first]), *chosen]
    lines = []
    for constraint in held:
        origin = origin_text(constraint)
        lines.append(constraint_text(constraint) + (f" ({origin})" if origin else ""))
    used = frozenset().union(*map(variables_of, held))
    domains = [
        f"{variable.name} in {domain_text(variable.domain)}"
        for variable in problem.variables
        if variable.name in used
    ]
    return (
        f"problem {problem.name!r} has no solution: {'; '.join(lines)}; with {', '.join(domains)}"
    )


def _about(conflict: Sequence[Constraint], given: Sequence[Constraint]) -> list[Constraint]:
    """The meaning of the variables in a conflict, and the splits of its parameters."""
    if not conflict:
        return list(given)
    names = set().union(*map(variables_of, conflict))
    found: list[Constraint] = []
    # A size is defined after what it consists of, and all sizes after the splits.
    for item in reversed(given):
        if isinstance(item, Product) and item.origin.source == "workload":
            wanted = set().union(*(factor.variables for factor in item.factors))
        else:
            wanted = set(operands(item)[0].variables)
        if not names.isdisjoint(wanted):
            names |= variables_of(item)
            found.insert(0, item)
    return found
