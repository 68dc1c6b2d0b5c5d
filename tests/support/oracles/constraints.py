"""Meaning of constraint problems, in plain integers."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.ir.expressions.integer import evaluate
from autotune.sketches import Sketch
from autotune.spaces.problems import ConstraintProblem, problem_of
from oracles.feasible import holds

Point = dict[str, int]


def completed(sketch: Sketch, row: Sequence[int]) -> Point:
    """A configuration with what follows from it: the value of every variable of the problem."""
    point = dict(zip(sketch.param_names, row, strict=True))
    for variable in problem_of(sketch).variables:
        if variable.meaning is not None:
            point[variable.name] = evaluate(variable.meaning, point)
    return point


def is_solution(problem: ConstraintProblem, point: Point) -> bool:
    """Tell whether values for all variables solve a problem."""
    return all(
        point[it.name] in it.domain
        and (it.meaning is None or evaluate(it.meaning, point) == point[it.name])
        for it in problem.variables
    ) and all(holds(it.constraint, point) for it in problem.constraints)
