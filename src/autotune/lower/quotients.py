"""Quotients of vectors by one number, as products with its reciprocal.

Processors divide vectors ten times slower than they multiply them. Where all lanes are divided by
the same number, as the elements of a row by their sum, one scalar division is enough, which a
compiler takes out of the loop over the row. A power of two brings numbers near the ends of the
range to where their reciprocal is a normal number, so that all special values come out as of a
division; results are at most 1.5 units in the last place off.
"""

from __future__ import annotations

from autotune.lower.emitter import Emitter, Value

__all__ = ["divided"]

_LARGE, _SMALL = 2.0**64, 2.0**-64


def divided(emitter: Emitter, left: Value, right: Value) -> Value:
    """The quotient of two values of one type."""
    if left.dtype != "float32" or left.lanes == 1 or right.lanes > 1:
        return emitter.binary("div", left, right)
    large, one, small = (emitter.constant(it, "float32") for it in (_LARGE, 1.0, _SMALL))
    size = emitter.unary("abs", right)
    scale = emitter.select(emitter.binary("lt", size, small), large, one)
    scale = emitter.select(emitter.binary("gt", size, large), small, scale)
    reciprocal = emitter.binary("div", one, emitter.binary("mul", right, scale))
    # In this order: numbers below the smallest normal one are scaled first.
    return emitter.binary("mul", emitter.binary("mul", left, scale), reciprocal)
