"""A sketch: everything about a schedule except the numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from autotune.errors import UnknownNameError
from autotune.ir.converter import from_json, json_forms, object_form, tagged_lists, to_json
from autotune.ir.workloads import Workload
from autotune.sketches.constraints import Constraint
from autotune.sketches.naming import (
    names_between,
    renamed_constraint,
    renamed_param_names,
    renamed_steps,
)
from autotune.sketches.steps import OpenStep, Step

if TYPE_CHECKING:
    from cattrs import Converter


@frozen
class Factor:
    """A tile factor: one factor of a product that a ``ProductEquals`` constraint fixes.

    ``values`` restricts it (a vectorised level is exactly the lanes); None allows any divisor.
    """

    name: str
    values: tuple[int, ...] | None = None


@frozen
class Ordinal:
    """Choice of ``values``, which are in a meaningful order."""

    name: str
    values: tuple[int, ...]


@frozen
class Categorical:
    """Choice of ``len(labels)`` values without an order; the value is the choice's position."""

    name: str
    labels: tuple[str, ...]

    @property
    def values(self) -> tuple[int, ...]:
        """Positions of the labels."""
        return tuple(range(len(self.labels)))


Param = Factor | Ordinal | Categorical


@json_forms
def _param_forms(converter: Converter) -> None:
    kinds = {"factor": Factor, "ordinal": Ordinal, "categorical": Categorical}
    tagged_lists(converter, Param, "parameter", kinds)


@frozen
class Sketch:
    """Steps over a workload with parameters and constraints; the structure is fixed.

    Raises:
        UnknownNameError: a constraint is about a parameter that there is none of.
    """

    name: str
    workload: Workload
    params: tuple[Param, ...]
    constraints: tuple[Constraint, ...]
    steps: tuple[Step, ...]

    def __attrs_post_init__(self) -> None:
        known = {param.name for param in self.params}
        for constraint in self.constraints:
            if unknown := constraint.names - known:
                owner = f"parameter in a constraint of sketch {self.name!r}"
                raise UnknownNameError(owner, min(unknown), known)

    @cached_property
    def param_names(self) -> tuple[str, ...]:
        """Names of the columns of a configuration matrix."""
        return tuple(param.name for param in self.params)

    @property
    def is_opaque(self) -> bool:
        """True if only other tools know what it does, so that it has no symbolic loop nest."""
        return bool(self.workload.external) or any(
            isinstance(step, OpenStep) and step.opaque for step in self.steps
        )

    @cached_property
    def core_steps(self) -> tuple[Step, ...]:
        """The steps, with those of plugins that stand for others written out."""
        return tuple(
            part
            for step in self.steps
            for part in (step.expanded() if isinstance(step, OpenStep) else (step,))
        )

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits over workload and steps, equal in every process.

        The sketch's name, domains and constraints are left out: they say which configurations are
        looked at, not what program a configuration means. So are names of tensors, axes and
        parameters: sketches of equal workloads that do the same are equal.
        """
        params = {name: f"p{number}" for number, name in enumerate(self.param_names)}
        steps = renamed_steps(self.steps, self.workload.names, params)
        return _digest_of(self.workload.digest, tuple(params.values()), steps)

    @cached_property
    def spelling(self) -> str:
        """16 hexadecimal digits over workload and steps as they are written, with their names."""
        return _digest_of(self.workload.spelling, self.param_names, self.steps)

    def on(self, workload: Workload) -> Sketch:
        """The same sketch of an equal workload: with that one's names.

        Raises:
            InvalidValueError: the workloads are not equal.
        """
        if workload == self.workload:
            return self
        names = names_between(self.workload, workload)
        params = renamed_param_names(self.param_names, names)
        return Sketch(
            self.name,
            workload,
            tuple(evolve(param, name=params[param.name]) for param in self.params),
            tuple(renamed_constraint(constraint, params) for constraint in self.constraints),
            renamed_steps(self.steps, names, params),
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object without the workload, which is stored beside it."""
        return dict(to_json(self))

    @staticmethod
    def from_json(data: Mapping[str, Any], workload: Workload) -> Sketch:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidValueError: the object is not a sketch.
        """
        if isinstance(data, Mapping):
            data = {**data, "workload": workload}
        return from_json(Sketch, data)


def _digest_of(workload: str, params: tuple[str, ...], steps: tuple[Step, ...]) -> str:
    content = {"workload": workload, "params": list(params), "steps": to_json(steps)}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@json_forms
def _forms(converter: Converter) -> None:
    object_form(converter, Sketch, left_out=("workload",), ignores_others=True)
