"""From TIR expressions to scalar bodies."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import ELEMENT_TYPES
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
    affine_form,
    const,
    index_bounds,
    maximum,
    minimum,
    simplify_index,
    var,
)
from autotune.ir.workloads import Axis

__all__ = ["BodyReader", "dtype_of"]

_BINARY: tuple[tuple[Any, str], ...] = (
    (tirx.Add, "add"),
    (tirx.Sub, "sub"),
    (tirx.Mul, "mul"),
    (tirx.Div, "div"),
    (tirx.FloorMod, "mod"),
    (tirx.Max, "max"),
    (tirx.Min, "min"),
    (tirx.LT, "lt"),
    (tirx.LE, "le"),
    (tirx.GT, "gt"),
    (tirx.GE, "ge"),
    (tirx.EQ, "eq"),
    (tirx.NE, "ne"),
    (tirx.And, "and"),
    (tirx.Or, "or"),
)
# Bitwise operations, of truth values only.
_LOGIC: tuple[tuple[Any, str], ...] = (
    (tirx.BitwiseAnd, "and"),
    (tirx.BitwiseOr, "or"),
    (tirx.BitwiseXor, "ne"),
)
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_CALLS = {
    "tirx.exp": "exp",
    "tirx.log": "log",
    "tirx.sqrt": "sqrt",
    "tirx.rsqrt": "rsqrt",
    "tirx.sin": "sin",
    "tirx.cos": "cos",
    "tirx.tanh": "tanh",
    "tirx.sigmoid": "sigmoid",
    "tirx.erf": "erf",
    "tirx.floor": "floor",
    "tirx.ceil": "ceil",
    "prim.ceil": "ceil",
    "tirx.nearbyint": "round",
    # TVM lets LLVM round halves to even for it, too.
    "tirx.round": "round",
    "tirx.fabs": "abs",
}
_INDEX: tuple[tuple[Any, Any], ...] = (
    (tirx.Add, lambda a, b: a + b),
    (tirx.Sub, lambda a, b: a - b),
    (tirx.Mul, lambda a, b: a * b),
    (tirx.FloorDiv, None),
    (tirx.FloorMod, None),
    (tirx.Min, minimum),
    (tirx.Max, maximum),
)


def dtype_of(value: Any) -> str:
    """The type of a TIR value, one that a workload can have.

    Raises:
        UnsupportedWorkload: it is a vector, a handle, or a type that workloads do not have.
    """
    dtype = str(value.dtype if hasattr(value, "dtype") else value.ty.dtype)
    if dtype not in ELEMENT_TYPES:
        raise UnsupportedWorkload(f"dtype {dtype} is not one of {', '.join(ELEMENT_TYPES)}")
    return dtype


class BodyReader:
    """Reads the expressions of one block.

    Args:
        axes: The axis that each block variable is; None for one that is always 0.
        tensors: Name of each buffer that may be read.
        bound: What other variables stand for.
        is_guarded: Whether a condition around them keeps reads inside their tensors.
    """

    def __init__(
        self,
        axes: Mapping[Any, Axis | None],
        tensors: Mapping[Any, str],
        bound: Mapping[Any, Any] = MappingProxyType({}),
        *,
        is_guarded: bool = False,
    ) -> None:
        self._axes = axes
        self._bound = bound
        known = [axis for axis in axes.values() if axis is not None]
        self._extents = {axis.name: axis.extent for axis in known}
        self._tensors = tensors
        # How many conditions there are around what is being read.
        self._conditions = int(is_guarded)

    def scalar(self, node: Any) -> ScalarExpr:
        """The scalar body that ``node`` is.

        Raises:
            UnsupportedWorkload: it has no such form.
        """
        if isinstance(node, (tirx.IntImm, tirx.FloatImm)):
            dtype = dtype_of(node)
            return Constant(bool(node.value) if dtype == "bool" else node.value, dtype)
        index = self._pure_index(node)
        if index is not None:
            return IndexValue(index)
        if isinstance(node, TensorLoad):
            return self.load(node)
        if isinstance(node, tirx.Cast):
            return Cast(dtype_of(node), self.scalar(node.value))
        is_bool = str(node.ty.dtype) == "bool"
        if isinstance(node, tirx.Not) or (is_bool and isinstance(node, tirx.BitwiseNot)):
            return Unary("not", self.scalar(node.a))
        if isinstance(node, tirx.Select):
            return self._select(node.condition, node.true_value, node.false_value)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, tirx.Mod):
            left, right = self.scalar(node.a), self.scalar(node.b)
            return Binary("sub", left, Binary("mul", Binary("div", left, right), right))
        if isinstance(node, tirx.FloorDiv):
            left, right = self.scalar(node.a), self.scalar(node.b)
            return Binary("div", Binary("sub", left, Binary("mod", left, right)), right)
        for kind, op in (*_BINARY, *(_LOGIC if is_bool else ())):
            if isinstance(node, kind):
                return self._binary(op, node.a, node.b)
        raise UnsupportedWorkload(
            f"{type(node).__name__} expressions are not supported: {_brief(node)}"
        )

    def _select(self, condition: Any, on_true: Any, on_false: Any) -> Select:
        chosen = self.scalar(condition)
        self._conditions += 1
        parts = self.scalar(on_true), self.scalar(on_false)
        self._conditions -= 1
        return Select(chosen, *parts)

    def load(self, node: Any) -> Load | Gather:
        """A read of a known tensor: a load where all indices are computed from axes alone.

        Raises:
            UnsupportedWorkload: the tensor is not known here, or an index has no form, or leaves
                the tensor for certain.
        """
        name = self._tensors.get(node.source)
        if name is None:
            raise UnsupportedWorkload(
                f"it reads {_brief(node.source)}, which is neither an input nor computed before it"
            )
        found = [self.index(index) for index in node.indices]
        indices = [
            None if index is None else simplify_index(index, self._extents) for index in found
        ]
        if not self._conditions:
            self._check_inside(node, indices)
        known = [index for index in indices if index is not None]
        if len(known) == len(indices):
            return Load(name, tuple(known))
        return Gather(name, tuple(self._indexing(index) for index in node.indices))

    def _check_inside(self, node: Any, indices: list[IntExpr | None]) -> None:
        """Refuse a read that nothing keeps inside its tensor, as far as bounds are exact."""
        for position, (index, extent) in enumerate(zip(indices, node.source.shape, strict=True)):
            if index is None:
                continue
            top = index.args[0] if index.op == "floordiv" else index
            if affine_form(top) is None or not isinstance(extent, tirx.IntImm):
                continue
            low, high = index_bounds(index, self._extents)
            if low < 0 or high >= int(extent.value):
                raise UnsupportedWorkload(
                    f"index {position} of its read of {self._tensors[node.source]!r} runs from "
                    f"{low} to {high}, of {int(extent.value)} elements: {index!r}"
                )

    def _indexing(self, node: Any) -> ScalarExpr:
        """An index that may depend on data, as a body."""
        index = self.index(node)
        return self.scalar(node) if index is None else IndexValue(index)

    def index(self, node: Any) -> IntExpr | None:
        """``node`` as an expression over axes, or None when it is something else."""
        if isinstance(node, tirx.IntImm):
            return const(int(node.value))
        if isinstance(node, Var):
            return self._variable(node)
        if isinstance(node, tirx.Cast):
            whole = str(node.ty.dtype) in ("int32", "int64")
            return self.index(node.value) if whole else None
        for kind, combine in _INDEX:
            if isinstance(node, kind):
                left, right = self.index(node.a), self.index(node.b)
                if left is None or right is None:
                    return None
                if kind in (tirx.FloorDiv, tirx.FloorMod):
                    return self._quotient(kind is tirx.FloorDiv, left, right)
                result: IntExpr = combine(left, right)
                return result
        return None

    def _variable(self, node: Any) -> IntExpr | None:
        if node in self._bound:
            return self.index(self._bound[node])
        if node not in self._axes:
            return None
        axis = self._axes[node]
        return const(0) if axis is None else var(axis.name)

    def _quotient(self, wants_quotient: bool, top: IntExpr, bottom: IntExpr) -> IntExpr | None:
        """``top // bottom`` or ``top % bottom``, simplified where the quotient never changes.

        That is common: a convolution with one group divides its channel by the channel count.
        """
        divisor = bottom.value
        if divisor is None or divisor <= 0:
            return None
        form = affine_form(top)
        if form is not None:
            low, high = form.bounds(self._extents)
            if low // divisor == high // divisor:
                quotient = low // divisor
                return const(quotient) if wants_quotient else top - quotient * divisor
        return top // divisor if wants_quotient else top % divisor

    def _pure_index(self, node: Any) -> IntExpr | None:
        """``node`` when it computes with axes alone; constants alone are no index."""
        if isinstance(node, TensorLoad) or str(node.ty.dtype) not in ("int32", "int64"):
            return None
        if isinstance(node, tirx.Cast):
            # Kept as a conversion where a value is wanted.
            return None
        return self.index(node)

    def _binary(self, op: str, left: Any, right: Any) -> ScalarExpr:
        operands = [self.scalar(left)]
        # Of a conjunction the rest is read where the first part holds alone.
        self._conditions += op in ("and", "or")
        operands.append(self.scalar(right))
        self._conditions -= op in ("and", "or")
        if op in _MIRRORED:
            # TVM writes a constant on the left of some comparisons; here it stands on the right.
            if isinstance(operands[0], Constant) and not isinstance(operands[1], Constant):
                operands.reverse()
                op = _MIRRORED[op]
            if isinstance(operands[0], IndexValue) and isinstance(operands[1], Constant):
                operands[1] = IndexValue(const(int(operands[1].value)))
        return Binary(op, operands[0], operands[1])

    def _call(self, node: Any) -> ScalarExpr:
        name = str(getattr(node.op, "name", node.op))
        if name == "prim.if_then_else":
            return self._select(*node.args)
        if name == "tirx.pow":
            return Binary("pow", *(self.scalar(argument) for argument in node.args))
        if name in _CALLS:
            return Unary(_CALLS[name], self.scalar(node.args[0]))
        raise UnsupportedWorkload(f"calls of {name} are not supported")


def _brief(node: Any) -> str:
    """Describe a TIR object in a line, without the definitions that its printer puts first."""
    lines = str(node).strip().splitlines() or [type(node).__name__]
    return lines[-1][:100]
