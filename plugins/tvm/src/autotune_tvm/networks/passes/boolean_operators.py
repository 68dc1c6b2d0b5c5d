"""Operators on booleans in a form that TVM can compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tvm import relax
from tvm.ir import IRModule

from autotune_tvm.networks.graph import Graph, dtype_of, operator_of, rewrite

__all__ = ["boolean_operators"]

op = relax.op

# TVM compares booleans as floats (`fcmp oeq i1`), which LLVM refuses, and makes bitwise operators
# of 1-bit integers that its own passes then cannot simplify.
_LOGICAL: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "bitwise_and": op.logical_and,
        "bitwise_not": op.logical_not,
        "bitwise_or": op.logical_or,
        "bitwise_xor": op.logical_xor,
        "multiply": op.logical_and,
        "add": op.logical_or,
        "not_equal": op.logical_xor,
        "equal": lambda a, b: op.logical_not(op.logical_xor(a, b)),
    }
)


def boolean_operators(module: IRModule) -> tuple[IRModule, str]:
    """Write comparisons and bitwise operators of booleans as logical ones.

    TVM's code generator compares booleans as if they were floats, and LLVM then refuses the whole
    program: causal and padding masks of language models are of that kind.
    """
    count = 0

    def replace(call: Any, graph: Graph) -> Any:
        nonlocal count
        operator = operator_of(call)
        if operator not in _LOGICAL or any(dtype_of(a) != "bool" for a in call.args):
            return None
        count += 1
        return _LOGICAL[operator](*call.args)

    changed = rewrite(module, replace)
    return changed, f"{count} operators" if count else ""
