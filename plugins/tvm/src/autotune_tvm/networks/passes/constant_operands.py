"""Operators with constant operands in a form that fuses, and that spaces are made for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, IRModule

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
from autotune_tvm.networks.passes.sink_views import ELEMENTWISE

__all__ = ["constant_operands"]

_FILLS = {"full": None, "full_like": None, "ones": 1, "ones_like": 1, "zeros": 0, "zeros_like": 0}


def constant_operands(module: IRModule) -> tuple[IRModule, str]:
    """Simplify operators by what is known of their operands.

    A tensor of one number that is an operand of an elementwise operator becomes that number; a
    square or a root written as a power becomes one; ``x[:, 3]`` by an index that is a constant
    becomes a slice.
    """
    counts: Counter[str] = Counter()

    def simplify(call: Any, graph: Graph) -> Any:
        operator = operator_of(call)
        if operator == "take":
            found, kind = _sliced(call, graph), "slices"
        elif operator == "power":
            found, kind = _root_or_square(call), "powers"
        elif operator in ELEMENTWISE:
            found, kind = _with_numbers(call, graph), "fills"
        else:
            return None
        counts[kind] += found is not None
        return found

    changed = relax.transform.DeadCodeElimination()(rewrite(module, simplify))
    return changed, ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if count)


def _with_numbers(call: Any, graph: Graph) -> Any:
    """The call with numbers in place of tensors that hold one number everywhere."""
    shapes = [shape_of(argument) for argument in call.args]
    filled = [_fill(graph.source(argument)) for argument in call.args]
    rest = [shape for shape, fill in zip(shapes, filled, strict=True) if fill is None and shape]
    if all(fill is None for fill in filled) or not rest or None in shapes:
        return None
    if np.broadcast_shapes(*rest) != shape_of(graph.builder.normalize(call)):
        return None
    arguments = [
        argument if fill is None else constant(fill)
        for argument, fill in zip(call.args, filled, strict=True)
    ]
    return Call(call.op, arguments, call.attrs, call.ty_args)


def _fill(expression: Any) -> Array | None:
    """The number that a tensor holds everywhere; None where it is computed otherwise."""
    operator = operator_of(expression)
    if operator not in _FILLS:
        return None
    number = _FILLS[operator]
    value = array_of(expression.args[1]) if number is None else np.asarray(number)
    return None if value is None else value.astype(dtype_of(expression))


def _root_or_square(call: Any) -> Any:
    exponent = array_of(call.args[1])
    if exponent is None or exponent.size != 1 or shape_of(call.args[0]) is None:
        return None
    value = float(exponent.reshape(()))
    if len(exponent.shape) > len(shape_of(call.args[0]) or ()) or value not in (2.0, 0.5):
        return None
    base = call.args[0]
    return relax.op.multiply(base, base) if value == 2.0 else relax.op.sqrt(base)


def _sliced(call: Any, graph: Graph) -> Any:
    index, shape = array_of(call.args[1]), shape_of(call.args[0])
    if index is None or index.size != 1 or shape is None or call.attrs.axis is None:
        return None
    axis = int(call.attrs.axis) % len(shape)
    place = int(index.reshape(()))
    if not 0 <= place < shape[axis]:
        return None
    part = relax.op.strided_slice(call.args[0], [axis], [place], [place + 1])
    wanted = shape_of(graph.builder.normalize(call))
    return relax.op.reshape(graph.emit(part), wanted)
