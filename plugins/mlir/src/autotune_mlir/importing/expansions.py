"""Operations in bodies that backends have no vectors of, as those that they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune_mlir.bindings import Bindings
from autotune_mlir.building import Builder
from autotune_mlir.importing.scalar_import import defining

__all__ = ["EXPANDED", "expand_bodies"]

EXPANDED = ("arith.remsi", "cf.assert", "math.fpowi", "math.log1p")
"""Operations that may stand in a body, and are written with others."""

# Functions that are computed in single precision, also of halves: only those have vectors.
_FUNCTIONS = frozenset(
    f"math.{name}"
    for name in ("cos", "erf", "exp", "log", "log1p", "powf", "rsqrt", "sin", "tanh")
)
_HALVES = ("f16", "bf16")
# Larger exponents stay, and are refused: their products would round too often.
_LARGEST_EXPONENT = 16
# The predicate "equal" of arith.cmpf, ordered.
_EQUAL = 1


def expand_bodies(mlir: Bindings, block: Any) -> None:
    """Write operations of bodies with others; what is asserted of data is taken to hold.

    Args:
        mlir: The bindings.
        block: The body of a function.
    """
    expander = _Expander(mlir)
    for view in block.operations:
        if view.operation.name != "linalg.generic":
            continue
        for inner in list(view.operation.regions[0].blocks[0].operations):
            expander.expand(inner.operation)


class _Expander:
    """Expands single operations.

    Args:
        mlir: The bindings.
    """

    def __init__(self, mlir: Bindings) -> None:
        self._ir = mlir.ir
        self._build = Builder(mlir)
        self._known: dict[str, Callable[[Any], Any]] = {
            "arith.remsi": self._remainder,
            "math.fpowi": self._power,
            "math.log1p": self._log1p,
        }

    def expand(self, operation: Any) -> None:
        """Expand an operation; one that is not known stays."""
        if operation.name == "cf.assert":
            operation.erase()
            return
        if operation.name in _FUNCTIONS and str(operation.results[0].type) in _HALVES:
            operation = self._widened(operation)
        if operation.name in self._known:
            with self._ir.InsertionPoint(operation), operation.location:
                made = self._known[operation.name](operation)
            if made is not None:
                operation.results[0].replace_all_uses_with(made)
                operation.erase()

    def _widened(self, operation: Any) -> Any:
        """The operation in single precision, whose result is rounded in place of the old one."""
        ir, narrow = self._ir, operation.results[0].type
        wide = ir.F32Type.get()
        with ir.InsertionPoint(operation), operation.location:
            create = ir.Operation.create
            given = [create("arith.extf", [wide], [it]).results[0] for it in operation.operands]
            made = create(operation.name, [wide], given)
            rounded = create("arith.truncf", [narrow], [made.results[0]]).results[0]
        operation.results[0].replace_all_uses_with(rounded)
        operation.erase()
        return made

    def _remainder(self, operation: Any) -> Any | None:
        """That of a division which truncates; None of indices, which have one of their own."""
        left, right = operation.operands
        if str(left.type) == "index":
            return None
        whole = self._create("arith.muli", self._create("arith.divsi", left, right), right)
        return self._create("arith.subi", left, whole)

    def _power(self, operation: Any) -> Any | None:
        """Products of a number with itself, by squaring; None where the exponent is data."""
        base, given = operation.operands
        producer = defining(given)
        if producer is None or producer.name != "arith.constant":
            return None
        exponent = int(producer.attributes["value"].value)
        if abs(exponent) > _LARGEST_EXPONENT:
            return None
        one = self._number(base.type, 1.0)
        found, square, left = None, base, abs(exponent)
        while left:
            if left % 2:
                found = square if found is None else self._create("arith.mulf", found, square)
            left //= 2
            square = self._create("arith.mulf", square, square) if left else square
        found = one if found is None else found
        return self._create("arith.divf", one, found) if exponent < 0 else found

    def _log1p(self, operation: Any) -> Any:
        """log(1 + x), corrected by the rounding of 1 + x (W. Kahan's formula).

        Where the sum is 1 the result is x, and where it is infinite there is nothing to correct.
        """
        (x,) = operation.operands
        one = self._number(x.type, 1.0)
        total = self._create("arith.addf", one, x)
        log = self._create("math.log", total)
        rounded = self._create("arith.subf", total, one)
        corrected = self._create("arith.mulf", x, self._create("arith.divf", log, rounded))
        chosen = self._choose(self._equals(total, one), x, corrected)
        return self._choose(self._equals(total, x), log, chosen)

    def _equals(self, left: Any, right: Any) -> Any:
        ir = self._ir
        equal = {"predicate": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _EQUAL)}
        truth = [ir.IntegerType.get_signless(1)]
        return ir.Operation.create("arith.cmpf", truth, [left, right], equal).results[0]

    def _choose(self, condition: Any, left: Any, right: Any) -> Any:
        operands = [condition, left, right]
        return self._ir.Operation.create("arith.select", [left.type], operands).results[0]

    def _number(self, kind: Any, value: float) -> Any:
        return self._build.scalar(self._ir.FloatAttr.get(kind, value), kind)

    def _create(self, name: str, *operands: Any) -> Any:
        return self._ir.Operation.create(name, [operands[0].type], list(operands)).results[0]
