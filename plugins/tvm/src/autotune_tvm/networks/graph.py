"""Parts of a Relax function, as Python sees them.

A network is one function, ``main``: a straight line of bindings whose constants are its weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, IRModule, Op

from autotune.errors import UnsupportedWorkload
from autotune.networks import NetworkTensor

__all__ = [
    "ENTRY",
    "array_of",
    "bindings_of",
    "dtype_of",
    "input_tensors",
    "operator_of",
    "output_tensors",
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


def input_tensors(module: Any) -> tuple[NetworkTensor, ...]:
    """The inputs of a network.

    Raises:
        UnsupportedWorkload: one is no tensor, has no elements, or is of a shape that is known only
            when it runs.
    """
    found = tuple(_tensor(variable, variable.name) for variable in module[ENTRY].params)
    for tensor in found:
        if 0 in tensor.shape:
            raise UnsupportedWorkload(
                f"input {tensor.name!r} of the network has the shape {tensor.shape}, which has no "
                "elements: there is nothing to compute; give inputs with at least one"
            )
    return found


def output_tensors(module: Any, names: Sequence[str] = ()) -> tuple[NetworkTensor, ...]:
    """The outputs of a network, in order; those without names are numbered.

    Raises:
        UnsupportedWorkload: one is no tensor, or of a shape that is known only when it runs.
    """
    found: list[Any] = []

    def visit(kind: Any) -> None:
        if isinstance(kind, relax.TupleType):
            for field in kind.fields:
                visit(field)
        else:
            found.append(relax.Var("output", kind))

    visit(module[ENTRY].ret_ty)
    if len(names) != len(found):
        names = [f"output_{i}" for i in range(len(found))] if len(found) > 1 else ["output"]
    return tuple(_tensor(variable, name) for variable, name in zip(found, names, strict=True))


def _tensor(variable: Any, name: str) -> NetworkTensor:
    shape, dtype = shape_of(variable), dtype_of(variable)
    if not dtype:
        raise UnsupportedWorkload(f"{name!r} of the network is {variable.ty}, not a tensor")
    if shape is None:
        raise UnsupportedWorkload(
            f"tensor {name!r} of the network has a shape that is known only when it runs "
            f"({variable.ty.shape}): programs are tuned for one shape; export the model with "
            "fixed shapes, or give example inputs"
        )
    return NetworkTensor(str(name), shape, dtype)
