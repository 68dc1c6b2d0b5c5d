"""The feasible set of a sketch in numpy and in plain integers.

Two slow oracles of :mod:`autotune.spaces.feasible`: :func:`brute_force` tries everything, and
:func:`joined_rows` joins tables of factors, which reaches further.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from autotune.ir.expressions.integer import evaluate
from autotune.sketches import (
    AtLeast,
    AtMost,
    Constraint,
    Param,
    ProductEquals,
    Sketch,
)
from autotune.sketches.candidates import Matrix


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


def holds(constraint: Constraint, config: Mapping[str, int]) -> bool:
    """Tell whether a configuration satisfies a constraint, in plain integers."""
    if isinstance(constraint, ProductEquals):
        product = math.prod(config[name] for name in constraint.factors)
        return bool(product == evaluate(constraint.total, config))
    value = evaluate(constraint.expression, config)
    if isinstance(constraint, AtMost):
        return bool(value <= constraint.limit)
    if isinstance(constraint, AtLeast):
        return bool(value >= constraint.limit)
    return value in constraint.values


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


def constraint_mask(constraint: Constraint, env: Mapping[str, Matrix]) -> NDArray[np.bool_]:
    """Mask of the rows where ``constraint`` holds, for columns given by parameter name."""
    if isinstance(constraint, ProductEquals):
        product = np.ones((), dtype=np.int64)
        for name in constraint.factors:
            product = product * env[name]
        return np.asarray(product == evaluate(constraint.total, env))
    value = np.asarray(evaluate(constraint.expression, env))
    if isinstance(constraint, AtMost):
        return np.asarray(value <= constraint.limit)
    if isinstance(constraint, AtLeast):
        return np.asarray(value >= constraint.limit)
    return np.isin(value, constraint.values)


def ordered_factorizations(total: int, domains: list[tuple[int, ...] | None]) -> Matrix:
    """Every tuple of factors with the given product, lexicographic; shape [m, len(domains)]."""
    rows: list[tuple[int, ...]] = []

    def extend(prefix: tuple[int, ...], rest: int) -> None:
        position = len(prefix)
        domain = domains[position]
        if position == len(domains) - 1:
            if domain is None or rest in domain:
                rows.append((*prefix, rest))
            return
        for value in _divisors(rest) if domain is None else sorted(domain):
            if rest % value == 0:
                extend((*prefix, value), rest // value)

    extend((), total)
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(domains))


def _divisors(value: int) -> list[int]:
    small = [d for d in range(1, int(value**0.5) + 1) if value % d == 0]
    return small + [value // d for d in reversed(small) if d * d != value]


def joined_rows(sketch: Sketch) -> set[tuple[int, ...]]:
    """Every feasible row, joined group by group: further than :func:`brute_force` reaches.

    A group is the factors of one product, with the padded extent they multiply to, or a parameter
    of its own. A constraint is applied as soon as all that it names is joined.
    """
    env: dict[str, Matrix] = {}
    pending = [it for it in sketch.constraints if not isinstance(it, ProductEquals)]
    for names, rows in _groups(sketch):
        count = len(next(iter(env.values()))) if env else 1
        env = {name: np.repeat(column, len(rows)) for name, column in env.items()}
        env |= {name: np.tile(rows[:, at], count) for at, name in enumerate(names)}
        decided = [it for it in pending if it.expression.variables <= env.keys()]
        pending = [it for it in pending if it not in decided]
        mask = np.ones(count * len(rows), dtype=np.bool_)
        for constraint in decided:
            mask &= constraint_mask(constraint, env)
        env = {name: column[mask] for name, column in env.items()}
    return set(zip(*(env[name].tolist() for name in sketch.param_names), strict=True))


def _groups(sketch: Sketch) -> Iterator[tuple[list[str], Matrix]]:
    """Names and joint values of every group."""
    values = {param.name: param.values for param in sketch.params}
    for constraint in sketch.constraints:
        if isinstance(constraint, ProductEquals):
            padded = sorted(constraint.total.variables)
            totals = (values[padded[0]] or ()) if padded else (constraint.total.value or 0,)
            domains = [values.pop(name) for name in constraint.factors]
            rows = [
                (*(total,) * len(padded), *row)
                for total in totals
                for row in ordered_factorizations(total, domains).tolist()
            ]
            names = [*padded, *constraint.factors]
            for name in padded:
                del values[name]
            yield names, np.array(rows, dtype=np.int64).reshape(len(rows), len(names))
    for name, domain in values.items():
        yield [name], np.array(domain, dtype=np.int64).reshape(-1, 1)
