"""Affine forms of index expressions: coefficients per axis plus a constant."""

from __future__ import annotations

from attrs import frozen

from autotune.ir.expressions.integer import IntExpr


@frozen
class AffineForm:
    """``constant + sum(coefficients[axis] * axis)``; axes with coefficient zero are absent."""

    coefficients: dict[str, int]
    constant: int

    def bounds(self, extents: dict[str, int]) -> tuple[int, int]:
        """Smallest and largest value when every axis runs over ``range(extents[axis])``."""
        low = high = self.constant
        for axis, coefficient in self.coefficients.items():
            reach = coefficient * (extents[axis] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high


def affine_form(expression: IntExpr) -> AffineForm | None:
    """The affine form of ``expression``, or None when it is not affine in its variables."""
    constant = 0
    coefficients: dict[str, int] = {}
    terms = expression.args if expression.op == "add" else (expression,)
    for term in terms:
        if term.op == "const":
            constant += term.args[0]
        elif term.op == "var":
            coefficients[term.args[0]] = coefficients.get(term.args[0], 0) + 1
        elif term.op == "mul" and len(term.args) == 2 and term.args[0].op == "const":
            if term.args[1].op != "var":
                return None
            name = term.args[1].args[0]
            coefficients[name] = coefficients.get(name, 0) + term.args[0].args[0]
        else:
            return None
    return AffineForm({name: value for name, value in coefficients.items() if value}, constant)
