"""The feasible configurations of a sketch, joined group by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from autotune.errors import InvalidValueError
from autotune.nest.tape import build_tape
from autotune.sketches import ProductEquals, Sketch
from autotune.sketches.candidates import Matrix
from autotune.spaces.feasible.feasible_set import FeasibleSet
from autotune.spaces.feasible.groups import ParamGroup, parameter_groups
from autotune.spaces.feasible.plan import LayerPlan, joining_order, plan_layers
from autotune.spaces.feasible.residuals import residual_tape
from autotune.spaces.feasible.terms import Range, Ranges, Relation, Relational, Splitter

if TYPE_CHECKING:
    from autotune import _native

COMBINATION_LIMIT = 2**25
"""Pairs of a state and a signature looked at while joining; a space with more is refused."""


def build_feasible_set(sketch: Sketch, limit: int = COMBINATION_LIMIT) -> FeasibleSet:
    """The configurations of ``sketch`` that satisfy its hard and its soft constraints.

    :attr:`FeasibleSet.count` is 0 where there is none.

    Raises:
        InvalidValueError: the products do not say what each factor divides, or the constraints
            join too many parameters: more than ``limit`` combinations had to be looked at.
    """
    title, names = f"sketch {sketch.name!r}", sketch.param_names
    constraints = [item for item in sketch.constraints if not isinstance(item, ProductEquals)]
    graph = join_groups(title, len(names), parameter_groups(sketch), constraints, limit)
    return FeasibleSet(title, names, graph)


def join_groups(
    title: str,
    width: int,
    groups: Sequence[ParamGroup],
    constraints: Sequence[Relational],
    limit: int = COMBINATION_LIMIT,
) -> _native.FeasibleSet:
    """The graph of all points: one row of every group, such that the constraints hold.

    Every one of ``width`` columns belongs to exactly one group; ``title`` is for messages.

    Raises:
        InvalidValueError: a constraint uses another name, or more than ``limit`` combinations had
            to be looked at.
    """
    from autotune import _native

    owners = {name: index for index, group in enumerate(groups) for name in group.names}
    splitter = Splitter(owners, len(groups))
    alone, joint = _by_groups(constraints, splitter)
    groups = [_filtered(group, alone.get(1 << i, [])) for i, group in enumerate(groups)]
    if not _holds(alone.get(0, [])):
        groups = [ParamGroup(group.names, group.columns, group.rows[:0]) for group in groups]
    relations = [splitter.relation(constraint) for constraint in joint]
    signatures = [_signatures(group, splitter, i) for i, group in enumerate(groups)]
    plans = _plans(relations, signatures)
    try:
        return _native.FeasibleSet(
            width,
            [
                (list(groups[plan.group].columns), groups[plan.group].rows, signatures[plan.group])
                for plan in plans
            ],
            [_native_plan(plan) for plan in plans],
            limit,
        )
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidValueError(f"{title}: {error}") from error


def _by_groups(
    constraints: Sequence[Relational], splitter: Splitter
) -> tuple[dict[int, list[Relational]], list[Relational]]:
    """Constraints on one group by its bit (on none by 0), and those between groups."""
    alone: dict[int, list[Relational]] = {}
    joint: list[Relational] = []
    for constraint in constraints:
        mask = splitter.groups_of(constraint.expression)
        if mask & (mask - 1):
            joint.append(constraint)
        else:
            alone.setdefault(mask, []).append(constraint)
    return alone, joint


def _holds(constraints: Sequence[Relational]) -> bool:
    """Return whether constraints without parameters hold."""
    residuals = residual_tape((), constraints).evaluate(np.zeros((1, 0), dtype=np.int64))
    return not residuals.any()


def _filtered(group: ParamGroup, constraints: Sequence[Relational]) -> ParamGroup:
    """The group without the rows that its own constraints exclude."""
    if not constraints or len(group.rows) == 0:
        return group
    residuals = residual_tape(group.names, constraints).evaluate(group.rows)
    kept = np.ascontiguousarray(group.rows[~residuals.any(axis=1)])
    return ParamGroup(group.names, group.columns, kept)


def _signatures(group: ParamGroup, splitter: Splitter, index: int) -> Matrix:
    """The values of each row in the constraints between groups, [m, columns]."""
    expressions = splitter.columns[index]
    if not expressions:
        return np.zeros((len(group.rows), 0), dtype=np.int64)
    named = {str(column): expression for expression, column in expressions.items()}
    return build_tape(group.names, named).evaluate(group.rows)


def _plans(relations: Sequence[Relation], signatures: Sequence[Matrix]) -> list[LayerPlan]:
    ranges: list[list[Range]] = []
    for seen in signatures:
        empty = len(seen) == 0
        low = np.zeros(seen.shape[1], np.int64) if empty else seen.min(axis=0)
        high = low if empty else seen.max(axis=0)
        ranges.append(list(zip(low.tolist(), high.tolist(), strict=True)))
    order = joining_order(relations, [len(seen) for seen in signatures])
    widths = [seen.shape[1] for seen in signatures]
    return plan_layers(relations, order, widths, Ranges(ranges))


def _native_plan(
    plan: LayerPlan,
) -> tuple[_native.TapeProgram | None, int, list[tuple[list[int], list[int]]]]:
    checks = [
        (
            [check.lower, check.upper, check.least, check.most, check.first, check.last],
            list(check.values),
        )
        for check in plan.checks
    ]
    return (None if plan.tape is None else plan.tape.program, plan.state, checks)
