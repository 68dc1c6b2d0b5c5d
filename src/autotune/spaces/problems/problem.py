"""A constraint problem: variables, and what they have to satisfy together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from attrs import frozen

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.converter import from_json, to_json
from autotune.ir.expressions import IntExpr
from autotune.spaces.problems.vocabulary import Clause, Constraint, Select, Table, Variable
from autotune.spaces.problems.wording import constraint_text

__all__ = ["ConstraintProblem", "operands", "variables_of"]

VARIABLE_KINDS = ("parameter", "extent", "memory", "derived")


@frozen
class ConstraintProblem:
    """Integers to be chosen, neutral to compilers; a solution gives every variable a value.

    Raises:
        InvalidValueError: there is no variable, two have one name, a kind is unknown, a row of a
            table has not one value for each column, or a select has no options.
        UnknownNameError: a constraint uses a variable that does not exist.
    """

    name: str
    variables: tuple[Variable, ...]
    constraints: tuple[Constraint, ...]

    def __attrs_post_init__(self) -> None:
        names = [variable.name for variable in self.variables]
        if not names:
            raise InvalidValueError(f"problem {self.name!r} has no variables")
        for variable in self.variables:
            if names.count(variable.name) > 1:
                raise InvalidValueError(f"two variables are called {variable.name!r}")
            if variable.kind not in VARIABLE_KINDS:
                raise UnknownNameError("kind of variable", variable.kind, VARIABLE_KINDS)
        for constraint in self.constraints:
            for name in sorted(variables_of(constraint)):
                if name not in names:
                    raise UnknownNameError("variable of the problem", name, names)
            _check_shape(constraint)

    @cached_property
    def variable_names(self) -> tuple[str, ...]:
        """Names of the columns of a matrix of solutions."""
        return tuple(variable.name for variable in self.variables)

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
        data: dict[str, Any] = to_json(self)
        return data

    @staticmethod
    def from_json(data: Any) -> ConstraintProblem:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidValueError: the object is not a problem.
        """
        return from_json(ConstraintProblem, data)


def operands(constraint: Constraint) -> tuple[IntExpr, ...]:
    """The expressions that a constraint relates; none for a table."""
    if isinstance(constraint, Clause):
        return tuple(item for literal in constraint.literals for item in operands(literal))
    found: list[IntExpr] = []
    for name in constraint.__attrs_attrs__:
        value = getattr(constraint, name.name)
        items: Iterable[Any] = value if isinstance(value, tuple) else (value,)
        found.extend(item for item in items if isinstance(item, IntExpr))
    return tuple(found)


def variables_of(constraint: Constraint) -> frozenset[str]:
    """Names of the variables that a constraint depends on."""
    if isinstance(constraint, Table):
        return frozenset(constraint.columns)
    return frozenset().union(*(operand.variables for operand in operands(constraint)))


def _check_shape(constraint: Constraint) -> None:
    if isinstance(constraint, Select) and not constraint.options:
        raise InvalidValueError(f"no options to select from: {constraint_text(constraint)}")
    if isinstance(constraint, Table):
        if not constraint.columns or len(set(constraint.columns)) < len(constraint.columns):
            raise InvalidValueError(f"a table has columns, all different: {constraint.columns}")
        for row in constraint.rows:
            if len(row) != len(constraint.columns):
                raise InvalidValueError(
                    f"row {row} of a table with the columns {', '.join(constraint.columns)}"
                )


def _canonical(constraint: Constraint) -> str:
    data = to_json(constraint)
    for literal in (data, *data.get("literals", ())):
        del literal["origin"]
    return json.dumps(data, sort_keys=True, separators=(",", ":"))
