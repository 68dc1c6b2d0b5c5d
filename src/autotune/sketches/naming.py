"""Steps and sketches under other names of tensors, axes and parameters.

A step says in which of its fields it names what: ``stage``, ``producer`` and ``consumer`` are
stages, as are all of ``stages``, ``operand`` is a tensor, ``axis`` an axis of the stage, ``loop``,
``loops`` and ``at`` are loops (``at`` of the producer or consumer where there is one), and
expressions are over parameters.
This holds for steps of plugins, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from attrs import evolve, frozen

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr, var
from autotune.ir.workloads import Workload
from autotune.ir.workloads.canonical import Names
from autotune.sketches.constraints import Constraint, ProductEquals
from autotune.sketches.matrix_form import columns_name, weights_name
from autotune.sketches.rewrites import (
    added_axis,
    carried_name,
    chunk_axis,
    partial_name,
    scanned_parts_name,
)
from autotune.sketches.steps import ChunkReduction, ChunkScan, Im2col, SplitReduction, Step

__all__ = ["names_between", "renamed_constraint", "renamed_param_names", "renamed_steps"]

_OTHER_STAGES = ("producer", "consumer")


def names_between(own: Workload, other: Workload) -> Names:
    """Map names of a workload's tensors and axes to those of an equal one.

    Raises:
        InvalidValueError: the workloads are not equal.
    """
    if own.digest != other.digest:
        raise InvalidValueError(
            f"workload {other.name!r} ({other.digest}) is not {own.name!r} ({own.digest}) "
            "under other names"
        )
    back = {canonical: name for name, canonical in other.names.tensors.items()}
    tensors = {name: back[canonical] for name, canonical in own.names.tensors.items()}
    axes = {}
    for stage in own.stages:
        there = other.stage(tensors[stage.name])
        pairs = zip(stage.axes, there.axes, strict=True)
        axes[stage.name] = {axis.name: same.name for axis, same in pairs}
    return Names(tensors, axes)


def renamed_steps(
    steps: Sequence[Step], names: Names, params: Mapping[str, str]
) -> tuple[Step, ...]:
    """The same steps under other names.

    Args:
        steps: The steps.
        names: New names of tensors and axes. Those of what a split reduction adds follow.
        params: New name of each parameter.
    """
    renaming = _Renaming(
        dict(names.tensors),
        {stage: dict(axes) for stage, axes in names.axes.items()},
        {name: var(new) for name, new in params.items()},
    )
    return tuple(renaming.step(step) for step in steps)


def renamed_constraint(constraint: Constraint, params: Mapping[str, str]) -> Constraint:
    """The same relation over parameters of other names."""
    variables = {name: var(new) for name, new in params.items()}
    if isinstance(constraint, ProductEquals):
        factors = tuple(params.get(name, name) for name in constraint.factors)
        total = constraint.total.substitute(variables)
        return evolve(constraint, factors=factors, total=total)
    return evolve(constraint, expression=constraint.expression.substitute(variables))


def renamed_param_names(params: Sequence[str], names: Names) -> dict[str, str]:
    """New names of parameters that are called after stages, and after their axes or operands.

    ``C.i.0`` is about axis ``i`` of stage ``C``; one that is called after no stage keeps its name.
    """
    found = {param: _renamed_param(param, names) for param in params}
    if len(set(found.values())) < len(found):
        # An axis is called what is no axis elsewhere: the stage's name is enough.
        found = {param: _renamed_param(param, Names(names.tensors, {})) for param in params}
    return (
        found if len(set(found.values())) == len(found) else dict(zip(params, params, strict=True))
    )


def _renamed_param(param: str, names: Names) -> str:
    stages = [name for name in names.tensors if param.startswith(f"{name}.")]
    if not stages:
        return param
    stage = max(stages, key=len)
    rest = param[len(stage) + 1 :]
    own = names.axes.get(stage)
    if own is None:
        return f"{names.tensors[stage]}.{rest}"
    for known in (own, names.tensors):
        for name in sorted(known, key=len, reverse=True):
            if rest.startswith(f"{name}."):
                return f"{names.tensors[stage]}.{known[name]}.{rest[len(name) + 1 :]}"
    return f"{names.tensors[stage]}.{rest}"


@frozen
class _Renaming:
    """New names; a split reduction adds some, as does a product of matrices."""

    tensors: dict[str, str]
    axes: dict[str, dict[str, str]]
    params: dict[str, IntExpr]

    def step(self, step: Step) -> Step:
        """The step under its new names."""
        if isinstance(step, (SplitReduction, ChunkReduction)):
            self._add_partial(step)
        if isinstance(step, ChunkScan):
            self._add_parts(step)
        if isinstance(step, Im2col):
            for name_of in (columns_name, weights_name):
                self.tensors[name_of(step.stage)] = name_of(
                    self.tensors.get(step.stage, step.stage)
                )
        changes = {
            item.alias: self._value(step, item.name, getattr(step, item.name))
            for item in attrs.fields(type(step))
            if item.init
        }
        return evolve(step, **changes)

    def _add_partial(self, step: SplitReduction | ChunkReduction) -> None:
        """The names of what a split reduction adds, which are made of those of its stage."""
        stage, axes = step.stage, self.axes.get(step.stage, {})
        if stage in self.tensors and step.axis in axes:
            axes[added_axis(step)] = added_axis(evolve(step, axis=axes[step.axis]))
            self.tensors[partial_name(stage)] = partial_name(self.tensors[stage])
            self.axes[partial_name(stage)] = axes

    def _add_parts(self, step: ChunkScan) -> None:
        """The names of what a scan in parts adds, which are made of those of its stage."""
        stage, axes = step.stage, self.axes.get(step.stage, {})
        if stage in self.tensors:
            chunks = {chunk_axis(own): chunk_axis(new) for own, new in axes.items()}
            for name_of in (scanned_parts_name, carried_name):
                self.tensors[name_of(stage)] = name_of(self.tensors[stage])
                self.axes[name_of(stage)] = {**axes, **chunks}

    def _value(self, step: Step, field: str, value: Any) -> Any:
        if isinstance(value, IntExpr):
            return value.substitute(self.params)
        if field == "stage" or field in (*_OTHER_STAGES, "operand"):
            return self.tensors.get(value, value)
        if field == "axis":
            return self._axis(step.stage, value)
        if field in ("loop", "loops", "at"):
            return self._loops(_owner(step) if field == "at" else step.stage, value)
        if field == "stages":
            return tuple(self.tensors.get(stage, stage) for stage in value)
        if isinstance(value, tuple):
            return tuple(
                it.substitute(self.params) if isinstance(it, IntExpr) else it for it in value
            )
        return value

    def _axis(self, stage: str, axis: str) -> str:
        return self.axes.get(stage, {}).get(axis, axis)

    def _loops(self, stage: str, loops: Any) -> Any:
        if isinstance(loops, tuple):
            return tuple(self._loops(stage, loop) for loop in loops)
        if not isinstance(loops, str):
            return loops
        axis, dot, level = loops.rpartition(".")
        return f"{self._axis(stage, axis)}{dot}{level}"


def _owner(step: Step) -> str:
    """The stage whose loop ``at`` is."""
    found = [getattr(step, field) for field in _OTHER_STAGES if hasattr(step, field)]
    return str(found[0]) if found else step.stage
