"""The feasible set of a sketch in numpy and in plain integers.

Two slow oracles of :mod:`autotune.spaces.feasible`: :func:`brute_force` tries everything, and
:func:`joined_rows` joins column by column, which reaches further.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from autotune.ir.expressions.integer import evaluate
from autotune.sketches import AtLeast, AtMost, Constraint, Param, ProductEquals, Sketch


def domain(sketch: Sketch, param: Param) -> list[int]:
    """Every value a parameter may have: for a factor, whatever divides one of its totals."""
    if param.values is not None:
        return sorted(set(param.values))
    totals: set[int] = set()
    for constraint in sketch.constraints:
        if isinstance(constraint, ProductEquals) and param.name in constraint.factors:
            value = constraint.total.value
            if value is not None:
                totals.add(value)
            else:
                (name,) = constraint.total.variables
                totals.update(next(p.values or () for p in sketch.params if p.name == name))
    return sorted({d for total in totals for d in range(1, total + 1) if total % d == 0})


def holds(constraint: Constraint, config: Mapping[str, Any]) -> Any:
    """Tell whether a configuration satisfies a constraint, or which columns of numbers do."""
    if isinstance(constraint, ProductEquals):
        product = math.prod(config[name] for name in constraint.factors)
        return product == evaluate(constraint.total, config)
    value = evaluate(constraint.expression, config)
    if isinstance(constraint, AtMost):
        return value <= constraint.limit
    if isinstance(constraint, AtLeast):
        return value >= constraint.limit
    return np.isin(value, constraint.values)


def violation(constraint: Constraint, config: Mapping[str, int]) -> int:
    """By how much a configuration violates a constraint; 0 where it holds."""
    if isinstance(constraint, ProductEquals):
        product = math.prod(config[name] for name in constraint.factors)
        return abs(product - int(evaluate(constraint.total, config)))
    value = int(evaluate(constraint.expression, config))
    if isinstance(constraint, AtMost):
        return max(0, value - constraint.limit)
    if isinstance(constraint, AtLeast):
        return max(0, constraint.limit - value)
    return min(abs(value - allowed) for allowed in constraint.values)


def brute_force(sketch: Sketch) -> set[tuple[int, ...]]:
    """Every feasible row, by trying everything."""
    names = sketch.param_names
    domains = [domain(sketch, param) for param in sketch.params]
    return {
        row
        for row in itertools.product(*domains)
        if all(holds(c, dict(zip(names, row, strict=True))) for c in sketch.constraints)
    }


def factorization_count(value: int, parts: int) -> int:
    """``F_parts(value)``: for each prime power ``p**e``, the ways to share out ``e``."""
    result, rest, prime = 1, value, 2
    while rest > 1:
        exponent = 0
        while rest % prime == 0:
            rest, exponent = rest // prime, exponent + 1
        result *= math.comb(exponent + parts - 1, parts - 1)
        prime += 1
    return result


def joined_rows(sketch: Sketch) -> set[tuple[int, ...]]:
    """Every feasible row, joined column by column: further than :func:`brute_force` reaches.

    A constraint is applied as soon as all that it names is joined, and a product before: what is
    joined of its factors divides it.
    """
    rows = np.zeros((1, 0), dtype=np.int64)
    for param in sketch.params:
        values = np.array(domain(sketch, param), dtype=np.int64)
        column = np.tile(values, len(rows))
        rows = np.column_stack([np.repeat(rows, len(values), axis=0), column])
        for it in sketch.constraints:
            env = dict(zip(sketch.param_names, rows.T, strict=False))
            good: Any = True
            if it.names <= env.keys():
                good = holds(it, env)
            elif isinstance(it, ProductEquals) and it.total.variables <= env.keys():
                joined = math.prod(env[name] for name in it.factors if name in env)
                good = evaluate(it.total, env) % joined == 0
            rows = rows[np.broadcast_to(good, len(rows))]
    return set(map(tuple, rows.tolist()))
