"""Forms of index expressions: coefficients per axis plus a constant.

What is no multiple of an axis is a term of its own: a quotient or a remainder by a constant, and
anything else, of which only the axes are known that it depends on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache

from attrs import evolve, field, frozen

from autotune.ir.expressions.integer import IntExpr

# Rules and passes ask for the forms of the same indices again and again.
_REMEMBERED = 8192


@frozen
class IndexTerm:
    """A part of an index that is no multiple of an axis.

    Attributes:
        op: ``floordiv`` or ``mod`` by ``divisor``; ``any`` for everything else.
        operand: What is divided; of ``any`` the axes that it depends on, each once.
        divisor: A positive constant; 1 for ``any``.
    """

    op: str
    operand: AffineForm
    divisor: int = 1

    def step(self, axis: str) -> int:
        """By how much it changes as a rule with one step of ``axis``; 0 where it mostly stays.

        Neighbours that are anywhere are 2 apart: not the same, and not next to each other.
        """
        moved = abs(self.operand.step(axis))
        if self.op == "any":
            return 2 * moved
        return moved // self.divisor if self.op == "floordiv" else moved % self.divisor


@frozen
class AffineForm:
    """``constant + sum(coefficients[axis] * axis)``; axes with coefficient zero are absent.

    Attributes:
        coefficients: By axis, and by the name of each of ``terms``.
        constant: What is added.
        terms: What is no axis, by name. An affine index has none.
    """

    coefficients: dict[str, int]
    constant: int
    terms: Mapping[str, IndexTerm] = field(factory=dict)

    @cached_property
    def axes(self) -> frozenset[str]:
        """The axes that it depends on, those of its terms included."""
        own = frozenset(name for name in self.coefficients if name not in self.terms)
        return own | self.divided_axes

    @cached_property
    def divided_axes(self) -> frozenset[str]:
        """The axes that its terms depend on."""
        return frozenset[str]().union(*(term.operand.axes for term in self.terms.values()))

    @property
    def origin(self) -> int | None:
        """The value where all axes are 0, if it never falls along an axis; None if it may."""
        value = self.constant
        for name, coefficient in self.coefficients.items():
            if coefficient < 0:
                return None
            if name in self.terms:
                term = self.terms[name]
                inner = term.operand.origin
                if inner is None or term.op != "floordiv":
                    return None
                value += coefficient * (inner // term.divisor)
        return value

    def step(self, axis: str) -> int:
        """By how much it changes as a rule with one step of ``axis``."""
        return sum(
            coefficient * self.terms[name].step(axis)
            for name, coefficient in self.coefficients.items()
            if name in self.terms
        ) + self.coefficients.get(axis, 0)

    def renamed(self, names: Mapping[str, str]) -> AffineForm:
        """The same form with its axes called differently."""
        return AffineForm(
            {
                name if name in self.terms else names[name]: coefficient
                for name, coefficient in self.coefficients.items()
            },
            self.constant,
            {
                name: evolve(term, operand=term.operand.renamed(names))
                for name, term in self.terms.items()
            },
        )

    def bounds(self, extents: dict[str, int]) -> tuple[int, int]:
        """Smallest and largest value when every axis runs over ``range(extents[axis])``.

        Only of an affine form: the names of terms have no extents.
        """
        low = high = self.constant
        for axis, coefficient in self.coefficients.items():
            reach = coefficient * (extents[axis] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high


@lru_cache(maxsize=_REMEMBERED)
def index_form(expression: IntExpr) -> AffineForm:
    """The form of any index expression, with terms where it is not affine in its variables."""
    constant = 0
    coefficients: dict[str, int] = {}
    terms: dict[str, IndexTerm] = {}
    parts = expression.args if expression.op == "add" else (expression,)
    for part in parts:
        if part.op == "const":
            constant += part.args[0]
            continue
        coefficient, base = 1, part
        if part.op == "mul" and len(part.args) == 2 and part.args[0].op == "const":
            coefficient, base = part.args[0].args[0], part.args[1]
        name = base.args[0] if base.op == "var" else repr(base)
        if base.op != "var":
            terms[name] = _term(base)
        coefficients[name] = coefficients.get(name, 0) + coefficient
    kept = {name: value for name, value in coefficients.items() if value}
    return AffineForm(kept, constant, {name: terms[name] for name in kept if name in terms})


def affine_form(expression: IntExpr) -> AffineForm | None:
    """The affine form of ``expression``, or None when it is not affine in its variables."""
    form = index_form(expression)
    return None if form.terms else form


def unknown_form(name: str, axes: frozenset[str]) -> AffineForm:
    """The form of an index of which only the axes are known that it depends on."""
    return AffineForm({name: 1}, 0, {name: _anything(axes)})


def _term(expression: IntExpr) -> IndexTerm:
    if expression.op in ("floordiv", "mod"):
        top, bottom = expression.args
        if bottom.value is not None and bottom.value > 0:
            return IndexTerm(expression.op, index_form(top), bottom.value)
    return _anything(expression.variables)


def _anything(axes: frozenset[str]) -> IndexTerm:
    return IndexTerm("any", AffineForm(dict.fromkeys(sorted(axes), 1), 0))
