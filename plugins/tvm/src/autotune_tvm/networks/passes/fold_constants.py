"""What is computed of constants alone is computed once, with numpy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import DataType, relax, tirx
from tvm.ir import GenericConst, IRModule, Tuple, Var

from autotune_tvm.networks.graph import (
    Array,
    Graph,
    array_of,
    constant,
    dtype_of,
    operator_of,
    rewrite,
    shape_of,
)
from autotune_tvm.networks.numpy_operators import OPERATORS, evaluate

__all__ = ["computed_array", "fold_constants"]

_SMALL_BYTES = 1 << 20
"""A constant may grow to this; beyond it, no larger than what it is computed of."""


def fold_constants(module: IRModule) -> tuple[IRModule, str]:
    """Replace calls whose arguments are constants by what they compute.

    A call stays where its operator is not in the table, or where the result would be large and
    larger than its arguments, such as a broadcast.

    Returns:
        The module, and how many were folded and which were not.
    """
    folded: Counter[str] = Counter()
    kept: Counter[str] = Counter()

    def fold(call: Any, graph: Graph) -> Any:
        operator = operator_of(call)
        arguments = _known(call.args)
        if arguments is None or not operator or operator in _NEVER:
            return None
        value = _value(operator, call, arguments, graph) if operator in OPERATORS else None
        (kept if value is None else folded)[operator] += 1
        return value

    changed = rewrite(module, fold)
    note = f"{folded.total()} folded" if folded else ""
    if kept:
        listed = ", ".join(f"{name} x{count}" for name, count in sorted(kept.items()))
        note = f"{note}{'; ' if note else ''}constant, but not folded: {listed}"
    return changed, note


def computed_array(value: Any, graph: Graph, limit: int) -> Array | None:
    """What is computed of constants alone, also where it was not folded; None for all else.

    Args:
        value: Of the function that a pass is making.
        graph: That function.
        limit: Bytes; None, too, where it or what it is computed of is larger.
    """
    found: dict[Any, Array | None] = {}

    def visit(part: Any) -> Any:
        if not isinstance(part, Var):
            known = _known([part])
            return None if known is None else known[0]
        if part not in found:
            found[part] = compute(part)
        return found[part]

    def compute(variable: Any) -> Array | None:
        call, shape = graph.source(variable), shape_of(variable)
        operator, dtype = operator_of(call), dtype_of(variable)
        if operator not in OPERATORS or shape is None:
            return None
        if prod(shape) * ((DataType(dtype).bits + 7) // 8) > limit:
            return None
        arguments: list[Any] = []
        for argument in call.args:
            if (known := visit(argument)) is None:
                return None
            arguments.append(known)
        try:
            array = np.asarray(evaluate(operator, call.attrs, arguments))
        except (ValueError, IndexError, TypeError):
            return None
        return array.astype(dtype, copy=False) if array.shape == shape else None

    result = visit(value)
    return result if isinstance(result, np.ndarray) else None


# Values of the virtual machine, not of the network.
_NEVER = frozenset(["call_tir", "null_value", "builtin.stop_lift_params"])


def _known(arguments: Sequence[Any]) -> list[Any] | None:
    """Arguments as arrays, numbers and tuples; None where one is known only when it runs."""
    found = []
    for argument in arguments:
        if isinstance(argument, GenericConst):
            value: Any = array_of(argument)
        elif isinstance(argument, Tuple):
            items = _known(argument.fields)
            value = None if items is None else tuple(items)
        elif isinstance(argument, relax.ShapeExpr):
            items = _known(argument.values)
            value = None if items is None else tuple(items)
        elif isinstance(argument, (tirx.IntImm, tirx.FloatImm)):
            value = argument.value
        else:
            value = None
        if value is None:
            return None
        found.append(value)
    return found


def _value(operator: str, call: Any, arguments: Sequence[Any], graph: Graph) -> Any:
    """The constant, or the tuple of constants, that a call computes; None where it is to stay."""
    kind = graph.builder.normalize(call)
    fields = kind.ty.fields if isinstance(kind.ty, relax.TupleType) else None
    limit = max(_SMALL_BYTES, _bytes(arguments))
    try:
        results = evaluate(operator, call.attrs, arguments)
    except (ValueError, IndexError, TypeError):
        return None
    if fields is None:
        return _as_constant(results, kind, limit)
    items = [
        _as_constant(result, relax.Var("item", field), limit)
        for result, field in zip(results, fields, strict=True)
    ]
    return None if any(item is None for item in items) else Tuple(items)


def _as_constant(result: Any, wanted: Any, limit: int) -> Any:
    array = np.asarray(result)
    if array.shape != shape_of(wanted) or array.nbytes > limit:
        return None
    with np.errstate(all="ignore"):
        return constant(array.astype(dtype_of(wanted), copy=False))


def _bytes(arguments: Sequence[Any]) -> int:
    return sum(
        argument.nbytes if isinstance(argument, np.ndarray) else _bytes(argument)
        for argument in arguments
        if isinstance(argument, (np.ndarray, tuple))
    )
