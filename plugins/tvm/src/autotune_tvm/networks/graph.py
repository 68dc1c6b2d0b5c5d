"""Parts of a Relax function, as Python sees them.

A network is one function, ``main``: a straight line of bindings whose constants are its weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, IRModule, Op

from autotune.errors import UnsupportedWorkload

__all__ = [
    "ENTRY",
    "array_of",
    "bindings_of",
    "dtype_of",
    "operator_of",
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
    """Bindings of a function, in order.

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
