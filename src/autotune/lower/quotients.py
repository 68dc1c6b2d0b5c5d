"""Quotients of vectors by one number, as products with its reciprocal.

Processors divide vectors ten times slower than they multiply them. Where all lanes are divided by
the same number, as the elements of a row by their sum, one scalar division is enough, which a
compiler takes out of the loop over the row. A power of two brings numbers near the ends of the
range to where their reciprocal is a normal number, so that all special values come out as of a
division; results are at most 1.5 units in the last place off.
"""

from __future__ import annotations

from attrs import frozen

from autotune.lower.emitter import Emitter, Value

__all__ = ["Divisor", "divided", "divisor"]

_LARGE, _SMALL = 2.0**64, 2.0**-64


@frozen
class Divisor:
    """A number of single precision by which vectors are divided.

    Attributes:
        scale: The power of two.
        reciprocal: Of the number after it is scaled.
    """

    scale: Value
    reciprocal: Value


def divisor(emitter: Emitter, number: Value) -> Divisor:
    """A scalar of single precision as a divisor."""
    large, one, small = (emitter.constant(it, "float32") for it in (_LARGE, 1.0, _SMALL))
    size = emitter.unary("abs", number)
    scale = emitter.select(emitter.binary("lt", size, small), large, one)
    scale = emitter.select(emitter.binary("gt", size, large), small, scale)
    return Divisor(scale, emitter.binary("div", one, emitter.binary("mul", number, scale)))


def divided(emitter: Emitter, left: Value, right: Value | Divisor) -> Value:
    """The quotient of two values of one type."""
    if not isinstance(right, Divisor):
        if left.dtype != "float32" or left.lanes == 1 or right.lanes > 1:
            return emitter.binary("div", left, right)
        right = divisor(emitter, right)
    # In this order: numbers below the smallest normal one are scaled first.
    return emitter.binary("mul", emitter.binary("mul", left, right.scale), right.reciprocal)
