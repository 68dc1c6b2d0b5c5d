"""From the operations in the body of a linalg operation to scalar bodies."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    IntExpr,
    ScalarExpr,
    Select,
    Unary,
    const,
    maximum,
    minimum,
)
from autotune.ir.expressions.scalar import walk

__all__ = [
    "BODY_OPERATIONS",
    "COMBINERS",
    "DTYPES",
    "BodyReader",
    "Unsupported",
    "combination",
    "combiner_of",
    "comparison_of",
    "constant_of",
    "defining",
    "dtype_of",
    "index_of_map",
    "yielded",
]

DTYPES = {
    "i1": "bool",
    "i8": "int8",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
}
"""Element types of tensors, and what workloads call them; bytes may be unsigned, too."""

_BINARY = {
    "arith.addf": "add",
    "arith.addi": "add",
    "arith.subf": "sub",
    "arith.subi": "sub",
    "arith.mulf": "mul",
    "arith.muli": "mul",
    "arith.divf": "div",
    "arith.divsi": "div",
    "arith.maximumf": "max",
    "arith.maxnumf": "max",
    "arith.maxsi": "max",
    "arith.minimumf": "min",
    "arith.minnumf": "min",
    "arith.minsi": "min",
    "math.powf": "pow",
}
_UNARY = {
    "arith.negf": "neg",
    "math.absf": "abs",
    "math.absi": "abs",
    "math.exp": "exp",
    "math.log": "log",
    "math.sqrt": "sqrt",
    "math.rsqrt": "rsqrt",
    "math.sin": "sin",
    "math.cos": "cos",
    "math.tanh": "tanh",
    "math.erf": "erf",
    "math.floor": "floor",
    "math.ceil": "ceil",
    "math.roundeven": "round",
}
_CASTS = (
    "arith.extf",
    "arith.truncf",
    "arith.extsi",
    "arith.trunci",
    "arith.sitofp",
    "arith.fptosi",
    "arith.index_cast",
)
# Conversions that take their operand for an unsigned number; of a truth value that is right.
_UNSIGNED_CASTS = ("arith.extui", "arith.uitofp", "arith.index_castui")
_INDEX_CASTS = ("arith.index_cast", "arith.index_castui")
_LOGIC = {"arith.andi": "and", "arith.ori": "or", "arith.xori": "ne"}
# Positions are not negative where they are divided as unsigned numbers.
_INDEX: Mapping[str, Callable[[IntExpr, IntExpr], IntExpr]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.floordivsi": operator.floordiv,
    "arith.divui": operator.floordiv,
    "arith.remui": operator.mod,
    "arith.minsi": minimum,
    "arith.maxsi": maximum,
}
BODY_OPERATIONS = frozenset(
    {
        *_BINARY,
        *_UNARY,
        *_CASTS,
        *_UNSIGNED_CASTS,
        *_LOGIC,
        *_INDEX,
        *("arith.cmpf", "arith.cmpi", "arith.constant", "arith.remsi", "arith.select"),
        *("math.fma", "math.fpowi", "math.log1p"),
        *("affine.apply", "cf.assert", "linalg.index", "tensor.extract"),
    }
)
"""Operations that may stand in the body of an operation of linalg."""

COMBINERS = ("add", "mul", "max", "min")
# Of truth values: true is the greater one.
_TRUTH_COMBINERS = {"arith.ori": "max", "arith.andi": "min"}
# Predicates by their numbers, as the attribute of the operations holds them. Ordered and unordered
# comparisons of floats differ for NaN only.
_INTEGER_PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge")
_FLOAT_PREDICATES = (
    *("", "eq", "gt", "ge", "lt", "le", "ne", ""),
    *("eq", "gt", "ge", "lt", "le", "ne", "", ""),
)
# Values that are used twice are written twice in a scalar body: what is shared at every step of a
# long chain would not end.
_MOST_NODES = 2000
# Larger exponents are refused: their products would round too often.
_LARGEST_EXPONENT = 16
_BYTE = "i8"
# Functions that are computed in single precision, also of halves: only those have vectors.
_WIDE = "float32"
_HALVES = ("f16", "bf16")
_WIDENED = frozenset(
    f"math.{name}"
    for name in ("cos", "erf", "exp", "log", "log1p", "powf", "rsqrt", "sin", "tanh")
)


class Unsupported(Exception):
    """A reason why an operation has no form as a stage; the importer says which operation."""


def defining(value: Any) -> Any | None:
    """The operation that ``value`` is the result of; None for an argument of a block."""
    owner = value.owner
    # Both a block and a view of an operation have an owner's surface; only operations have a name.
    operation = getattr(owner, "operation", owner)
    return operation if hasattr(operation, "name") and hasattr(operation, "operands") else None


def dtype_of(element: Any) -> str:
    """The workload language's name for the type of an element of a tensor.

    Raises:
        Unsupported: it has none.
    """
    text = str(element)
    if text not in DTYPES:
        raise Unsupported(f"element type {text} is not one of {', '.join(DTYPES)}")
    return DTYPES[text]


def constant_of(operation: Any) -> Constant:
    """The number that an ``arith.constant`` is.

    Raises:
        Unsupported: workloads have no numbers of its type.
    """
    value = operation.attributes["value"].value
    dtype = dtype_of(operation.results[0].type)
    return Constant(bool(value) if dtype == "bool" else value, dtype)


def yielded(block: Any) -> list[Any]:
    """The values that a body yields."""
    return list(list(block.operations)[-1].operation.operands)


def combination(value: Any, accumulator: Any) -> tuple[str, tuple[Any, ...]]:
    """Combination in a body of what was there with something.

    Args:
        value: What it yields.
        accumulator: Its argument that is what was there.

    Returns:
        The combiner, and the value that is combined with what was there, or two of which the
        product is.

    Raises:
        Unsupported: the body is of another form.
    """
    known = _TRUTH_COMBINERS if dtype_of(accumulator.type) == "bool" else _BINARY
    operation = defining(value)
    name = "" if operation is None else operation.name
    if operation is not None and sum(1 for _ in accumulator.uses) == 1:
        operands = list(operation.operands)
        if known.get(name) in COMBINERS and accumulator in operands:
            return known[name], (operands[1 if operands[0] == accumulator else 0],)
        if name == "math.fma" and operands[2] == accumulator:
            return "add", (operands[0], operands[1])
    raise Unsupported(
        "its body is not a reduction of the form output = output (+, *, max or min; and, or of "
        "truth values) expression" + (f"; it yields the result of {name}" if name else "")
    )


def index_of_map(expression: Any, values: Sequence[IntExpr]) -> IntExpr:
    """An affine expression over dimensions, with ``values`` for the dimensions.

    Raises:
        Unsupported: it depends on a symbol.
    """
    kind = type(expression).__name__
    if kind == "AffineDimExpr":
        return values[int(expression.position)]
    if kind == "AffineConstantExpr":
        return const(expression.value)
    if kind == "AffineSymbolExpr":
        raise Unsupported(f"{expression} is a symbol of an affine map")
    left = index_of_map(expression.lhs, values)
    right = index_of_map(expression.rhs, values)
    if kind == "AffineAddExpr":
        return left + right
    if kind == "AffineMulExpr":
        return left * right
    if kind == "AffineModExpr":
        return left % right
    if kind == "AffineFloorDivExpr":
        return left // right
    return -((-left) // right)


class BodyReader:
    """Reads numbers of a function, and those that a body computes.

    Args:
        iterators: The index that each iterator of the operation with the body is.
        arguments: What arguments of the body and of the function are.
        extract: What an element of a tensor value is, at indices that are bodies.
    """

    def __init__(
        self,
        iterators: Sequence[IntExpr],
        arguments: Mapping[Any, Callable[[], ScalarExpr]],
        extract: Callable[[Any, Sequence[ScalarExpr]], ScalarExpr],
    ) -> None:
        self._iterators = tuple(iterators)
        self._arguments = arguments
        self._extracted = extract
        self._nodes = 0
        self._expanded: Mapping[str, Callable[[Any], ScalarExpr]] = {
            "arith.remsi": self._remainder,
            "math.fma": self._multiply_add,
            "math.fpowi": self._power,
            "math.log1p": self._log1p,
        }

    def scalar(self, value: Any) -> ScalarExpr:
        """The scalar body that ``value`` is.

        Raises:
            Unsupported: it has no such form.
        """
        self._count(1)
        operation = defining(value)
        if operation is None:
            return self._argument(value)
        if str(value.type) == "index":
            return self._place(value)
        name = operation.name
        operands = list(operation.operands)
        if name == "arith.constant":
            return constant_of(operation)
        if name == "tensor.extract":
            return self._extract(operation)
        if name in _CASTS or name in _UNSIGNED_CASTS:
            return self._cast(name, value, operands[0])
        if name == "arith.select":
            return Select(*(self.scalar(operand) for operand in operands))
        read = self._function(operation)
        return Cast(dtype_of(value.type), read) if _is_widened(name, value) else read

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > _MOST_NODES:
            raise Unsupported(f"its body has more than {_MOST_NODES} operations, written out")

    def _function(self, operation: Any) -> ScalarExpr:
        name, operands = operation.name, list(operation.operands)
        if name in self._expanded:
            before = self._nodes
            made = self._expanded[name](operation)
            # What is read once may be written several times.
            self._count(max(0, sum(1 for _ in walk(made)) - (self._nodes - before)))
            return made
        if name in _UNARY:
            return Unary(_UNARY[name], self._operand(operation, 0))
        truth = bool(operands) and str(operands[0].type) == "i1"
        op = None if truth else _BINARY.get(name)
        if name in ("arith.cmpi", "arith.cmpf"):
            op = comparison_of(operation, truth)
        elif name in _LOGIC and truth:
            op = _LOGIC[name]
        if op is None:
            of_type = f" of {operands[0].type}" if operands else ""
            raise Unsupported(f"operation {name}{of_type} in its body is not supported")
        return Binary(op, *(self._operand(operation, number) for number in range(len(operands))))

    def _operand(self, operation: Any, number: int) -> ScalarExpr:
        """An operand, in single precision where the operation is computed in that."""
        read = self.scalar(operation.operands[number])
        wide = _is_widened(operation.name, operation.results[0])
        return Cast(_WIDE, read) if wide else read

    def _multiply_add(self, operation: Any) -> ScalarExpr:
        left, right, added = map(self.scalar, operation.operands)
        return Binary("add", Binary("mul", left, right), added)

    def _remainder(self, operation: Any) -> ScalarExpr:
        """The remainder of a division which truncates."""
        left, right = map(self.scalar, operation.operands)
        return Binary("sub", left, Binary("mul", Binary("div", left, right), right))

    def _power(self, operation: Any) -> ScalarExpr:
        """Products of a number with itself, by squaring."""
        base, given = operation.operands
        producer = defining(given)
        known = producer is not None and producer.name == "arith.constant"
        exponent = int(producer.attributes["value"].value) if producer and known else None
        if exponent is None or abs(exponent) > _LARGEST_EXPONENT:
            raise Unsupported(
                f"operation math.fpowi of {base.type} in its body is not supported but with a "
                f"constant of at most {_LARGEST_EXPONENT}"
            )
        one, square = Constant(1.0, dtype_of(base.type)), self.scalar(base)
        found: ScalarExpr | None = None
        left = abs(exponent)
        while left:
            if left % 2:
                found = square if found is None else Binary("mul", found, square)
            left //= 2
            square = Binary("mul", square, square)
        power = one if found is None else found
        return Binary("div", one, power) if exponent < 0 else power

    def _log1p(self, operation: Any) -> ScalarExpr:
        """log(1 + x), corrected by the rounding of 1 + x (W. Kahan's formula).

        Where the sum is 1 the result is x, and where it is infinite there is nothing to correct.
        """
        x = self._operand(operation, 0)
        wide = _is_widened(operation.name, operation.results[0])
        one = Constant(1.0, _WIDE if wide else dtype_of(operation.results[0].type))
        total = Binary("add", x, one)
        log = Unary("log", total)
        corrected = Binary("mul", x, Binary("div", log, Binary("sub", total, one)))
        chosen = Select(Binary("eq", total, one), x, corrected)
        return Select(Binary("eq", total, x), log, chosen)

    def _argument(self, value: Any) -> ScalarExpr:
        if value in self._arguments:
            return self._arguments[value]()
        raise Unsupported("its body reads what the operation writes")

    def _cast(self, name: str, value: Any, operand: Any) -> ScalarExpr:
        return Cast(dtype_of(value.type), self._converted(name, operand))

    def _converted(self, name: str, operand: Any) -> ScalarExpr:
        """The operand of a conversion, which may take it for an unsigned number."""
        read, kind = self.scalar(operand), str(operand.type)
        if name not in _UNSIGNED_CASTS or kind in ("i1", "index"):
            return read
        if kind != _BYTE:
            raise Unsupported(f"operation {name} in its body takes {kind} for an unsigned number")
        return Cast("uint8", read)

    def _extract(self, operation: Any) -> ScalarExpr:
        tensor, *indices = operation.operands
        return self._extracted(tensor, [self._place(index) for index in indices])

    def _place(self, value: Any) -> ScalarExpr:
        """A number of type index, which may be computed from data."""
        operation = defining(value)
        if operation is None:
            return self._argument(value)
        if operation.name in _INDEX_CASTS:
            return self._converted(operation.name, operation.operands[0])
        try:
            return IndexValue(self.index(value))
        except Unsupported:
            if operation.name not in _BINARY:
                raise
            return Binary(_BINARY[operation.name], *map(self._place, operation.operands))

    def index(self, value: Any) -> IntExpr:
        """The index expression that ``value``, of type index, is.

        Raises:
            Unsupported: it depends on something else than positions.
        """
        operation = defining(value)
        name = "" if operation is None else operation.name
        if operation is None or str(value.type) != "index":
            raise Unsupported("an index in its body depends on data")
        operands = list(operation.operands)
        if name == "linalg.index":
            return self._iterators[int(operation.attributes["dim"].value)]
        if name == "arith.constant":
            return const(int(operation.attributes["value"].value))
        if name == "affine.apply":
            (result,) = operation.attributes["map"].value.results
            return index_of_map(result, [self.index(operand) for operand in operands])
        if name in _INDEX:
            return _INDEX[name](self.index(operands[0]), self.index(operands[1]))
        raise Unsupported(f"operation {name} of index in its body is not supported")


def _is_widened(name: str, result: Any) -> bool:
    """Return whether a function of halves is computed in single precision."""
    return name in _WIDENED and str(result.type) in _HALVES


def combiner_of(operation: Any) -> str:
    """Combination of two numbers by an operation, such as ``add``; empty if it is none."""
    return _BINARY.get(operation.name, "")


def comparison_of(operation: Any, truth: bool = False) -> str | None:
    """Comparison of ``arith.cmpf`` or ``arith.cmpi``: ``lt``, ``eq`` and so on, or None.

    Args:
        operation: The comparison.
        truth: Whether it compares truth values.
    """
    number = int(operation.attributes["predicate"].value)
    predicates = _INTEGER_PREDICATES if operation.name == "arith.cmpi" else _FLOAT_PREDICATES
    # Truth values are compared as signed numbers otherwise, where true is -1.
    known: Mapping[int, str] = dict(enumerate(predicates[:2] if truth else predicates))
    return known.get(number) or None
