"""What constraint problems mean, in plain integers: shares no code with what solves them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from autotune.ir.expressions import IntExpr
from autotune.spaces.problems import (
    AtMost,
    Clause,
    Constraint,
    ConstraintProblem,
    Divides,
    Domain,
    Equal,
    IntRange,
    Member,
    NotEqual,
    Product,
    Select,
    Sum,
    Table,
)

Point = Mapping[str, int]


def value(expression: IntExpr, point: Point) -> int:
    """An expression's value at a point."""
    if expression.op == "const":
        return int(expression.args[0])
    if expression.op == "var":
        return point[expression.args[0]]
    args = [value(arg, point) for arg in expression.args]
    if expression.op == "add":
        return sum(args)
    if expression.op == "mul":
        return math.prod(args)
    if expression.op == "floordiv":
        return args[0] // args[1]
    if expression.op == "mod":
        return args[0] % args[1]
    if expression.op == "less":
        return int(args[0] < args[1])
    if expression.op == "select":
        return args[1] if args[0] != 0 else args[2]
    return min(args) if expression.op == "min" else max(args)


def holds(constraint: Constraint, point: Point) -> bool:
    """Whether a point satisfies a constraint."""

    def at(expression: IntExpr) -> int:
        return value(expression, point)

    if isinstance(constraint, Product):
        return at(constraint.total) == math.prod(map(at, constraint.factors))
    if isinstance(constraint, Sum):
        return at(constraint.total) == sum(map(at, constraint.terms))
    if isinstance(constraint, Member):
        return at(constraint.expression) in constraint.values
    if isinstance(constraint, Select):
        index = at(constraint.index)
        inside = 0 <= index < len(constraint.options)
        return inside and at(constraint.total) == at(constraint.options[index])
    if isinstance(constraint, Divides):
        divisor = at(constraint.divisor)
        return divisor >= 1 and at(constraint.dividend) % divisor == 0
    if isinstance(constraint, Table):
        return tuple(point[name] for name in constraint.columns) in constraint.rows
    if isinstance(constraint, Clause):
        return any(holds(literal, point) for literal in constraint.literals)
    left, right = at(constraint.left), at(constraint.right)
    if isinstance(constraint, Equal):
        return left == right
    if isinstance(constraint, NotEqual):
        return left != right
    return left <= right if isinstance(constraint, AtMost) else left >= right


def within(domain: Domain, number: int) -> bool:
    """Whether a domain has a value."""
    if isinstance(domain, IntRange):
        return domain.low <= number <= domain.high
    return number in domain


def is_solution(problem: ConstraintProblem, row: tuple[int, ...]) -> bool:
    """Whether a row of values, one for each variable, solves a problem."""
    point = dict(zip((variable.name for variable in problem.variables), row, strict=True))
    inside = all(within(variable.domain, point[variable.name]) for variable in problem.variables)
    return inside and all(holds(constraint, point) for constraint in problem.constraints)


def brute_force(problem: ConstraintProblem) -> set[tuple[int, ...]]:
    """All solutions, by trying everything."""
    domains = [
        range(variable.domain.low, variable.domain.high + 1)
        if isinstance(variable.domain, IntRange)
        else sorted(set(variable.domain))
        for variable in problem.variables
    ]
    return {row for row in itertools.product(*domains) if is_solution(problem, row)}
