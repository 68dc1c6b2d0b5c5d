"""Meaning of constraint problems, in plain integers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.ir.expressions import IntExpr
from autotune.ir.expressions.integer import evaluate
from autotune.sketches import Sketch
from autotune.spaces.problems import (
    AtMost,
    Constraint,
    ConstraintProblem,
    Divides,
    Equal,
    IntRange,
    Member,
    Product,
    Sum,
    problem_of,
)

Point = dict[str, int]


def holds(constraint: Constraint, point: Point) -> bool:
    """Tell whether a point satisfies a constraint."""

    def at(expression: IntExpr) -> int:
        return evaluate(expression, point)

    if isinstance(constraint, Product):
        return at(constraint.total) == math.prod(map(at, constraint.factors))
    if isinstance(constraint, Sum):
        return at(constraint.total) == sum(map(at, constraint.terms))
    if isinstance(constraint, Member):
        return at(constraint.expression) in constraint.values
    if isinstance(constraint, Divides):
        return at(constraint.dividend) % at(constraint.divisor) == 0
    left, right = at(constraint.left), at(constraint.right)
    if isinstance(constraint, Equal):
        return left == right
    return left <= right if isinstance(constraint, AtMost) else left >= right


def completed(sketch: Sketch, row: Sequence[int]) -> Point:
    """A configuration with what follows from it: the value of every variable of the problem."""
    problem, point = problem_of(sketch), dict(zip(sketch.param_names, row, strict=True))
    for constraint in problem.constraints:
        if isinstance(constraint, (Product, Sum)):
            parts = constraint.factors if isinstance(constraint, Product) else constraint.terms
            combine = math.prod if isinstance(constraint, Product) else sum
            name, value = (
                constraint.total,
                lambda parts=parts, by=combine: by(evaluate(part, point) for part in parts),
            )
        elif isinstance(constraint, Equal):
            name, value = constraint.left, lambda right=constraint.right: evaluate(right, point)
        else:
            continue
        if name.op == "var" and name.args[0] not in point:
            point[name.args[0]] = value()
    return point


def is_solution(problem: ConstraintProblem, point: Point) -> bool:
    """Tell whether values for all variables solve a problem."""
    for variable in problem.variables:
        domain, number = variable.domain, point[variable.name]
        if isinstance(domain, IntRange):
            if not domain.low <= number <= domain.high:
                return False
        elif number not in domain:
            return False
    return all(holds(constraint, point) for constraint in problem.constraints)
