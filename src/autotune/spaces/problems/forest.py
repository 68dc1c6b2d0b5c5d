"""Products that form trees: an extent, its factors, their factors, and so on.

Splitting a loop gives one level of such a tree, splitting the inner loop again the next. All
leaves of a tree together are one ordered factorisation of its root, which is listed as a table;
what is in between follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from autotune.ir.expressions import IntExpr, product, var
from autotune.spaces.problems.domains import smallest
from autotune.spaces.problems.vocabulary import Constraint, Domain, Product

__all__ = ["Tree", "product_trees"]


@frozen
class Tree:
    """Factors of one root.

    Attributes:
        root: A constant or the name of a variable.
        leaves: Variables whose product with ``constant`` is the root.
        constant: What constants among the factors multiply to.
        inner: Variables between root and leaves, as products.
        constraints: Positions of the products in the list that they come from.
    """

    root: int | str
    leaves: tuple[str, ...]
    constant: int
    inner: tuple[tuple[str, IntExpr], ...]
    constraints: tuple[int, ...]


@frozen
class _Forest:
    children: dict[str | int, tuple[str, ...]] = field(factory=dict)
    coefficients: dict[str | int, int] = field(factory=dict)
    accepted: dict[str | int, int] = field(factory=dict)
    parents: dict[str, str | int] = field(factory=dict)

    def root(self, name: str) -> str | int:
        above: str | int = name
        while isinstance(above, str) and above in self.parents:
            above = self.parents[above]
        return above


def product_trees(
    constraints: Sequence[Constraint], domains: Mapping[str, Domain], taken: frozenset[str]
) -> list[Tree]:
    """The products that can be listed together; others stay constraints like any.

    A product takes part when its factors are variables and constants, all positive, and no factor
    is one already; those with many factors come first. Variables in ``taken`` take no part.
    """
    forest = _Forest()
    order = sorted(
        (index for index, item in enumerate(constraints) if isinstance(item, Product)),
        key=lambda index: -len(_names(constraints[index]) or ()),
    )
    for index in order:
        constraint = constraints[index]
        assert isinstance(constraint, Product)
        _grow(forest, index, constraint, domains, taken)
    roots = [key for key in forest.children if isinstance(key, int) or key not in forest.parents]
    return [_tree(forest, constraints, root) for root in roots]


def _names(constraint: Constraint) -> tuple[str, ...] | None:
    """The variables among the factors; None where a factor is an expression."""
    assert isinstance(constraint, Product)
    if any(factor.op not in ("var", "const") for factor in constraint.factors):
        return None
    return tuple(factor.args[0] for factor in constraint.factors if factor.op == "var")


def _grow(
    forest: _Forest,
    index: int,
    constraint: Product,
    domains: Mapping[str, Domain],
    taken: frozenset[str],
) -> None:
    """Adds a product to the forest if it fits there."""
    names, total = _names(constraint), constraint.total
    if not names or len(set(names)) < len(names) or total.op not in ("var", "const"):
        return
    coefficient = product([f for f in constraint.factors if f.op == "const"]).value or 0
    used = {*names, *total.variables}
    if used & taken or any(smallest(domains[name]) < 1 for name in used) or coefficient < 1:
        return
    # Constants are roots of their own, told apart by a negative key.
    key: str | int = total.args[0] if total.op == "var" else -1 - index
    if key in forest.children or any(name in forest.parents for name in names):
        return
    if isinstance(key, str):
        listed = isinstance(domains[key], tuple) or key in forest.parents
        if not listed or forest.root(key) in names or key in names:
            return
    elif (total.value or 0) < 1:
        return
    forest.children[key] = names
    forest.coefficients[key] = coefficient
    forest.accepted[key] = index
    forest.parents.update(dict.fromkeys(names, key))


def _tree(forest: _Forest, constraints: Sequence[Constraint], root: str | int) -> Tree:
    leaves: list[str] = []
    inner: list[tuple[str, IntExpr]] = []
    used: list[int] = []

    def visit(key: str | int) -> tuple[IntExpr, int]:
        """The product of the leaves below, and of the constants."""
        if key not in forest.children:
            assert isinstance(key, str)
            leaves.append(key)
            return var(key), 1
        used.append(forest.accepted[key])
        below = [visit(child) for child in forest.children[key]]
        constant = forest.coefficients[key]
        for _, coefficient in below:
            constant *= coefficient
        expression = product([part for part, _ in below])
        if key != root and isinstance(key, str):
            inner.append((key, expression * constant))
        return expression, constant

    _, constant = visit(root)
    if isinstance(root, int):
        total = constraints[forest.accepted[root]]
        assert isinstance(total, Product)
        return Tree(total.total.value or 0, tuple(leaves), constant, tuple(inner), tuple(used))
    return Tree(root, tuple(leaves), constant, tuple(inner), tuple(used))
