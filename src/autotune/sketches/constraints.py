"""Relations over the parameters of a sketch.

Hard constraints keep the program valid and say what makes them so; soft ones are taste: the
search honours them, a configuration that breaks them is still a program.
"""

from __future__ import annotations

from typing import Any

import attrs
from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr


@frozen
class ProductEquals:
    """The product of ``factors`` is ``total``: a constant or the value of one parameter."""

    factors: tuple[str, ...]
    total: IntExpr
    source: str = "workload"
    hard: bool = True


@frozen
class AtMost:
    """``expression <= limit``."""

    expression: IntExpr
    limit: int
    source: str
    hard: bool = True


@frozen
class AtLeast:
    """``expression >= limit``."""

    expression: IntExpr
    limit: int
    source: str
    hard: bool = True


@frozen
class OneOf:
    """``expression`` is one of ``values``."""

    expression: IntExpr
    values: tuple[int, ...]
    source: str
    hard: bool = True


Constraint = ProductEquals | AtMost | AtLeast | OneOf

_KINDS: dict[str, type[Any]] = {
    "product_equals": ProductEquals,
    "at_most": AtMost,
    "at_least": AtLeast,
    "one_of": OneOf,
}
_NAMES = {cls: name for name, cls in _KINDS.items()}


def constraint_to_json(constraint: Constraint) -> dict[str, Any]:
    """A JSON object with the relation under ``"constraint"`` and its fields."""
    data: dict[str, Any] = {"constraint": _NAMES[type(constraint)]}
    for attribute in attrs.fields(type(constraint)):
        value = getattr(constraint, attribute.name)
        if isinstance(value, IntExpr):
            value = value.to_json()
        data[attribute.name] = list(value) if isinstance(value, tuple) else value
    return data


def constraint_from_json(data: Any) -> Constraint:
    """Read what :func:`constraint_to_json` wrote.

    Raises:
        InvalidValueError: the object is not a constraint.
    """
    if not isinstance(data, dict):
        raise InvalidValueError(f"not a constraint: {data!r}")
    fields = dict(data)
    kind = fields.pop("constraint", None)
    try:
        for key in ("expression", "total"):
            if key in fields:
                fields[key] = IntExpr.from_json(fields[key])
        for key in ("factors", "values"):
            if key in fields:
                fields[key] = tuple(fields[key])
        constraint: Constraint = _KINDS[str(kind)](**fields)
    except (KeyError, TypeError) as error:
        raise InvalidValueError(f"not a constraint: {data!r}") from error
    return constraint
