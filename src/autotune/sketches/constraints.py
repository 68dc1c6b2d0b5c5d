"""Relations over the parameters of a sketch.

Hard constraints keep the program valid and say what makes them so; soft ones are preferences: the
search honours them, a configuration that breaks them is still a program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from autotune.ir.converter import json_forms, tagged_objects
from autotune.ir.expressions import IntExpr

if TYPE_CHECKING:
    from cattrs import Converter


@frozen
class ProductEquals:
    """The product of ``factors`` is ``total``: a constant or the value of one parameter."""

    factors: tuple[str, ...]
    total: IntExpr
    source: str = "workload"
    hard: bool = True

    @property
    def names(self) -> frozenset[str]:
        """Names of the parameters that it is about."""
        return self.total.variables.union(self.factors)


@frozen
class _Bound:
    """A relation of one expression."""

    expression: IntExpr

    @property
    def names(self) -> frozenset[str]:
        """Names of the parameters that it is about."""
        return self.expression.variables


@frozen
class AtMost(_Bound):
    """``expression <= limit``."""

    limit: int
    source: str
    hard: bool = True


@frozen
class AtLeast(_Bound):
    """``expression >= limit``."""

    limit: int
    source: str
    hard: bool = True


@frozen
class OneOf(_Bound):
    """``expression`` is one of ``values``."""

    values: tuple[int, ...]
    source: str
    hard: bool = True


Constraint = ProductEquals | AtMost | AtLeast | OneOf


@json_forms
def _forms(converter: Converter) -> None:
    kinds = {
        "product_equals": ProductEquals,
        "at_most": AtMost,
        "at_least": AtLeast,
        "one_of": OneOf,
    }
    tagged_objects(converter, Constraint, "constraint", "constraint", kinds)
