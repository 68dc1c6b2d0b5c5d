"""Domains made smaller before anything is counted: what single constraints already exclude.

No solution is lost, and more may remain than solutions use: exactness is for what follows. The
purpose is that extents given as intervals become the few divisors they can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import isqrt
from typing import Any

from autotune.ir.expressions import IntExpr
from autotune.spaces.problems.problem import ConstraintProblem
from autotune.spaces.problems.vocabulary import (
    AtLeast,
    AtMost,
    Domain,
    Equal,
    IntRange,
    Member,
    Product,
    Select,
    Table,
)

__all__ = ["LISTED", "narrowed_domains", "smallest"]

LISTED = 1 << 16
"""Intervals with at most this many values are treated as lists."""

_PRODUCTS = 4096
_TRIALS = 100_000
_ROUNDS = 50


def narrowed_domains(problem: ConstraintProblem) -> dict[str, Domain]:
    """For every variable values that include all those it has in a solution; lists are sorted."""
    domains = _Domains({variable.name: _listed(variable.domain) for variable in problem.variables})
    for _ in range(_ROUNDS):
        before = dict(domains.known)
        for constraint in problem.constraints:
            rule = _RULES.get(type(constraint))
            if rule is not None:
                rule(domains, constraint)
        if domains.known == before:
            break
    return domains.known


def smallest(domain: Domain) -> int:
    """The least value of a domain; 1 for an empty one, which excludes nothing further."""
    if isinstance(domain, IntRange):
        return domain.low
    return domain[0] if domain else 1


def _listed(domain: Domain) -> Domain:
    if isinstance(domain, tuple):
        return tuple(sorted(set(domain)))
    if domain.high - domain.low < LISTED:
        return tuple(range(domain.low, domain.high + 1))
    return domain


class _Domains:
    """Domains by name, that only ever shrink."""

    def __init__(self, known: dict[str, Domain]) -> None:
        self.known = known

    def of(self, operand: IntExpr) -> Domain | None:
        """The domain of a variable or a constant; None for any other expression."""
        if operand.op == "const":
            return (int(operand.args[0]),)
        return self.known[operand.args[0]] if operand.op == "var" else None

    def keep(self, operand: IntExpr, values: Iterable[int]) -> None:
        """A variable has one of these values."""
        if operand.op != "var":
            return
        name, domain = operand.args[0], self.known[operand.args[0]]
        if isinstance(domain, IntRange):
            low, high = domain.low, domain.high
            self.known[name] = tuple(sorted({v for v in values if low <= v <= high}))
        else:
            allowed = set(values)
            self.known[name] = tuple(value for value in domain if value in allowed)

    def bound(self, operand: IntExpr, low: int | None, high: int | None) -> None:
        """A variable is in this range; None: open at that end."""
        if operand.op != "var":
            return
        name, domain = operand.args[0], self.known[operand.args[0]]
        if isinstance(domain, IntRange):
            bottom = domain.low if low is None else max(low, domain.low)
            top = domain.high if high is None else min(high, domain.high)
            self.known[name] = _listed(IntRange(bottom, top)) if bottom <= top else ()
        else:
            self.known[name] = tuple(
                value
                for value in domain
                if (low is None or value >= low) and (high is None or value <= high)
            )


def _product(domains: _Domains, constraint: Product) -> None:
    parts = [domains.of(factor) for factor in constraint.factors]
    total = domains.of(constraint.total)
    if total is None or any(part is None or smallest(part) < 1 for part in parts):
        return
    if isinstance(total, tuple) and smallest(total) >= 1 and _cheap(total):
        divisors = set().union(*map(_divisors, total)) if total else set()
        for factor in constraint.factors:
            domains.keep(factor, divisors)
    products: set[int] = {1}
    for part in map(domains.of, constraint.factors):
        if not isinstance(part, tuple) or len(products) * len(part) > _PRODUCTS:
            return
        products = {value * factor for value in products for factor in part}
    domains.keep(constraint.total, products)


def _equal(domains: _Domains, constraint: Equal) -> None:
    left, right = domains.of(constraint.left), domains.of(constraint.right)
    if isinstance(right, tuple):
        domains.keep(constraint.left, right)
    if isinstance(left, tuple):
        domains.keep(constraint.right, left)


def _at_most(domains: _Domains, constraint: AtMost) -> None:
    domains.bound(constraint.left, None, constraint.right.value)
    domains.bound(constraint.right, constraint.left.value, None)


def _at_least(domains: _Domains, constraint: AtLeast) -> None:
    domains.bound(constraint.left, constraint.right.value, None)
    domains.bound(constraint.right, None, constraint.left.value)


def _member(domains: _Domains, constraint: Member) -> None:
    domains.keep(constraint.expression, constraint.values)


def _select(domains: _Domains, constraint: Select) -> None:
    domains.keep(constraint.index, range(len(constraint.options)))
    index = domains.of(constraint.index)
    positions: Sequence[int] = range(len(constraint.options))
    if isinstance(index, tuple):
        positions = [position for position in index if position in positions]
    options = [domains.of(constraint.options[position]) for position in positions]
    listed = [option for option in options if isinstance(option, tuple)]
    if len(listed) == len(options):
        domains.keep(constraint.total, set().union(*listed) if listed else ())


def _table(domains: _Domains, constraint: Table) -> None:
    for position, name in enumerate(constraint.columns):
        domains.keep(IntExpr("var", (name,)), {row[position] for row in constraint.rows})


_RULES: dict[type[Any], Callable[[_Domains, Any], None]] = {
    Product: _product,
    Equal: _equal,
    AtMost: _at_most,
    AtLeast: _at_least,
    Member: _member,
    Select: _select,
    Table: _table,
}


def _cheap(totals: Sequence[int]) -> bool:
    """Whether the divisors of all of them are found in well under a second."""
    return len(totals) <= _PRODUCTS and sum(map(isqrt, totals)) <= _TRIALS


@lru_cache(maxsize=4096)
def _divisors(value: int) -> frozenset[int]:
    found: set[int] = set()
    step = 1
    while step * step <= value:
        if value % step == 0:
            found.update((step, value // step))
        step += 1
    return frozenset(found)
