"""Polynomials for functions that MLIR would otherwise call once per element.

``math.exp`` and its like become calls of the C library, element by element even in a vector. Here
those of single precision become arithmetic on whatever type they have, so that they vectorise with
the loop around them. Half precision is computed in single by who writes the program; double
precision stays a call.

The forms are the Cephes library's (``expf``, ``logf``) and rational minimax approximations for
``tanh`` and ``erf`` on the range where they differ from 1. :data:`MAX_ERRORS` has the largest
error of each, in units in the last place; special values (infinities, NaN, zeros, overflow) come
out as in the C library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen

__all__ = ["MAX_ERRORS", "expand_functions"]

MAX_ERRORS: Mapping[str, float] = {"exp": 1.5, "log": 1.5, "tanh": 5.0, "erf": 6.0}
"""Largest error of each function over all arguments, in units in the last place of the result."""

_MAGIC = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest integer in the lowest bits
_MAGIC_BITS = 0x4B400000
_EXPONENT_BIAS = 127
_MANTISSA_BITS = 23

_EXP = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
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
_NEAR_ZERO = 1.6e-7  # Square of where the next term of the series no longer counts.


def expand_functions(ir: Any, operations: Sequence[Any]) -> None:
    """Replace single-precision functions by arithmetic.

    Args:
        ir: The ``ir`` module of the bindings.
        operations: Any operations; those that are no such function are left alone.
    """
    for operation in operations:
        form = _FORMS.get(operation.name)
        kind = operation.results[0].type if form is not None else None
        if form is None or not isinstance(_element(ir, kind), ir.F32Type):
            continue
        with ir.InsertionPoint(operation), operation.location:
            result = form(_Builder(ir, kind), operation.operands[0])
        operation.results[0].replace_all_uses_with(result)
        operation.erase()


def _element(ir: Any, kind: Any) -> Any:
    return kind.element_type if isinstance(kind, ir.VectorType) else kind


@frozen
class _Builder:
    """Makes operations on values of one floating-point type, or on integers of its shape."""

    ir: Any
    kind: Any

    def shaped(self, element: Any) -> Any:
        """``element`` in the shape of the values."""
        if not isinstance(self.kind, self.ir.VectorType):
            return element
        # A scalable vector has no form here: programs for one machine have none.
        return self.ir.VectorType.get(list(self.kind.shape), element)

    @property
    def integer(self) -> Any:
        """32-bit integers."""
        return self.shaped(self.ir.IntegerType.get_signless(32))

    def make(self, name: str, kind: Any, *operands: Any, **attributes: Any) -> Any:
        """The result of a new operation."""
        return self.ir.Operation.create(
            name, results=[kind], operands=list(operands), attributes=attributes
        ).results[0]

    def constant(self, value: float | int) -> Any:
        """A float, or an integer, in every lane."""
        ir = self.ir
        if isinstance(value, float):
            kind, scalar = self.kind, ir.FloatAttr.get(ir.F32Type.get(), value)
        else:
            element = ir.IntegerType.get_signless(32)
            kind, scalar = self.integer, ir.IntegerAttr.get(element, value)
        if isinstance(kind, ir.VectorType):
            scalar = ir.DenseElementsAttr.get_splat(kind, scalar)
        return self.make("arith.constant", kind, value=scalar)

    def value(self, operand: Any) -> Any:
        """A constant for a Python number; anything else as it is."""
        return self.constant(operand) if isinstance(operand, (int, float)) else operand

    def arith(self, name: str, left: Any, right: Any) -> Any:
        """A float operation whose product may be fused with a sum."""
        left, right = self.value(left), self.value(right)
        flags = self.ir.Attribute.parse("#arith.fastmath<contract>")
        return self.make(f"arith.{name}", left.type, left, right, fastmath=flags)

    def integers(self, name: str, left: Any, right: Any) -> Any:
        """An integer operation."""
        return self.make(f"arith.{name}", self.integer, self.value(left), self.value(right))

    def bits(self, value: Any) -> Any:
        """The bits of floats as integers."""
        return self.make("arith.bitcast", self.integer, value)

    def floats(self, value: Any) -> Any:
        """Floats that have the bits of integers."""
        return self.make("arith.bitcast", self.kind, value)

    def where(self, predicate: int, left: Any, right: Any, yes: Any, no: Any) -> Any:
        """``yes`` where the comparison of floats holds; a NaN fulfils no ordered one."""
        ir = self.ir
        code = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)
        kind = self.shaped(ir.IntegerType.get_signless(1))
        condition = self.make(
            "arith.cmpf", kind, self.value(left), self.value(right), predicate=code
        )
        return self.make("arith.select", self.kind, condition, self.value(yes), self.value(no))

    def at_most(self, value: Any, bound: float) -> Any:
        """The smaller of both; NaN stays NaN."""
        return self.where(_GREATER, value, bound, bound, value)

    def at_least(self, value: Any, bound: float) -> Any:
        """The larger of both; NaN stays NaN."""
        return self.where(_LESS, value, bound, bound, value)

    def polynomial(self, value: Any, coefficients: Sequence[float]) -> Any:
        """By Horner's rule, the highest power first."""
        result = self.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            result = self.arith("addf", self.arith("mulf", result, value), coefficient)
        return result


_EQUAL, _GREATER, _LESS = 1, 2, 4  # arith.cmpf: oeq, ogt, olt
_NOT_GREATER_EQUAL = 11  # ult


def _exp(build: _Builder, x: Any) -> Any:
    """``2**n * exp(r)`` with ``n`` the integer nearest to ``x / log(2)``."""
    x = build.at_least(build.at_most(x, 89.0), -104.0)
    shifted = build.arith("addf", build.arith("mulf", x, 1.44269504088896341), _MAGIC)
    whole = build.arith("subf", shifted, _MAGIC)
    # log(2) in two parts, of which the first is exact times any n.
    rest = build.arith("subf", x, build.arith("mulf", whole, 0.693359375))
    rest = build.arith("addf", rest, build.arith("mulf", whole, 2.12194440e-4))
    square = build.arith("mulf", rest, rest)
    tail = build.arith("mulf", build.polynomial(rest, _EXP), square)
    result = build.arith("addf", build.arith("addf", tail, rest), 1.0)
    # In two steps, since 2**n itself may be out of range where the result is not.
    power = build.integers("subi", build.bits(shifted), _MAGIC_BITS)
    half = build.integers("shrsi", power, 1)
    for exponent in (half, build.integers("subi", power, half)):
        biased = build.integers("addi", exponent, _EXPONENT_BIAS)
        scale = build.floats(build.integers("shli", biased, _MANTISSA_BITS))
        result = build.arith("mulf", result, scale)
    return result


def _log(build: _Builder, x: Any) -> Any:
    """``e * log(2) + log(m)`` with ``m`` between ``sqrt(1/2)`` and ``sqrt(2)``."""
    # Numbers below the smallest normal one get an exponent by scaling.
    tiny = 1.17549435082229e-38
    normal = build.where(_LESS, x, tiny, build.arith("mulf", x, 8388608.0), x)
    bias = build.where(_LESS, x, tiny, 149.0, 126.0)
    bits = build.bits(normal)
    raw = build.integers("shrui", bits, _MANTISSA_BITS)
    exponent = build.arith("subf", build.make("arith.sitofp", build.kind, raw), bias)
    mantissa = build.floats(
        build.integers("ori", build.integers("andi", bits, 0x007FFFFF), 0x3F000000)
    )
    small = 0.707106781186547524
    doubled = build.arith("addf", mantissa, mantissa)
    exponent = build.where(_LESS, mantissa, small, build.arith("subf", exponent, 1.0), exponent)
    part = build.arith("subf", build.where(_LESS, mantissa, small, doubled, mantissa), 1.0)
    square = build.arith("mulf", part, part)
    tail = build.arith("mulf", build.polynomial(part, _LOG), build.arith("mulf", part, square))
    tail = build.arith("addf", tail, build.arith("mulf", exponent, -2.12194440e-4))
    tail = build.arith("subf", tail, build.arith("mulf", square, 0.5))
    result = build.arith("addf", part, tail)
    result = build.arith("addf", result, build.arith("mulf", exponent, 0.693359375))
    infinity = float("inf")
    result = build.where(_EQUAL, x, infinity, x, result)
    result = build.where(_EQUAL, x, 0.0, -infinity, result)
    # Of negative numbers and NaN.
    return build.where(_NOT_GREATER_EQUAL, x, 0.0, float("nan"), result)


@frozen
class _Rational:
    """An odd function: ``x * above(x**2) / below(x**2)`` up to a bound, constant beyond it.

    Attributes:
        above: Coefficients, the highest power first.
        below: The same of the denominator.
        bound: Where the function is a constant from.
        slope: At zero: near it, where the numerator loses digits, the function is a line.
    """

    above: tuple[float, ...]
    below: tuple[float, ...]
    bound: float
    slope: float

    def __call__(self, build: _Builder, x: Any) -> Any:
        inside = build.at_least(build.at_most(x, self.bound), -self.bound)
        square = build.arith("mulf", inside, inside)
        top = build.arith("mulf", inside, build.polynomial(square, self.above))
        result = build.arith("divf", top, build.polynomial(square, self.below))
        line = build.arith("mulf", x, self.slope)
        return build.where(_LESS, square, _NEAR_ZERO, line, result)


_TANH = _Rational(
    (
        -2.76076847742355e-16,
        2.00018790482477e-13,
        -8.60467152213735e-11,
        5.12229709037114e-08,
        1.48572235717979e-05,
        6.37261928875436e-04,
        4.89352455891786e-03,
    ),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
    7.90531110763549805,
    1.0,
)
_ERF = _Rational(
    (
        -2.72614225801306e-10,
        2.77068142495902e-08,
        -2.10102402082508e-06,
        -5.69250639462346e-05,
        -7.34990630326855e-04,
        -2.95459980854025e-03,
        -1.60960333262415e-02,
    ),
    (
        -1.45660718464996e-05,
        -2.13374055278905e-04,
        -1.68282697438203e-03,
        -7.37332916720468e-03,
        -1.42647390514189e-02,
    ),
    4.0,
    1.12837916709551257,
)
_FORMS: Mapping[str, Callable[[_Builder, Any], Any]] = {
    "math.exp": _exp,
    "math.log": _log,
    "math.tanh": _TANH,
    "math.erf": _ERF,
}
