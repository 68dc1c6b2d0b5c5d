"""Elementary functions of single precision as plain arithmetic, written once for every backend.

Compilers call the C library for ``exp`` and similar functions, once per element even in a vector.
These forms vectorise with the loop around them: ranges are reduced as by Cody and Waite, and the
rest is a minimax polynomial, fitted to single precision. They have no branches and no tables.
A backend provides :class:`Arithmetic` on values of its program.

:data:`MAX_ERRORS` has the largest error of each, whether or not products are fused with sums.
Special values come out as in the C library: infinities, NaN, signed zeros, overflow; results
below the smallest normal number are rounded like others, not flushed to zero. ``sqrt`` and
``rsqrt`` are instructions of the processors, which compilers find by themselves. ``sin``, ``cos``
and general powers are not here: large angles, and the product in the exponent, take more than
single precision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

__all__ = [
    "ELEMENTARY",
    "MAX_ERRORS",
    "Arithmetic",
    "BitOperation",
    "Comparison",
    "FloatOperation",
]

Value = Any
Comparison = Literal["lt", "gt", "eq"]
FloatOperation = Literal["add", "sub", "mul", "div"]
BitOperation = Literal["and", "or", "shl", "shr"]

MAX_ERRORS: Mapping[str, float] = {"exp": 1.6, "log": 1.0, "sigmoid": 3.0, "tanh": 1.5, "erf": 1.5}
"""Largest error of each function over all arguments, in units in the last place of the result."""

_MAGIC = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest integer in the lowest bits
_BIAS = 127.0
_MANTISSA_BITS = 23
_MANTISSA = 0x007FFFFF
_SIGN = -0x80000000
_MAGNITUDE = 0x7FFFFFFF
_HALF_BITS = 0x3F000000
_SMALLEST_NORMAL = 2.0**-126

# Coefficients begin with that of the highest power.
_EXP = (1.96309236e-4, 1.41055661e-3, 8.33596475e-3, 4.16611955e-2, 1.66666165e-1, 5.00000358e-1)
_SCALED_EXP = (1.38145534e-3, 8.36874451e-3, 4.16683890e-2, 1.66665211e-1, 4.99999940e-1, 1.0, 1.0)
_LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_TANH = (-5.66571392e-3, 2.06048712e-2, -5.37295304e-2, 1.33313239e-1, -3.33332777e-1)
_ERF = (
    -5.91629243e-4,
    4.97890403e-3,
    -2.67573223e-2,
    1.12815835e-1,
    -3.76124769e-1,
    1.28379151e-1,
)
_LOG_ERFC = (
    1.97084664e-4,
    -3.05444538e-3,
    2.22715586e-2,
    -1.04023926e-1,
    -6.37077391e-1,
    -1.27737671e-1,
    -1.80717412e-4,
)


class Arithmetic(ABC):
    """Operations on single-precision values of a program, scalars or vectors.

    Operands may be Python numbers. A product that is added may be fused with the sum; beyond that
    no operation may be reordered, nor computed more precisely.

    Attributes:
        scales: Whether there is :meth:`scaled`.
    """

    scales: bool = False

    @abstractmethod
    def floats(self, operation: FloatOperation, left: Value, right: Value) -> Value:
        """Of two floats, rounded to nearest."""

    @abstractmethod
    def integers(self, operation: BitOperation, left: Value, right: Value) -> Value:
        """Of two 32-bit integers, a shift to the right keeps the sign."""

    @abstractmethod
    def where(
        self, comparison: Comparison, left: Value, right: Value, yes: Value, no: Value
    ) -> Value:
        """``yes`` where the comparison of floats holds, which one with NaN never does."""

    @abstractmethod
    def bits(self, value: Value) -> Value:
        """The bits of floats as integers."""

    @abstractmethod
    def of_bits(self, value: Value) -> Value:
        """Floats that have the bits of integers."""

    @abstractmethod
    def converted(self, value: Value) -> Value:
        """Integers as floats."""

    def scaled(self, value: Value, power: Value) -> Value:
        """``value * 2**power``, rounded once, in one operation; ``power`` is a whole float.

        Only where :attr:`scales` says so.
        """
        raise NotImplementedError

    def add(self, left: Value, right: Value) -> Value:
        """Their sum."""
        return self.floats("add", left, right)

    def sub(self, left: Value, right: Value) -> Value:
        """Their difference."""
        return self.floats("sub", left, right)

    def mul(self, left: Value, right: Value) -> Value:
        """Their product."""
        return self.floats("mul", left, right)

    def div(self, left: Value, right: Value) -> Value:
        """Their quotient."""
        return self.floats("div", left, right)

    def at_most(self, value: Value, bound: float) -> Value:
        """The smaller of both; NaN stays NaN."""
        return self.where("gt", value, bound, bound, value)

    def at_least(self, value: Value, bound: float) -> Value:
        """The larger of both; NaN stays NaN."""
        return self.where("lt", value, bound, bound, value)

    def magnitude(self, value: Value) -> Value:
        """Without its sign."""
        return self.of_bits(self.integers("and", self.bits(value), _MAGNITUDE))

    def with_sign(self, value: Value, other: Value) -> Value:
        """A value that has no sign, with that of another."""
        sign = self.integers("and", self.bits(other), _SIGN)
        return self.of_bits(self.integers("or", self.bits(value), sign))

    def polynomial(self, value: Value, coefficients: Sequence[float]) -> Value:
        """By Horner's rule, the highest power first."""
        result: Value = coefficients[0]
        for coefficient in coefficients[1:]:
            result = self.add(self.mul(value, result), coefficient)
        return result


def _bounded_exp(on: Arithmetic, x: Value) -> Value:
    """The exponential of x from -104 to 89."""
    return _exp_by_scaling(on, x) if on.scales else _exp_by_squares(on, x)


def _exp_by_scaling(on: Arithmetic, x: Value) -> Value:
    """``2**m * exp(r)``, ``m`` the integer nearest to ``x / log(2)``."""
    power = on.sub(on.add(on.mul(x, 1.44269504088896341), _MAGIC), _MAGIC)
    # log(2) in two parts, of which the first is exact times any m.
    rest = on.sub(x, on.mul(power, 0.693359375))
    rest = on.add(rest, on.mul(power, 2.12194440e-4))
    return on.scaled(on.polynomial(rest, _SCALED_EXP), power)


def _exp_by_squares(on: Arithmetic, x: Value) -> Value:
    """``4**m * exp(r)``, ``m`` the integer nearest to ``x / log(4)``.

    2**m is always a normal number, and its square comes into the result in two steps: the second
    one alone overflows or rounds below the normal numbers.
    """
    # The exponent's bias goes with the integer, so that its lowest bits are those of 2**m.
    shifted = on.add(on.mul(x, 0.72134752044448170), _MAGIC + _BIAS)
    power = on.sub(shifted, _MAGIC + _BIAS)
    # log(4) in two parts, of which the first is exact times any m.
    rest = on.sub(x, on.mul(power, 1.38671875))
    rest = on.add(rest, on.mul(power, 4.2438888e-4))
    square = on.mul(rest, rest)
    tail = on.add(on.mul(square, on.polynomial(rest, _EXP)), rest)
    scale = on.of_bits(on.integers("shl", on.bits(shifted), _MANTISSA_BITS))
    # (tail + 1) * scale, rounded as that is: products with a power of two are exact.
    return on.mul(on.add(on.mul(tail, scale), scale), scale)


def _exp(on: Arithmetic, x: Value) -> Value:
    return _bounded_exp(on, on.at_least(on.at_most(x, 89.0), -104.0))


def _log(on: Arithmetic, x: Value) -> Value:
    """``e * log(2) + log(m)`` with ``m`` between ``sqrt(1/2)`` and ``sqrt(2)``."""
    # Numbers below the smallest normal one get an exponent by scaling.
    normal = on.where("lt", x, _SMALLEST_NORMAL, on.mul(x, 2.0**_MANTISSA_BITS), x)
    bias = on.where("lt", x, _SMALLEST_NORMAL, 126.0 + _MANTISSA_BITS, 126.0)
    bits = on.bits(normal)
    exponent = on.sub(on.converted(on.integers("shr", bits, _MANTISSA_BITS)), bias)
    mantissa = on.of_bits(
        on.integers("or", on.integers("and", bits, _MANTISSA), _HALF_BITS),
    )
    small = 0.70710678118654752
    exponent = on.where("lt", mantissa, small, on.sub(exponent, 1.0), exponent)
    part = on.where("lt", mantissa, small, on.add(mantissa, mantissa), mantissa)
    part = on.sub(part, 1.0)
    square = on.mul(part, part)
    tail = on.mul(on.mul(square, part), on.polynomial(part, _LOG))
    tail = on.add(tail, on.mul(exponent, -2.12194440e-4))
    tail = on.sub(tail, on.mul(square, 0.5))
    result = on.add(on.add(part, tail), on.mul(exponent, 0.693359375))
    # Of negative numbers, zeros, infinity and NaN.
    result = on.where("lt", x, 0.0, float("nan"), result)
    result = on.where("eq", x, 0.0, -float("inf"), result)
    return on.where("lt", x, float("inf"), result, x)


def _sigmoid(on: Arithmetic, x: Value) -> Value:
    """Of the exponential that is at most 1, so that small results keep their digits."""
    decay = _exp(on, on.of_bits(on.integers("or", on.bits(x), _SIGN)))
    return on.div(on.where("lt", x, 0.0, decay, 1.0), on.add(decay, 1.0))


def _tanh(on: Arithmetic, x: Value) -> Value:
    """``x + x**3 * P(x**2)`` near zero, else ``1 - 2 / (exp(2 |x|) + 1)``."""
    inside = on.at_most(on.magnitude(x), 10.0)
    growth = _bounded_exp(on, on.add(inside, inside))
    far = on.sub(1.0, on.div(2.0, on.add(growth, 1.0)))
    square = on.mul(inside, inside)
    near = on.add(on.mul(on.mul(square, on.polynomial(square, _TANH)), inside), inside)
    return on.with_sign(on.where("lt", inside, 0.625, near, far), x)


def _erf(on: Arithmetic, x: Value) -> Value:
    """``x + x * P(x**2)`` near zero, else ``1 - exp(Q(|x|))``."""
    inside = on.at_most(on.magnitude(x), 4.0)
    decay = _bounded_exp(on, on.sub(on.polynomial(inside, _LOG_ERFC), inside))
    square = on.mul(inside, inside)
    near = on.add(on.mul(on.polynomial(square, _ERF), inside), inside)
    return on.with_sign(on.where("lt", inside, 0.925, near, on.sub(1.0, decay)), x)


ELEMENTARY: Mapping[str, Callable[[Arithmetic, Value], Value]] = {
    "exp": _exp,
    "log": _log,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "erf": _erf,
}
"""A value of the program, and what the function of it is, by the names of unary expressions."""
