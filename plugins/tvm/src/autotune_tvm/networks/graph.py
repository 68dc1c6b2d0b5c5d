"""Rewriting a Relax function, one operator after the other.

A network is one function, ``main``: a straight line of bindings whose constants are its weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attrs import define, field
from numpy.typing import NDArray
from tvm import DataType, relax, tirx
from tvm.ir import Call, GenericConst, IRModule, Op, Tuple, Var
from tvm.runtime import empty

from autotune.errors import UnsupportedWorkload

__all__ = [
    "ENTRY",
    "Graph",
    "Replace",
    "array_of",
    "bindings_of",
    "constant",
    "constant_bytes",
    "dtype_of",
    "operator_of",
    "rewrite",
    "shape_of",
    "tensor_calls",
]

Array = NDArray[Any]

ENTRY = "main"
"""The function that is the network."""


def operator_of(expression: Any) -> str:
    """The name of the operator that a call calls, such as ``"nn.relu"``; "" for all else."""
    if isinstance(expression, Call) and isinstance(expression.op, Op):
        return str(expression.op.name).removeprefix("relax.")
    return ""


def array_of(expression: Any) -> Array | None:
    """The numbers of a constant, in place where numpy has the type; None for all else."""
    if not isinstance(expression, GenericConst):
        return None
    try:
        return np.from_dlpack(expression.value)
    except (BufferError, RuntimeError, TypeError):  # bfloat16 and 8-bit floats
        return np.asarray(expression.value.numpy())


def constant(array: Array) -> Any:
    """A constant of the array's own element type: a copy, in row-major order."""
    tensor = empty(array.shape, str(array.dtype))
    try:
        np.copyto(np.from_dlpack(tensor), array)
    except (BufferError, RuntimeError, TypeError):  # bfloat16 and 8-bit floats
        # 0-d arrays become those of one element otherwise.
        tensor.copyfrom(np.ascontiguousarray(array).reshape(array.shape))
    return relax.const(tensor)


def constant_bytes(module: IRModule) -> int:
    """Bytes of the constants that ``main`` reads, each once."""
    found: dict[int, int] = {}

    def visit(expression: Any) -> None:
        if isinstance(expression, GenericConst):
            tensor = expression.value
            bits = DataType(str(tensor.dtype)).bits
            found[int(tensor.data_ptr())] = int(tensor.numel()) * ((bits + 7) // 8)

    relax.analysis.post_order_visit(module[ENTRY], visit)
    return sum(found.values())


def shape_of(expression: Any) -> tuple[int, ...] | None:
    """The shape of a tensor; None where it is none, or not known before it runs."""
    kind = expression.ty
    if not isinstance(kind, relax.TensorType) or not isinstance(kind.shape, relax.ShapeExpr):
        return None
    extents = kind.shape.values
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    return tuple(int(extent) for extent in extents)


def dtype_of(expression: Any) -> str:
    """The element type of a tensor; "" for what is none."""
    kind = expression.ty
    return str(kind.dtype) if isinstance(kind, relax.TensorType) else ""


def bindings_of(function: Any) -> list[Any]:
    """What a function computes, in order.

    Raises:
        UnsupportedWorkload: it branches or calls functions of its own.
    """
    if not isinstance(function.body, relax.SeqExpr):
        return []
    found = [binding for block in function.body.blocks for binding in block.bindings]
    for binding in found:
        if not isinstance(binding, relax.VarBinding) or isinstance(binding.value, relax.If):
            raise UnsupportedWorkload(
                f"{binding.var.name!r} in the network depends on data that is known only when it "
                "runs (a branch or a dynamic shape); networks are straight programs of fixed "
                "shapes"
            )
    return found


def tensor_calls(module: IRModule) -> list[tuple[str, Any]]:
    """The calls of compiled functions in ``main``, in order: the function's name and the call."""
    found = []
    for binding in bindings_of(module[ENTRY]):
        if operator_of(binding.value) == "call_tir":
            found.append((str(binding.value.args[0].name_hint), binding.value))
    return found


@define(eq=False)
class Graph:
    """The function that a pass is making.

    Attributes:
        builder: Makes it.
        uses: How often each value of the old function is used, by its variable in the new one.
        values: What each variable of the new function is bound to.
    """

    builder: Any
    uses: Counter[Any] = field(factory=Counter)
    values: dict[Any, Any] = field(factory=dict)

    def emit(self, expression: Any) -> Any:
        """Compute a value; constants and variables are returned as they are."""
        if isinstance(expression, (GenericConst, Var, Tuple)):
            return expression
        variable = self.builder.emit(expression)
        self.uses[variable] = 1
        self.values[variable] = self.builder.lookup_binding(variable)
        return variable

    def source(self, expression: Any) -> Any:
        """What a variable is bound to; all else is returned as it is."""
        return (
            self.values.get(expression, expression) if isinstance(expression, Var) else expression
        )

    def used_once(self, expression: Any) -> bool:
        """Whether a value of the old function has one use only."""
        return isinstance(expression, Var) and self.uses[expression] == 1


Replace = Callable[[Any, Graph], Any]


def rewrite(module: IRModule, replace: Replace) -> IRModule:
    """The module with another ``main``.

    Args:
        module: Has a function ``main``.
        replace: Given a call, whose arguments are those of the new function, returns what takes
            its place (of the same type), or None to keep it. Compiled functions that it makes with
            the builder are part of the module afterwards.

    Raises:
        UnsupportedWorkload: ``main`` is no straight line.
    """
    old = module[ENTRY]
    bindings = bindings_of(old)
    uses = _uses(bindings, old.body.body)
    # With the other functions, so that new ones have other names.
    others = dict(it for it in module.functions_items() if it[0].name_hint != ENTRY)
    graph = Graph(relax.BlockBuilder(IRModule(others)))
    new: dict[Any, Any] = {}
    with graph.builder.function(ENTRY, list(old.params), attrs=_attributes(old)):
        with graph.builder.dataflow():
            for parameter in old.params:
                graph.uses[parameter] = uses[parameter]
            for binding in bindings:
                value = _substituted(binding.value, new, graph)
                replaced = replace(value, graph) if isinstance(value, Call) else None
                made = graph.emit(value if replaced is None else replaced)
                new[binding.var] = made
                if isinstance(made, Var):
                    # One use of it was this binding itself.
                    graph.uses[made] += uses[binding.var] - 1
            result = graph.builder.emit_output(_substituted(old.body.body, new, graph))
        graph.builder.emit_func_output(result)
    changed = module.clone()
    for variable, function in graph.builder.finalize().functions_items():
        if variable.name_hint == ENTRY:
            changed.update_func(changed.get_global_var(ENTRY), function)
        elif variable not in others:
            changed.update_func(variable, function)
    return changed


def _attributes(function: Any) -> dict[str, Any]:
    return {} if function.attrs is None else dict(function.attrs.items())


def _uses(bindings: list[Any], result: Any) -> Counter[Any]:
    found: Counter[Any] = Counter()

    def visit(expression: Any) -> None:
        if isinstance(expression, Var):
            found[expression] += 1
        elif isinstance(expression, Call):
            for argument in expression.args:
                visit(argument)
        elif isinstance(expression, Tuple):
            for item in expression.fields:
                visit(item)
        elif isinstance(expression, relax.TupleGetItem):
            visit(expression.tuple_value)

    for binding in bindings:
        visit(binding.value)
    visit(result)
    return found


def _substituted(expression: Any, new: Mapping[Any, Any], graph: Graph) -> Any:
    """The same expression over values of the new function; items of known tuples are resolved."""
    if isinstance(expression, Var):
        return new.get(expression, expression)
    if isinstance(expression, Tuple):
        return Tuple([_substituted(item, new, graph) for item in expression.fields])
    if isinstance(expression, relax.TupleGetItem):
        whole = _substituted(expression.tuple_value, new, graph)
        if isinstance(whole, Tuple):
            return whole.fields[expression.index]
        return relax.TupleGetItem(whole, expression.index)
    if isinstance(expression, Call):
        arguments = [_substituted(argument, new, graph) for argument in expression.args]
        if all(a.same_as(b) for a, b in zip(arguments, expression.args, strict=True)):
            return expression
        return Call(expression.op, arguments, expression.attrs, expression.ty_args)
    return expression
