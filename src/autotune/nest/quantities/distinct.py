"""Distinct values of an index: the elements touched, without gaps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from autotune.ir.expressions import IntExpr, const, maximum, minimum
from autotune.nest.loop_nest import extended

__all__ = ["distinct"]

Term = tuple[IntExpr, IntExpr]


def distinct(terms: Sequence[Term]) -> IntExpr:
    """Number of distinct values of ``sum(step * at)`` with each ``at`` in ``range(reach)``.

    ``terms`` are ``(step, reach)`` pairs of positive expressions, as
    :meth:`~autotune.nest.Statement.terms` lists them.

    *Two constant steps* ``a`` and ``b``, made coprime, over ``T`` and ``K`` values: two points
    share a value exactly when they differ by a multiple of ``(b, -a)``, so that ``T*K`` points
    take ``T*K - max(T - b, 0) * max(K - a, 0)`` values. Exact.

    *More terms*: points that a subset of the terms reaches lie in their hull, and the other terms
    repeat it at most as often as they have values; the smallest of these products is taken. That
    is exact when, taken by rising step, every term either continues the run of values so far or
    leaves gaps that no later term fills. Row-major indices are such, and copied tiles of windows
    that have a stride or a dilation of 1; otherwise the result is an upper bound.
    """
    moving = [(step, reach) for step, reach in terms if reach.value != 1]
    free = [(step, reach) for step, reach in moving if step.value is None]
    fixed = [(step.value, reach) for step, reach in moving if step.value is not None]
    common = 1 if free else math.gcd(*(step for step, _ in fixed))
    rising = sorted(((step // common, reach) for step, reach in fixed), key=lambda term: term[0])
    return _with_free_steps(*_with_fixed_steps(rising), free)


def _with_fixed_steps(terms: Sequence[tuple[int, IntExpr]]) -> tuple[IntExpr, IntExpr]:
    """Distinct values of terms by rising constant step, and the hull of these values."""
    count, hull = const(1), const(1)
    for position, (step, reach) in enumerate(terms):
        hull = hull + (reach - 1) * step
        if position == 0:
            count = reach
        elif position == 1:
            count = _two(*terms[0], step, reach)
        else:
            count = minimum(count * reach, hull)
    return count, hull


def _two(a: int, first: IntExpr, b: int, second: IntExpr) -> IntExpr:
    common = math.gcd(a, b)
    shared = maximum(first - b // common, 0) * maximum(second - a // common, 0)
    return first * second - shared


def _with_free_steps(count: IntExpr, hull: IntExpr, terms: Sequence[Term]) -> IntExpr:
    """The smallest of: the hull of some terms, times the values of the others."""
    best = count
    for _, reach in terms:
        best = best * reach
    for size in range(1, len(terms) + 1):
        for chosen in itertools.combinations(range(len(terms)), size):
            bound = hull
            for index in chosen:
                step, reach = terms[index]
                bound = extended(bound, step, reach)
            for index, (_, reach) in enumerate(terms):
                bound = bound * (const(1) if index in chosen else reach)
            best = minimum(best, bound)
    return best
