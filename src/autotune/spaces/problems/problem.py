"""Constraint problems: integers with names, and a sketch's constraints on them, also as text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from attrs import frozen

from autotune.ir.converter import to_json
from autotune.ir.expressions import IntExpr
from autotune.sketches import AtLeast, AtMost, Constraint, ProductEquals

__all__ = ["ConstraintProblem", "Demand", "Domain", "Variable", "describe_problem"]

_SHOWN = 8

Domain = tuple[int, ...] | range
"""Values that are listed, or an interval."""


@frozen
class Variable:
    """An integer of a problem.

    Attributes:
        name: Unique within a problem.
        kind: ``parameter`` (what a schedule is chosen by), ``extent`` (of a loop) or ``memory``
            (in bytes).
        domain: What it may be before any constraint.
        meaning: What it is, in terms of the variables before it; None for a parameter.
        step: The schedule step that it follows from, "" where there is none.
    """

    name: str
    kind: str
    domain: Domain
    meaning: IntExpr | None = None
    step: str = ""

    @property
    def text(self) -> str:
        """Its definition as a formula."""
        return f"{self.name} = {_bare(self.meaning)}" if self.meaning is not None else self.name

    @property
    def domain_text(self) -> str:
        """``1 .. 64``, or the values, in the middle of long lists dots."""
        if isinstance(self.domain, range):
            return f"{self.domain[0]} .. {self.domain[-1]}"
        return _listed(self.domain)


@frozen
class Demand:
    """A constraint of a sketch on the variables of a problem.

    Attributes:
        constraint: The constraint.
        step: The schedule step that it follows from, "" where there is none.
    """

    constraint: Constraint
    step: str = ""

    @property
    def text(self) -> str:
        """The relation as a formula."""
        given = self.constraint
        if isinstance(given, ProductEquals):
            return f"{_bare(given.total)} = {' * '.join(given.factors)}"
        if isinstance(given, (AtMost, AtLeast)):
            sign = "<=" if isinstance(given, AtMost) else ">="
            return f"{_bare(given.expression)} {sign} {given.limit}"
        if given.values == (0,) and given.expression.op == "mod":
            dividend, divisor = given.expression.args
            return f"{_bare(divisor)} divides {_bare(dividend)}"
        if len(given.values) == 1:
            return f"{_bare(given.expression)} = {given.values[0]}"
        return f"{_bare(given.expression)} in {_listed(given.values)}"

    @property
    def origin(self) -> str:
        """Who asks for it, and the step, whatever is known of them."""
        return ", ".join(part for part in (self.constraint.source, self.step) if part)


@frozen
class ConstraintProblem:
    """Integers to be chosen, neutral to compilers; a solution gives every variable a value."""

    name: str
    variables: tuple[Variable, ...]
    constraints: tuple[Demand, ...]

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits over variables and constraints, equal in every process.

        Neither the problem's name nor the order nor the origins of constraints matter, nor does
        the order of variables: problems with one digest have the same solutions.
        """
        content = self.to_json()
        demands = {json.dumps(_relation(it), sort_keys=True) for it in content["constraints"]}
        known = [[it["name"], it["domain"], it["meaning"]] for it in content["variables"]]
        text = json.dumps([sorted(known, key=str), sorted(demands)], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """A JSON object with everything in it; constraints are as records have them."""
        return {
            "name": self.name,
            "variables": [
                {
                    "name": it.name,
                    "kind": it.kind,
                    "domain": _domain_json(it.domain),
                    "meaning": to_json(it.meaning),
                    "step": it.step,
                }
                for it in self.variables
            ],
            "constraints": [
                {**to_json(it.constraint), "step": it.step} for it in self.constraints
            ],
        }


def describe_problem(problem: ConstraintProblem, count: int) -> str:
    """Variables, what they mean, and constraints with their origins, as text.

    Args:
        problem: The problem.
        count: The number of its solutions.
    """
    variables = [(it.name, it.kind, it.domain_text) for it in problem.variables]
    defined = [(it.text, "", it.step) for it in problem.variables if it.meaning is not None]
    constraints = [
        (it.text, "hard" if it.constraint.hard else "soft", it.origin)
        for it in problem.constraints
    ]
    return "\n".join(
        [
            f"problem {problem.name}, digest {problem.digest}: {len(variables)} variables, "
            f"{len(constraints)} constraints, {count} solutions",
            "",
            *_aligned(variables),
            "",
            *_aligned([*defined, *constraints]),
        ]
    )


def _relation(constraint: dict[str, Any]) -> dict[str, Any]:
    return {key: it for key, it in constraint.items() if key not in ("source", "hard", "step")}


def _domain_json(domain: Domain) -> object:
    if isinstance(domain, range):
        return {"low": domain[0], "high": domain[-1]}
    return list(domain)


def _bare(expression: IntExpr) -> str:
    """An expression without the parentheses around all of a sum."""
    text = repr(expression)
    return text[1:-1] if expression.op in ("add", "floordiv", "mod") else text


def _listed(values: tuple[int, ...]) -> str:
    items = tuple(map(str, values))
    if len(items) > _SHOWN:
        items = (*items[: _SHOWN - 2], "...", items[-1])
    return "{" + ", ".join(items) + "}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
