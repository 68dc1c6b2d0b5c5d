"""A constraint problem: variables and constraints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import attrs
from attrs import frozen

from autotune.ir.converter import to_json
from autotune.ir.expressions import IntExpr
from autotune.spaces.problems.vocabulary import Constraint, Variable

__all__ = ["ConstraintProblem", "operands", "variables_of"]


@frozen
class ConstraintProblem:
    """Integers to be chosen, neutral to compilers; a solution gives every variable a value."""

    name: str
    variables: tuple[Variable, ...]
    constraints: tuple[Constraint, ...]

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits over variables and constraints, equal in every process.

        Neither the problem's name nor the order nor the origins of constraints matter, nor does
        the order of variables: problems with one digest have the same solutions.
        """
        content = {
            "variables": sorted(
                [variable.name, to_json(variable)["domain"]] for variable in self.variables
            ),
            "constraints": sorted({_canonical(constraint) for constraint in self.constraints}),
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """A JSON object with everything in it."""
        return dict(to_json(self))


def operands(constraint: Constraint) -> tuple[IntExpr, ...]:
    """The expressions that a constraint relates."""
    found: list[IntExpr] = []
    for name in attrs.fields(type(constraint)):
        value = getattr(constraint, name.name)
        items: Iterable[Any] = value if isinstance(value, tuple) else (value,)
        found.extend(item for item in items if isinstance(item, IntExpr))
    return tuple(found)


def variables_of(constraint: Constraint) -> frozenset[str]:
    """Names of the variables that a constraint depends on."""
    return frozenset().union(*(operand.variables for operand in operands(constraint)))


def _canonical(constraint: Constraint) -> str:
    data = to_json(constraint)
    del data["origin"]
    return json.dumps(data, sort_keys=True, separators=(",", ":"))
