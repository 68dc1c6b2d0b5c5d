"""Joint values of parameters that constraints tie together, listed one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.errors import InvalidValueError
from autotune.sketches.candidates import Matrix
from autotune.spaces.parameters.conditions import Condition
from autotune.spaces.parameters.parameter import Parameter
from autotune.spaces.parameters.translation import values_of

__all__ = ["TABLE_LIMIT", "clusters", "joint_values"]

TABLE_LIMIT = 4_000_000
"""Most joint values of one cluster that are kept in memory."""
_ROWS_AT_ONCE = 1 << 16


def clusters(conditions: Sequence[Condition]) -> list[frozenset[str]]:
    """Parameters that the conditions tie together, directly or through others."""
    found: list[frozenset[str]] = []
    for condition in conditions:
        joined = frozenset(condition.names)
        apart = []
        for cluster in found:
            if cluster & joined:
                joined |= cluster
            else:
                apart.append(cluster)
        found = [*apart, joined]
    return found


def joint_values(
    parameters: Sequence[Parameter], conditions: Sequence[Condition], limit: int = TABLE_LIMIT
) -> Matrix:
    """Every row of columns of ``parameters`` for which all conditions hold; [m, parameters].

    Parameters are joined one after the other, and each condition is looked at as soon as all of
    its parameters are there.

    Raises:
        InvalidValueError: there are more than ``limit`` at some moment, or a condition cannot be
            computed.
    """
    ordered = _joining_order(parameters, conditions)
    names: list[str] = []
    # Positions of values, not the values: conditions look the values up.
    table = np.zeros((1, 0), dtype=np.int32)
    values = {parameter.name: values_of(parameter) for parameter in parameters}
    open_conditions = list(conditions)
    for parameter in ordered:
        names.append(parameter.name)
        ready = [it for it in open_conditions if set(it.names) <= set(names)]
        open_conditions = [it for it in open_conditions if it not in ready]
        table = _extended(table, names, ready, values, limit)
    columns = {
        parameter.name: np.array(parameter.column.values, dtype=np.int64)[table[:, place]]
        for place, parameter in enumerate(ordered)
    }
    if not parameters:
        return np.zeros((1, 0), dtype=np.int64)
    rows = np.column_stack([columns[parameter.name] for parameter in parameters])
    return np.ascontiguousarray(rows[np.lexsort(rows.T[::-1])])


def _extended(
    table: np.ndarray[tuple[int, int], np.dtype[np.int32]],
    names: Sequence[str],
    conditions: Sequence[Condition],
    values: Mapping[str, np.ndarray[tuple[int], np.dtype[np.generic]]],
    limit: int,
) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    """The rows of ``table`` with each value of the last name, where the conditions hold."""
    parts, count = [], 0
    choices = len(values[names[-1]])
    # As many at once as keep arrays small, however long either side is.
    step = max(1, _ROWS_AT_ONCE // max(1, len(table)))
    for first in range(0, choices, step):
        positions = np.arange(first, min(first + step, choices), dtype=np.int32)
        grown = np.column_stack(
            [np.tile(table, (len(positions), 1)), np.repeat(positions, len(table))]
        )
        for condition in conditions:
            if len(grown):
                columns = {it: values[it][grown[:, names.index(it)]] for it in condition.names}
                grown = grown[condition.holds(columns)]
        parts.append(grown)
        count += len(grown)
        if count > limit:
            raise InvalidValueError(
                f"parameters {', '.join(names)} have more than {limit} joint values: constraints "
                "over whole numbers below 2**62 with + - * // % and comparisons need no list of "
                "them"
            )
    return np.concatenate(parts)


def _joining_order(
    parameters: Sequence[Parameter], conditions: Sequence[Condition]
) -> list[Parameter]:
    """An order in which conditions can be looked at early: those soonest complete first."""
    left = {parameter.name: parameter for parameter in parameters}
    joined: list[Parameter] = []
    while left:
        waiting = [set(it.names) & set(left) for it in conditions]
        nearest = min((it for it in waiting if it), key=len, default=set(left))
        for name in [it for it in left if it in nearest]:
            joined.append(left.pop(name))
    return joined
