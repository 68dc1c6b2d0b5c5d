"""From scalar bodies to operations of the arith, math and linalg dialects, as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from attrs import frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import ELEMENT_TYPES
from autotune.ir.expressions import (
    Cast,
    Constant,
    Gather,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    index_bounds,
)
from autotune.ir.expressions.scalar import COMPARISONS, LOGIC

__all__ = ["BodyWriter", "Value", "literal", "memory_type", "value_type"]

_FLOATS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
_HALVES = ("float16", "bfloat16")
_FLOAT_BINARY = {
    "add": "addf",
    "sub": "subf",
    "mul": "mulf",
    "div": "divf",
    "max": "maximumf",
    "min": "minimumf",
}
_INTEGER_BINARY = {
    "add": "addi",
    "sub": "subi",
    "mul": "muli",
    "div": "divsi",
    "max": "maxsi",
    "min": "minsi",
}
_UNSIGNED_BINARY = {**_INTEGER_BINARY, "div": "divui", "max": "maxui", "min": "minui"}
_BOOL_BINARY = {"add": "ori", "max": "ori", "mul": "andi", "min": "andi"}
_FLOAT_PREDICATES = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_MATH = {
    "abs": "absf",
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sin",
    "cos": "cos",
    "tanh": "tanh",
    "erf": "erf",
    "floor": "floor",
    "ceil": "ceil",
    "round": "roundeven",
}
_EXACT = ("abs", "floor", "ceil", "round")


@frozen
class Value:
    """An SSA value; ``dtype`` is a type of the workload language, or ``index``."""

    name: str
    dtype: str


def value_type(dtype: str) -> str:
    """The MLIR type of a value of type ``dtype`` (of an element in memory, a bool is an i8)."""
    if dtype == "index":
        return "index"
    if dtype == "bool":
        return "i1"
    return _FLOATS.get(dtype) or f"i{8 * ELEMENT_TYPES[dtype].bytes}"


def literal(value: float | int | bool, dtype: str) -> str:
    """A constant of type ``dtype`` as an attribute without its type: exact, whatever its bits."""
    if dtype in _FLOATS:
        kind = ELEMENT_TYPES[dtype]
        with np.errstate(over="ignore"):
            stored = np.asarray(kind.stored(np.asarray(float(value))), kind.dtype)
        if math.isfinite(value) and not np.isfinite(kind.numbers(stored)):
            raise UnsupportedWorkload(f"the constant {value} does not fit {dtype}")
        return f"0x{int(stored.view(f'u{kind.bytes}')):0{2 * kind.bytes}X}"
    if dtype == "bool":
        return "true" if value else "false"
    width = 64 if dtype == "index" else 8 * ELEMENT_TYPES[dtype].bytes
    wrapped = int(value) & ((1 << width) - 1)
    return str(wrapped - (1 << width) if wrapped >> (width - 1) else wrapped)


class BodyWriter:
    """Writes the operations that compute one stage's body, one line each, into ``lines``.

    Args:
        stage: Name of the stage, for messages.
        extents: Extent of each axis by name.
        axes: Number of the loop of each axis.
        read: Gives the SSA name that holds a load's element when an operand of the structured
            operation delivers it, else None: the element is then extracted at indices that are
            clamped to the tensor, as the reference does.
        tensors: SSA name, shape and dtype of each tensor, for such extractions.
    """

    def __init__(
        self,
        stage: str,
        extents: Mapping[str, int],
        axes: Mapping[str, int],
        read: Callable[[Load], str | None],
        tensors: Mapping[str, tuple[str, tuple[int, ...], str]],
    ) -> None:
        self._stage = stage
        self._extents = dict(extents)
        self._axes = axes
        self._read = read
        self._tensors = tensors
        self._axis_values: dict[str, str] = {}
        self.lines: list[str] = []

    def operation(self, text: str) -> str:
        """Append ``%new = text``; returns the new name."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def constant(self, value: float | int | bool, dtype: str) -> Value:
        """A constant."""
        text = literal(value, dtype)
        suffix = "" if dtype == "bool" else f" : {value_type(dtype)}"
        return Value(self.operation(f"arith.constant {text}{suffix}"), dtype)

    def scalar(self, body: ScalarExpr) -> Value:
        """The value of ``body``.

        Raises:
            UnsupportedWorkload: MLIR has no form for a part of it.
        """
        if isinstance(body, Constant):
            return self.constant(body.value, body.dtype)
        if isinstance(body, IndexValue):
            return Value(self.index(body.index), "index")
        if isinstance(body, Load):
            return self._load(body)
        if isinstance(body, Gather):
            return self._gather(body)
        if isinstance(body, Cast):
            return self.cast(self.scalar(body.operand), body.dtype)
        if isinstance(body, Unary):
            return self._unary(body.op, self.scalar(body.operand))
        if isinstance(body, Select):
            return self._select(body)
        left, right = self.scalar(body.left), self.scalar(body.right)
        return self.combine(body.op, left, right)

    def combine(self, op: str, left: Value, right: Value) -> Value:
        """``left op right``, both brought to one type first.

        Raises:
            UnsupportedWorkload: there is no such operation on their type.
        """
        if op in LOGIC:
            name = "andi" if op == "and" else "ori"
            return self._arith(name, self.cast(left, "bool"), self.cast(right, "bool"))
        dtype = _common(left.dtype, right.dtype)
        left, right = self.cast(left, dtype), self.cast(right, dtype)
        if op in COMPARISONS:
            return self._compare(op, left, right)
        if op == "pow":
            if dtype not in _FLOATS:
                raise self._unsupported("pow", dtype)
            return self._in_float("math.powf", left, right)
        if op == "mod" and dtype != "bool":
            return self._floor_mod(left, right)
        if dtype in _FLOATS:
            return self._arith(_FLOAT_BINARY[op], left, right)
        if dtype == "bool":
            if op not in _BOOL_BINARY:
                raise self._unsupported(op, dtype)
            return self._arith(_BOOL_BINARY[op], left, right)
        if op == "div":
            right = self._nonzero(right)
        table = _UNSIGNED_BINARY if dtype == "uint8" else _INTEGER_BINARY
        return self._arith(table[op], left, right)

    def _floor_mod(self, left: Value, right: Value) -> Value:
        """The remainder of two values of one type, with the sign of the divisor."""
        if left.dtype in _FLOATS:
            remainder = self._in_float("arith.remf", left, right)
        elif left.dtype == "uint8":
            return self._arith("remui", left, self._nonzero(right))
        else:
            right = self._nonzero(right)
            remainder = self._arith("remsi", left, right)
        zero = self.constant(0, left.dtype)
        signs = [self._compare("lt", value, zero) for value in (remainder, right)]
        differ = self._arith("xori", *signs)
        turned = self._arith("andi", differ, self._compare("ne", remainder, zero))
        raised = self.combine("add", remainder, right)
        return self._chosen(turned, raised, remainder)

    def cast(self, value: Value, dtype: str) -> Value:
        """``value`` as ``dtype``; a number is true when it is not zero."""
        source = value.dtype
        if source == dtype:
            return value
        if dtype == "bool":
            return self._compare("ne", value, self.constant(0, source))
        if source == "index":
            if dtype in _FLOATS:
                return self.cast(self._convert("index_cast", value, "int64"), dtype)
            return self._convert("index_cast", value, dtype)
        if dtype == "index":
            wide = self.cast(value, "int64") if source in ("bool", "uint8") else value
            return self._convert("index_cast", wide, dtype)
        if dtype == "uint8" and source in _FLOATS:
            return self.cast(self._convert("fptosi", value, "int32"), dtype)
        halves = source in _HALVES and dtype in _HALVES
        if halves or {source, dtype} == {"bfloat16", "float64"}:
            # What becomes of bfloat16 are the leading bits of float32.
            value = self.cast(value, "float32")
            source = "float32"
        operation = _conversion(source, dtype)
        return self._convert(operation, value, dtype) if operation else Value(value.name, dtype)

    def index(self, index: IntExpr) -> str:
        """SSA name of an index expression's value, of type ``index``."""
        op, args = index.op, index.args
        if op == "const":
            return self.constant(args[0], "index").name
        if op == "var":
            return self._axis(args[0])
        names = [self.index(argument) for argument in args]
        if op in ("floordiv", "mod"):
            return self._quotient(op, index, names[0], names[1])
        if op == "less":
            smaller = self._compare("lt", *(Value(name, "index") for name in names))
            return self.cast(smaller, "index").name
        if op == "select":
            first, yes, no = (Value(name, "index") for name in names)
            chosen = self._compare("ne", first, self.constant(0, "index"))
            return self._chosen(chosen, yes, no).name
        result = names[0]
        for name in names[1:]:
            result = self.operation(f"arith.{_INTEGER_BINARY[op]} {result}, {name} : index")
        return result

    def _axis(self, name: str) -> str:
        if name not in self._axis_values:
            self._axis_values[name] = self.operation(f"linalg.index {self._axes[name]} : index")
        return self._axis_values[name]

    def _quotient(self, op: str, index: IntExpr, top: str, bottom: str) -> str:
        """Quotient or remainder that rounds down, as the vectoriser can take it."""
        divisor = index.args[1].value
        if divisor is None or divisor <= 0:
            raise UnsupportedWorkload(
                f"stage {self._stage!r} divides an index by {index.args[1]!r}: "
                "only positive constants are supported"
            )
        if index_bounds(index.args[0], self._extents)[0] >= 0:
            operation = "divui" if op == "floordiv" else "remui"
            return self.operation(f"arith.{operation} {top}, {bottom} : index")
        whole, by = Value(top, "index"), Value(bottom, "index")
        remainder = self._arith("remsi", whole, by)
        negative = self._compare("lt", remainder, self.constant(0, "index"))
        remainder = self._chosen(negative, self._arith("addi", remainder, by), remainder)
        if op == "mod":
            return remainder.name
        return self._arith("divsi", self._arith("subi", whole, remainder), by).name

    def _load(self, load: Load) -> Value:
        _, shape, dtype = self._tensors[load.tensor]
        name = self._read(load)
        if name is not None:
            return self.loaded(name, dtype)
        return self._extract(
            load.tensor,
            [
                self._clamped(index, extent)
                for index, extent in zip(load.indices, shape, strict=True)
            ],
        )

    def _gather(self, gather: Gather) -> Value:
        _, shape, _ = self._tensors[gather.tensor]
        indices = []
        for index, extent in zip(gather.indices, shape, strict=True):
            if isinstance(index, IndexValue):
                indices.append(self._clamped(index.index, extent))
                continue
            value = self.cast(self.scalar(index), "index")
            indices.append(self._limited(value.name, -1, extent, extent))
        return self._extract(gather.tensor, indices)

    def _extract(self, name: str, indices: Sequence[str]) -> Value:
        """The element of a tensor at indices that are in range."""
        tensor, shape, dtype = self._tensors[name]
        kind = "x".join([*map(str, shape), memory_type(dtype)])
        read = f"tensor.extract {tensor}[{', '.join(indices)}] : tensor<{kind}>"
        return self.loaded(self.operation(read), dtype)

    def loaded(self, name: str, dtype: str) -> Value:
        """The value of an element that was read from memory."""
        if dtype != "bool":
            return Value(name, dtype)
        return self.cast(Value(name, "int8"), "bool")

    def stored(self, value: Value, dtype: str) -> str:
        """SSA name of ``value`` in the form that a tensor of ``dtype`` holds."""
        cast = self.cast(value, dtype)
        if dtype != "bool":
            return cast.name
        return self.operation(f"arith.extui {cast.name} : i1 to i8")

    def _clamped(self, index: IntExpr, extent: int) -> str:
        low, high = index_bounds(index, self._extents)
        return self._limited(self.index(index), low, high, extent)

    def _limited(self, name: str, low: int, high: int, extent: int) -> str:
        """An index between ``low`` and ``high``, brought into ``range(extent)``."""
        if high >= extent:
            last = self.constant(extent - 1, "index").name
            name = self.operation(f"arith.minsi {name}, {last} : index")
        if low < 0:
            zero = self.constant(0, "index").name
            name = self.operation(f"arith.maxsi {name}, {zero} : index")
        return name

    def _unary(self, op: str, value: Value) -> Value:
        dtype = value.dtype
        if op == "not":
            return self._arith("xori", self.cast(value, "bool"), self.constant(True, "bool"))
        if op == "neg":
            if dtype in _FLOATS:
                return self._made(f"arith.negf {value.name}", dtype)
            if dtype == "bool":
                raise self._unsupported(op, dtype)
            return self._arith("subi", self.constant(0, dtype), value)
        if op in _EXACT and dtype not in _FLOATS:
            if op == "abs" and dtype not in ("bool", "uint8"):
                return self._made(f"math.absi {value.name}", dtype)
            return value
        if dtype not in _FLOATS:
            value = self.cast(value, "float32")
        if op == "sigmoid":
            return self._sigmoid(value)
        return self._in_float(f"math.{_MATH[op]}", value)

    def _sigmoid(self, value: Value) -> Value:
        """By an exponential that does not overflow: results below 3e-39 would be zero."""
        zero, one = self.constant(0, value.dtype), self.constant(1, value.dtype)
        decay = self._unary("exp", self._unary("neg", self._unary("abs", value)))
        above = self._chosen(self._compare("lt", value, zero), decay, one)
        return self._arith("divf", above, self._arith("addf", one, decay))

    def _in_float(self, operation: str, *operands: Value) -> Value:
        """A function of floats; those of half precision are computed in single."""
        dtype = operands[0].dtype
        within = "float32" if dtype in _HALVES else dtype
        names = ", ".join(self.cast(operand, within).name for operand in operands)
        return self.cast(self._made(f"{operation} {names}", within), dtype)

    def _select(self, body: Select) -> Value:
        condition = self.cast(self.scalar(body.condition), "bool")
        on_true, on_false = self.scalar(body.on_true), self.scalar(body.on_false)
        dtype = _common(on_true.dtype, on_false.dtype)
        return self._chosen(condition, self.cast(on_true, dtype), self.cast(on_false, dtype))

    def _nonzero(self, divisor: Value) -> Value:
        """A divisor that does not trap: a branch that is not taken may divide by zero."""
        zero, one = self.constant(0, divisor.dtype), self.constant(1, divisor.dtype)
        return self._chosen(self._compare("eq", divisor, zero), one, divisor)

    def _arith(self, operation: str, left: Value, right: Value) -> Value:
        return self._made(f"arith.{operation} {left.name}, {right.name}", left.dtype)

    def _chosen(self, condition: Value, yes: Value, no: Value) -> Value:
        return self._made(f"arith.select {condition.name}, {yes.name}, {no.name}", yes.dtype)

    def _made(self, text: str, dtype: str) -> Value:
        """An operation on values of one type, of which its result is."""
        return Value(self.operation(f"{text} : {value_type(dtype)}"), dtype)

    def _compare(self, op: str, left: Value, right: Value) -> Value:
        if left.dtype in _FLOATS:
            predicate = f"cmpf {_FLOAT_PREDICATES[op]}"
        elif op in ("eq", "ne"):
            predicate = f"cmpi {op}"
        else:
            predicate = f"cmpi {'u' if left.dtype in ('uint8', 'bool') else 's'}{op}"
        text = f"arith.{predicate}, {left.name}, {right.name} : {value_type(left.dtype)}"
        return Value(self.operation(text), "bool")

    def _convert(self, operation: str, value: Value, dtype: str) -> Value:
        text = f"arith.{operation} {value.name} : {value_type(value.dtype)} to {value_type(dtype)}"
        return Value(self.operation(text), dtype)

    def _unsupported(self, op: str, dtype: str) -> UnsupportedWorkload:
        return UnsupportedWorkload(
            f"stage {self._stage!r} computes {op!r} of {dtype} values, which the MLIR backend "
            "has no form for"
        )


def memory_type(dtype: str) -> str:
    """The MLIR type of an element in memory.

    A bool takes a byte: vectors of i1 would be stored as bits, which is not what callers pass.
    """
    return "i8" if dtype == "bool" else value_type(dtype)


def _common(left: str, right: str) -> str:
    """The type in which two operands meet: floats win, then width; an index takes the other's."""
    if left == right:
        return left
    for loser in ("bool", "index"):
        if loser in (left, right):
            return right if left == loser else left
    if {left, right} == set(_HALVES):
        return "float32"
    floats = [dtype for dtype in (left, right) if dtype in _FLOATS]
    if floats:
        return max(floats, key=lambda dtype: ELEMENT_TYPES[dtype].bytes)
    if {left, right} == {"int8", "uint8"}:
        return "int32"
    return max(left, right, key=lambda dtype: ELEMENT_TYPES[dtype].bytes)


def _conversion(source: str, dtype: str) -> str | None:
    """The operation that converts between two numeric types; None when the bits stay."""
    unsigned = source in ("bool", "uint8")
    if source in _FLOATS and dtype in _FLOATS:
        return "extf" if ELEMENT_TYPES[dtype].bytes > ELEMENT_TYPES[source].bytes else "truncf"
    if dtype in _FLOATS:
        return "uitofp" if unsigned else "sitofp"
    if source in _FLOATS:
        return "fptosi"
    width = 0 if source == "bool" else ELEMENT_TYPES[source].bytes
    wanted = ELEMENT_TYPES[dtype].bytes
    if width == wanted:
        return None
    if width > wanted:
        return "trunci"
    return "extui" if unsigned else "extsi"
