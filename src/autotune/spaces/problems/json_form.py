"""Variables and constraints as JSON values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr
from autotune.spaces.problems.vocabulary import (
    AtLeast,
    AtMost,
    Clause,
    Constraint,
    Divides,
    Equal,
    IntRange,
    Member,
    NotEqual,
    Origin,
    Product,
    Select,
    Sum,
    Table,
    Variable,
)

__all__ = ["constraint_from_json", "constraint_to_json", "variable_from_json", "variable_to_json"]

CONSTRAINT_NAMES: dict[type[Any], str] = {
    Product: "product",
    Sum: "sum",
    Equal: "equal",
    NotEqual: "not_equal",
    AtMost: "at_most",
    AtLeast: "at_least",
    Member: "member",
    Select: "select",
    Divides: "divides",
    Table: "table",
    Clause: "clause",
}
_TYPES = {name: cls for cls, name in CONSTRAINT_NAMES.items()}


def variable_to_json(variable: Variable) -> dict[str, Any]:
    """An object with name, kind and domain: a list, or the bounds of an interval."""
    domain = variable.domain
    written: Any = list(domain) if isinstance(domain, tuple) else attrs.asdict(domain)
    return {"name": variable.name, "kind": variable.kind, "domain": written}


def variable_from_json(data: Any) -> Variable:
    """Read what :func:`variable_to_json` wrote.

    Raises:
        InvalidValueError: the value is not a variable.
    """
    try:
        written = data["domain"]
        domain = IntRange(**written) if isinstance(written, dict) else tuple(written)
        return Variable(data["name"], domain, data["kind"])
    except (KeyError, TypeError) as error:
        raise InvalidValueError(f"not a variable: {data!r}") from error


def constraint_to_json(constraint: Constraint) -> dict[str, Any]:
    """A JSON object with the relation under ``"constraint"``, its operands and its origin."""
    data: dict[str, Any] = {"constraint": CONSTRAINT_NAMES[type(constraint)]}
    for attribute in attrs.fields(type(constraint)):
        data[attribute.name] = _written(getattr(constraint, attribute.name))
    return data


def _written(value: Any) -> Any:
    if isinstance(value, IntExpr):
        return value.to_json()
    if isinstance(value, Origin):
        return attrs.asdict(value)
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return constraint_to_json(value) if attrs.has(type(value)) else value


_READERS: dict[str, Callable[[Any], Any]] = {
    "IntExpr": IntExpr.from_json,
    "Origin": lambda data: Origin(**data),
    "tuple[IntExpr, ...]": lambda data: tuple(IntExpr.from_json(item) for item in data),
    "tuple[int, ...]": tuple,
    "tuple[str, ...]": tuple,
    "tuple[tuple[int, ...], ...]": lambda data: tuple(tuple(row) for row in data),
    "tuple[Literal, ...]": lambda data: tuple(constraint_from_json(item) for item in data),
}


def constraint_from_json(data: Any) -> Constraint:
    """Read what :func:`constraint_to_json` wrote.

    Raises:
        InvalidValueError: the value is not a constraint.
    """
    try:
        fields = dict(data)
        cls = _TYPES[str(fields.pop("constraint"))]
        readers = {
            attribute.name: _READERS[str(attribute.type)] for attribute in attrs.fields(cls)
        }
        constraint: Constraint = cls(**{name: readers[name](of) for name, of in fields.items()})
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidValueError(f"not a constraint: {data!r}") from error
    return constraint
