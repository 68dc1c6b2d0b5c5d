"""The vocabulary of constraint problems: variables with domains, and relations.

The relations are Heron's (ASPLOS'23: product, sum, equality, order, membership) and divisibility.
Operands are integer expressions over variables; a variable may be there to name a quantity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from autotune.errors import InvalidValueError
from autotune.ir.converter import json_forms, tagged_objects
from autotune.ir.expressions import IntExpr

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = [
    "AtLeast",
    "AtMost",
    "Constraint",
    "Divides",
    "Domain",
    "Equal",
    "IntRange",
    "Member",
    "Origin",
    "Product",
    "Sum",
    "Variable",
]


@frozen
class IntRange:
    """All integers from ``low`` to ``high``, both included.

    Raises:
        InvalidValueError: there are none.
    """

    low: int
    high: int

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            raise InvalidValueError(f"no integer is from {self.low} to {self.high}")


Domain = tuple[int, ...] | IntRange
"""Values that are listed, or an interval."""


@frozen
class Variable:
    """Unknown integer.

    Attributes:
        name: Unique within a problem.
        domain: What it may be before any constraint.
        kind: ``parameter`` (what a schedule is chosen by), ``extent`` (of a loop), ``memory`` (in
            bytes) or ``derived``.
    """

    name: str
    domain: Domain
    kind: str = "parameter"


@frozen
class Origin:
    """Origin of a constraint.

    Attributes:
        source: Who asks for it: the workload, a backend, a target, a preference.
        step: The schedule step that it follows from, "" where there is none.
        hard: Whether a program that breaks it is invalid.
    """

    source: str = ""
    step: str = ""
    hard: bool = True


_NOWHERE = Origin()


@frozen
class Product:
    """``total`` is the product of ``factors``."""

    total: IntExpr
    factors: tuple[IntExpr, ...]
    origin: Origin = field(default=_NOWHERE, kw_only=True)


@frozen
class Sum:
    """``total`` is the sum of ``terms``."""

    total: IntExpr
    terms: tuple[IntExpr, ...]
    origin: Origin = field(default=_NOWHERE, kw_only=True)


@frozen
class Equal:
    """``left == right``."""

    left: IntExpr
    right: IntExpr
    origin: Origin = field(default=_NOWHERE, kw_only=True)


@frozen
class AtMost:
    """``left <= right``."""

    left: IntExpr
    right: IntExpr
    origin: Origin = field(default=_NOWHERE, kw_only=True)


@frozen
class AtLeast:
    """``left >= right``."""

    left: IntExpr
    right: IntExpr
    origin: Origin = field(default=_NOWHERE, kw_only=True)


@frozen
class Member:
    """``expression`` is one of ``values``."""

    expression: IntExpr
    values: tuple[int, ...]
    origin: Origin = field(default=_NOWHERE, kw_only=True)


@frozen
class Divides:
    """``dividend`` is a multiple of ``divisor``, which is at least 1."""

    divisor: IntExpr
    dividend: IntExpr
    origin: Origin = field(default=_NOWHERE, kw_only=True)


Constraint = Product | Sum | Equal | AtMost | AtLeast | Member | Divides

CONSTRAINT_TYPES: dict[str, type[Any]] = {
    "product": Product,
    "sum": Sum,
    "equal": Equal,
    "at_most": AtMost,
    "at_least": AtLeast,
    "member": Member,
    "divides": Divides,
}


@json_forms
def _forms(converter: Converter) -> None:
    from cattrs.gen import make_dict_unstructure_fn

    write = make_dict_unstructure_fn(Variable, converter)

    def name_and_kind_first(variable: Variable) -> dict[str, Any]:
        data = write(variable)
        return {"name": data["name"], "kind": data["kind"], "domain": data["domain"]}

    converter.register_unstructure_hook(Variable, name_and_kind_first)
    tagged_objects(converter, Constraint, "constraint", "constraint", CONSTRAINT_TYPES)
