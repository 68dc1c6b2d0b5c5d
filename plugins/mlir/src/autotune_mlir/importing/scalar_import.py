"""From the operations in the body of a linalg operation to scalar bodies."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    maximum,
    minimum,
    var,
)

__all__ = [
    "BODY_OPERATIONS",
    "DTYPES",
    "BodyReader",
    "Unsupported",
    "combination",
    "combiner_of",
    "comparison_of",
    "defining",
    "dtype_of",
    "index_of_map",
    "producer_of_yield",
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
        *("arith.cmpf", "arith.cmpi", "arith.constant", "arith.select", "math.fma"),
        *("affine.apply", "linalg.index", "tensor.extract"),
    }
)
"""Operations that may stand in the body of an operation of linalg."""

_COMBINERS = ("add", "mul", "max", "min")
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


def producer_of_yield(block: Any) -> Any | None:
    """The operation whose result a linalg body yields, or None where it passes on an argument.

    Raises:
        Unsupported: it yields several values.
    """
    operands = list(_terminator(block).operands)
    if len(operands) != 1:
        raise Unsupported(f"it yields {len(operands)} values, not one")
    return defining(operands[0])


def _terminator(block: Any) -> Any:
    return list(block.operations)[-1].operation


def combination(block: Any) -> tuple[str, Any, Any]:
    """How the body of a reduction combines: output = output (combiner) something.

    Returns:
        The combiner, the operation that combines, and the value that is combined with what was
        there.

    Raises:
        Unsupported: the body is of another form.
    """
    accumulator = list(block.arguments)[-1]
    known = _TRUTH_COMBINERS if dtype_of(accumulator.type) == "bool" else _BINARY
    operation = producer_of_yield(block)
    name = "" if operation is None else operation.name
    if operation is not None and known.get(name) in _COMBINERS:
        operands = list(operation.operands)
        uses = sum(1 for _ in accumulator.uses)
        if accumulator in operands and uses == 1:
            other = operands[1] if operands[0] == accumulator else operands[0]
            return known[name], operation, other
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
    """Reads the values of one body.

    Args:
        axes: Name of the axis that each iterator is, in order.
        arguments: What the arguments of the body hold that are read from tensors.
        extract: What an element of a tensor value is, at indices that are bodies.
        is_unsigned: Whether a tensor holds unsigned bytes.

    Attributes:
        stores_unsigned: Whether what is read is stored as unsigned bytes.
    """

    def __init__(
        self,
        axes: Sequence[str],
        arguments: Sequence[tuple[Any, Load]],
        extract: Callable[[Any, Sequence[ScalarExpr]], Load | Gather],
        is_unsigned: Callable[[str], bool],
    ) -> None:
        self.stores_unsigned = False
        self._is_unsigned = is_unsigned
        self._axes = tuple(axes)
        self._arguments = tuple(arguments)
        self._extracted = extract
        self._nodes = 0

    def scalar(self, value: Any) -> ScalarExpr:
        """The scalar body that ``value`` is.

        Raises:
            Unsupported: it has no such form.
        """
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise Unsupported(f"its body has more than {_MOST_NODES} operations, written out")
        operation = defining(value)
        if operation is None:
            return self._argument(value)
        if str(value.type) == "index":
            return self._place(value)
        name = operation.name
        operands = list(operation.operands)
        if name == "arith.constant":
            return self._constant(operation)
        if name == "tensor.extract":
            return self._extract(operation)
        if name in _UNARY:
            return Unary(_UNARY[name], self.scalar(operands[0]))
        if name in _CASTS or name in _UNSIGNED_CASTS:
            return self._cast(name, value, operands[0])
        if name == "arith.select":
            return Select(*(self.scalar(operand) for operand in operands))
        if name == "math.fma":
            product = Binary("mul", self.scalar(operands[0]), self.scalar(operands[1]))
            return Binary("add", product, self.scalar(operands[2]))
        return self._binary(operation, operands)

    def _binary(self, operation: Any, operands: Sequence[Any]) -> ScalarExpr:
        name = operation.name
        truth = bool(operands) and str(operands[0].type) == "i1"
        op = None if truth else _BINARY.get(name)
        if name in ("arith.cmpi", "arith.cmpf"):
            op = comparison_of(operation, truth)
        elif name in _LOGIC and truth:
            op = _LOGIC[name]
        if op is None:
            of_type = f" of {operands[0].type}" if operands else ""
            raise Unsupported(f"operation {name}{of_type} in its body is not supported")
        return Binary(op, *(self.scalar(operand) for operand in operands))

    def _argument(self, value: Any) -> Load:
        for argument, load in self._arguments:
            if argument == value:
                return load
        raise Unsupported("its body reads what the operation writes")

    def _cast(self, name: str, value: Any, operand: Any) -> ScalarExpr:
        read = self.scalar(operand)
        is_known = str(operand.type) in ("i1", "index") or (
            isinstance(read, (Load, Gather)) and self._is_unsigned(read.tensor)
        )
        if name in _UNSIGNED_CASTS and not is_known:
            raise Unsupported(
                f"operation {name} in its body takes {operand.type} for an unsigned number"
            )
        is_byte = self.stores_unsigned and str(value.type) == "i8"
        return Cast("uint8" if is_byte else dtype_of(value.type), read)

    def _constant(self, operation: Any) -> Constant:
        value = operation.attributes["value"].value
        dtype = dtype_of(operation.results[0].type)
        if self.stores_unsigned and dtype == "int8":
            return Constant(value % 256, "uint8")
        return Constant(bool(value) if dtype == "bool" else value, dtype)

    def _extract(self, operation: Any) -> Load | Gather:
        tensor, *indices = operation.operands
        return self._extracted(tensor, [self._place(index) for index in indices])

    def _place(self, value: Any) -> ScalarExpr:
        """A number of type index, which may be computed from data."""
        operation = defining(value)
        if operation is not None and operation.name in _INDEX_CASTS:
            return self.scalar(operation.operands[0])
        try:
            return IndexValue(self.index(value))
        except Unsupported:
            if operation is None or operation.name not in _BINARY:
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
            return var(self._axes[int(operation.attributes["dim"].value)])
        if name == "arith.constant":
            return const(int(operation.attributes["value"].value))
        if name == "affine.apply":
            (result,) = operation.attributes["map"].value.results
            return index_of_map(result, [self.index(operand) for operand in operands])
        if name in _INDEX:
            return _INDEX[name](self.index(operands[0]), self.index(operands[1]))
        raise Unsupported(f"operation {name} of index in its body is not supported")


def combiner_of(operation: Any) -> str:
    """How an operation combines two numbers: ``add``, ``max`` and so on; empty if it does not."""
    return _BINARY.get(operation.name, "")


def comparison_of(operation: Any, truth: bool = False) -> str | None:
    """How ``arith.cmpf`` or ``arith.cmpi`` compares: ``lt``, ``eq`` and so on, or None.

    Args:
        operation: The comparison.
        truth: Whether it compares truth values.
    """
    number = int(operation.attributes["predicate"].value)
    predicates = _INTEGER_PREDICATES if operation.name == "arith.cmpi" else _FLOAT_PREDICATES
    # Truth values are compared as signed numbers otherwise, where true is -1.
    known: Mapping[int, str] = dict(enumerate(predicates[:2] if truth else predicates))
    return known.get(number) or None
