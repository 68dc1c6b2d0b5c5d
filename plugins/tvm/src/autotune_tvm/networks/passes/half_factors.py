"""Convolutions of halves that read halves, where there are instructions for such products.

They are imported with operands that were converted to single precision, in which they are summed.
CPUs convert an operand once that way; tensor cores take the halves themselves, and sum in single
precision. The numbers are the same: every half is a number of single precision.
"""

from __future__ import annotations

from typing import Any

from tvm.ir import Call, IRModule

from autotune.targets import Target
from autotune_tvm.networks.graph import Graph, dtype_of, operator_of, rewrite

__all__ = ["half_factors"]

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
_HALVES = ("float16", "bfloat16")


def half_factors(module: IRModule, machine: Target) -> tuple[IRModule, str]:
    """Leave out the conversion of operands of convolutions on CUDA devices::

        conv(astype(x, float32), astype(w, float32))  ->  conv(x, w, out_dtype=float32)

    Args:
        module: Has a function ``main``.
        machine: What the network is for.
    """
    if machine.kind != "cuda":
        return module, ""
    count = 0

    def narrowed(call: Any, graph: Graph) -> Any:
        nonlocal count
        if operator_of(call) not in _CONVOLUTIONS or str(call.attrs.out_dtype) != "float32":
            return None
        operands = [_half(operand, graph) for operand in call.args]
        if None in operands or dtype_of(operands[0]) != dtype_of(operands[1]):
            return None
        count += 1
        return Call(call.op, operands, call.attrs, call.ty_args)

    module = rewrite(module, narrowed)
    return module, f"{count} convolutions" if count else ""


def _half(operand: Any, graph: Graph) -> Any:
    """What was converted; None where that was no half."""
    source = graph.source(operand)
    if operator_of(source) != "astype" or dtype_of(source.args[0]) not in _HALVES:
        return None
    return source.args[0]
