"""The smallest rules that hold for rows that failed and for no row that passed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

__all__ = ["Condition", "Rule", "separating_rules"]

from autotune.sketches.candidates import Matrix

Mask = NDArray[np.bool_]

CHANCE = 0.01
"""A rule is proposed only where chance would produce one like it less often than this."""

MOST_VALUES = 64
"""Values of one variable that conditions are made of."""

_RELATIONS: dict[str, Callable[[Any, int], Any]] = {
    "at_least": lambda values, limit: values >= limit,
    "at_most": lambda values, limit: values <= limit,
    "equals": lambda values, limit: values == limit,
}
_SIGNS = {"at_least": ">=", "at_most": "<=", "equals": "="}


@frozen
class Condition:
    """A variable against a value.

    Attributes:
        variable: Name of the variable.
        relation: ``at_least``, ``at_most`` or ``equals``.
        value: The value.
    """

    variable: str
    relation: str
    value: int

    def holds(self, values: NDArray[np.int64]) -> Mask:
        """Mark the values of the variable for which it holds, [n]."""
        return np.asarray(_RELATIONS[self.relation](values, self.value), dtype=np.bool_)

    def __str__(self) -> str:
        return f"{self.variable} {_SIGNS[self.relation]} {self.value}"


@frozen
class Rule:
    """Conditions, one or two, that hold together for failures only.

    Attributes:
        conditions: The conditions; the constraint that they suggest is that not all hold.
        failures: Failed rows for which they hold, those of earlier rules left out.
        chance: Bound on the probability that rows which fail by chance give such a rule.
    """

    conditions: tuple[Condition, ...]
    failures: int
    chance: float

    def holds(self, names: Sequence[str], matrix: Matrix) -> Mask:
        """Mark the rows [n, variables] for which all conditions hold; shape [n]."""
        held = np.ones(len(matrix), dtype=np.bool_)
        for condition in self.conditions:
            held &= condition.holds(matrix[:, list(names).index(condition.variable)])
        return held

    def __str__(self) -> str:
        return " and ".join(map(str, self.conditions))

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "never": [{"variable": it.variable, it.relation: it.value} for it in self.conditions],
            "failures": self.failures,
            "chance": self.chance,
        }


def separating_rules(
    names: Sequence[str], passed: Matrix, failed: Matrix, chance: float = CHANCE
) -> list[Rule]:
    """Rules over at most two variables that hold for some failures and for nothing that passed.

    One after the other, each for failures that no earlier one explains. Of all such rules that
    one is taken which chance would produce most rarely: n rows, f of them failed, of which a rule
    holds for s and for no other; that s given rows are all failures has the chance
    C(f, s) / C(n, s), and there are so many rules of its size to try. So a second variable has
    to earn its place.

    Args:
        names: Names of the variables.
        passed: Values of rows that passed [p, variables].
        failed: Values of rows that failed [f, variables].
        chance: Rules that chance may produce more often than this are not proposed.
    """
    rules: list[Rule] = []
    while len(failed) and names:
        conditions = _conditions(names, failed)
        best = min(
            (
                Rule(found, count, _chance(len(passed), len(failed), count) * tried)
                for found, count, tried in _widest(names, passed, failed, conditions)
            ),
            key=lambda rule: rule.chance,
            default=None,
        )
        if best is None or best.chance > chance:
            break
        rules.append(best)
        failed = failed[~best.holds(names, failed)]
    return rules


def _chance(passed: int, failed: int, explained: int) -> float:
    """C(f, s) / C(f + p, s)."""
    return math.prod((failed - i) / (failed + passed - i) for i in range(explained))


def _conditions(names: Sequence[str], failed: Matrix) -> list[Condition]:
    """Every condition with a value that some failure has; of many values, some evenly spread."""
    found = []
    for name, column in zip(names, failed.T, strict=True):
        values = np.unique(column)
        if len(values) > MOST_VALUES:
            values = values[np.linspace(0, len(values) - 1, MOST_VALUES).astype(np.int64)]
        found += [Condition(name, *it) for it in itertools.product(_RELATIONS, values.tolist())]
    return found


def _widest(
    names: Sequence[str], passed: Matrix, failed: Matrix, conditions: Sequence[Condition]
) -> Iterator[tuple[tuple[Condition, ...], int, int]]:
    """The condition, and the pair, for most failures of those that hold for no passed row.

    Yields:
        Conditions, failures that they hold for, and how many such rules there are to try.
    """
    variables = np.array([names.index(it.variable) for it in conditions], dtype=np.int64)
    good = _held(passed, variables, conditions)
    bad = _held(failed, variables, conditions)
    explained = np.where(good.any(axis=1), 0, bad.sum(axis=1))
    first = int(explained.argmax())
    if explained[first]:
        yield (conditions[first],), int(explained[first]), len(conditions)
    # Rows that both of a pair hold for, for all pairs at once; sums below 2**24 are exact.
    both = bad @ bad.T
    both[(good @ good.T > 0) | (variables[:, None] >= variables)] = 0
    left, right = divmod(int(both.argmax()), len(conditions))
    if both[left, right]:
        pairs = int((variables[:, None] < variables).sum())
        yield (conditions[left], conditions[right]), int(both[left, right]), pairs


def _held(
    matrix: Matrix, variables: NDArray[np.int64], conditions: Sequence[Condition]
) -> NDArray[np.float32]:
    """Return whether each condition holds for each row, as 0 and 1 [conditions, n]."""
    held = np.empty((len(conditions), len(matrix)), dtype=np.float32)
    for row, (variable, condition) in enumerate(zip(variables, conditions, strict=True)):
        held[row] = condition.holds(matrix[:, variable])
    return held
