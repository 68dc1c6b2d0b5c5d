"""What has to be decided in a problem, and what follows from that."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import evolve, field, frozen

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr, product, var
from autotune.sketches.candidates import Matrix
from autotune.spaces.feasible import (
    ParamGroup,
    Range,
    Relational,
    expression_range,
    ordered_factorizations,
)
from autotune.spaces.problems.domains import narrowed_domains
from autotune.spaces.problems.forest import Tree, product_trees
from autotune.spaces.problems.problem import ConstraintProblem
from autotune.spaces.problems.relations import between, chosen, one_of, relations
from autotune.spaces.problems.vocabulary import (
    Constraint,
    Domain,
    Equal,
    IntRange,
    Product,
    Select,
    Sum,
    Table,
)
from autotune.spaces.problems.wording import domain_text

__all__ = ["Reduced", "reduced"]


@frozen(eq=False)
class Reduced:
    """A problem in the form that feasible sets are built from.

    Attributes:
        decided: Variables that are chosen; the columns of the groups refer to them.
        groups: Every decided variable in one group with the values that it may have.
        relations: What has to hold between them.
        definitions: The other variables as expressions of the decided ones.
    """

    decided: tuple[str, ...]
    groups: tuple[ParamGroup, ...]
    relations: tuple[Relational, ...]
    definitions: dict[str, IntExpr]


@frozen(eq=False)
class _Work:
    """The elimination of one problem, as far as it has come."""

    problem: ConstraintProblem
    domains: Mapping[str, Domain]
    used: set[int] = field(factory=set)
    tables: list[tuple[tuple[str, ...], Matrix]] = field(factory=list)
    definitions: dict[str, IntExpr] = field(factory=dict)

    @property
    def taken(self) -> frozenset[str]:
        return frozenset(name for names, _ in self.tables for name in names)


def reduced(problem: ConstraintProblem) -> Reduced:
    """Tables and trees of products become groups; whatever names a quantity is replaced by it.

    Raises:
        InvalidValueError: a variable that nothing defines has too many values to be listed.
    """
    work = _Work(problem, narrowed_domains(problem))
    _take_tables(work)
    # Quantities that only bound others are computed, not listed.
    computed = {item.name for item in problem.variables if item.kind in ("memory", "derived")}
    for tree in product_trees(problem.constraints, work.domains, work.taken | computed):
        _take_tree(work, tree)
    _take_definitions(work)
    for variable in problem.variables:
        if variable.name not in work.definitions and variable.name not in work.taken:
            values = _listed(problem, variable.name, work.domains[variable.name])
            work.tables.append(((variable.name,), np.array(values, dtype=np.int64)[:, None]))
    decided = tuple(name for name in problem.variable_names if name in work.taken)
    position = {name: index for index, name in enumerate(decided)}
    groups = [
        ParamGroup(names, tuple(position[name] for name in names), np.ascontiguousarray(rows))
        for names, rows in work.tables
    ]
    definitions = _resolved(work.definitions)
    return Reduced(decided, tuple(groups), tuple(_relations(work, definitions)), definitions)


def _take_tables(work: _Work) -> None:
    for index, constraint in enumerate(work.problem.constraints):
        if isinstance(constraint, Table) and not set(constraint.columns) & work.taken:
            width = len(constraint.columns)
            rows = np.array(sorted(set(constraint.rows)), dtype=np.int64).reshape(-1, width)
            work.tables.append((constraint.columns, rows))
            work.used.add(index)


def _take_tree(work: _Work, tree: Tree) -> None:
    leaves = [work.domains[name] for name in tree.leaves]
    listed = [domain if isinstance(domain, tuple) else None for domain in leaves]
    if isinstance(tree.root, int):
        names, totals = tree.leaves, [tree.root]
    else:
        names, root = (tree.root, *tree.leaves), work.domains[tree.root]
        totals = list(_listed(work.problem, tree.root, root))
    parts = [np.empty((0, len(names)), dtype=np.int64)]
    for total in totals:
        if total >= 1 and total % tree.constant == 0:
            rows = ordered_factorizations(total // tree.constant, listed)
            extents = np.full((len(rows), len(names) - len(leaves)), total)
            parts.append(np.hstack([extents, rows]))
    work.tables.append((names, np.concatenate(parts)))
    work.definitions.update(tree.inner)
    work.used.update(tree.constraints)


def _take_definitions(work: _Work) -> None:
    """Variables that a constraint gives, unless something already decides or defines them.

    A constant defines nothing: such a variable is decided, so that some variable always is.
    """
    for index, constraint in enumerate(work.problem.constraints):
        if index in work.used:
            continue
        for name, expression in _given(constraint):
            if name in work.definitions or name in work.taken or not expression.variables:
                continue
            if _replaceable(work, name) and not _depends(work, expression, name):
                work.definitions[name] = expression
                if not isinstance(constraint, Select):
                    work.used.add(index)
                break


def _given(constraint: Constraint) -> list[tuple[str, IntExpr]]:
    """Variables that a constraint expresses through others."""
    if isinstance(constraint, Product):
        pairs = [(constraint.total, product(constraint.factors))]
    elif isinstance(constraint, Sum):
        pairs = [(constraint.total, sum(constraint.terms, IntExpr("const", (0,))))]
    elif isinstance(constraint, Select):
        pairs = [(constraint.total, chosen(constraint))]
    elif isinstance(constraint, Equal):
        pairs = [(constraint.left, constraint.right), (constraint.right, constraint.left)]
    else:
        return []
    return [(target.args[0], expression) for target, expression in pairs if target.op == "var"]


def _replaceable(work: _Work, name: str) -> bool:
    kinds = {variable.name: variable.kind for variable in work.problem.variables}
    return kinds[name] != "parameter" or isinstance(work.domains[name], IntRange)


def _depends(work: _Work, expression: IntExpr, name: str) -> bool:
    """Whether an expression depends on a variable, also through definitions."""
    seen: set[str] = set()
    waiting = list(expression.variables)
    while waiting:
        used = waiting.pop()
        if used == name:
            return True
        if used not in seen and used in work.definitions:
            waiting.extend(work.definitions[used].variables)
        seen.add(used)
    return False


def _listed(problem: ConstraintProblem, name: str, domain: Domain) -> tuple[int, ...]:
    if isinstance(domain, IntRange):
        raise InvalidValueError(
            f"problem {problem.name!r}: no constraint says what {name!r} follows from, and its "
            f"values {domain_text(domain)} are too many to be listed"
        )
    return domain


def _resolved(definitions: Mapping[str, IntExpr]) -> dict[str, IntExpr]:
    """Definitions without other defined variables in them."""
    result: dict[str, IntExpr] = {}

    def resolve(name: str) -> IntExpr:
        if name not in result:
            expression = definitions[name]
            inner = {used: resolve(used) for used in expression.variables if used in definitions}
            result[name] = expression.substitute(inner)
        return result[name]

    for name in definitions:
        resolve(name)
    return result


def _relations(work: _Work, definitions: Mapping[str, IntExpr]) -> list[Relational]:
    """Constraints that are left, and the domains that nothing has looked at yet."""
    found: list[Relational] = []
    for index, constraint in enumerate(work.problem.constraints):
        if index not in work.used:
            found.extend(relations(constraint))
    columns = {name: rows[:, i] for names, rows in work.tables for i, name in enumerate(names)}
    ranges = {name: _ends(rows) for name, rows in columns.items()}
    for variable in work.problem.variables:
        name, domain = variable.name, variable.domain
        if name in columns:
            implied = _inside(domain, columns[name])
        else:
            low, high = expression_range(definitions[name], ranges)
            implied = isinstance(domain, IntRange) and domain.low <= low and high <= domain.high
        if implied:
            continue
        if isinstance(domain, IntRange):
            found.extend(between(var(name), domain.low, domain.high))
        else:
            found.append(one_of(var(name), domain))
    return [_substituted(relation, definitions) for relation in found]


def _ends(values: Matrix) -> Range:
    return (int(values.min()), int(values.max())) if len(values) else (0, 0)


def _inside(domain: Domain, values: Matrix) -> bool:
    """Whether a domain holds all these values."""
    if isinstance(domain, IntRange):
        return bool(((values >= domain.low) & (values <= domain.high)).all())
    return bool(np.isin(values, np.array(domain, dtype=np.int64)).all())


def _substituted(relation: Relational, definitions: Mapping[str, IntExpr]) -> Relational:
    return evolve(relation, expression=relation.expression.substitute(definitions))
