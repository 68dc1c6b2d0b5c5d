"""Quotients of vectors by one number as products with its reciprocal.

Processors divide vectors ten times slower than they multiply them. Where all lanes are divided by
the same number, as the elements of a row by their sum, one scalar division is enough, and LLVM
takes it out of the loop over the row. A power of two brings numbers near the ends of the range
to where their reciprocal is a normal number, so that all special values come out as of a division;
results are at most 1.5 units in the last place off.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tvm import DataType, tirx
from tvm.ir import IRModule
from tvm_ffi import structural_map

from autotune_tvm.linked_text import with_functions, with_linked

__all__ = ["multiply_by_reciprocal"]

# 2**64 and its reciprocal, as LLVM writes numbers of single precision.
_LARGE, _SMALL = "0x43F0000000000000", "0x3BF0000000000000"


def multiply_by_reciprocal(module: IRModule) -> IRModule:
    """The module with quotients of single precision by one number replaced.

    Loops are expected to be vectors already.
    """
    return with_functions(module, _in_function)


def _in_function(function: Any) -> Any:
    used: set[int] = set()

    def replaced(quotient: Any) -> Any:
        dtype = DataType(str(quotient.ty.dtype))
        divisor = quotient.b
        if str(dtype.with_lanes(1)) != "float32" or not isinstance(divisor, tirx.Broadcast):
            return quotient
        used.add(dtype.lanes)
        name = _name(dtype.lanes)
        return tirx.call_pure_extern(str(dtype), name, quotient.a, divisor.value)

    changed = structural_map(function, (tirx.Div, replaced))
    if not used:
        return function
    return with_linked(changed, [*map(_definition, sorted(used)), _DECLARATION])


_DECLARATION = "declare float @llvm.fabs.f32(float)\n"


def _name(lanes: int) -> str:
    return f"autotune_quotient_{lanes}"


@lru_cache(maxsize=64)
def _definition(lanes: int) -> str:
    """A function of a vector and a number in LLVM's text form."""
    vector = f"<{lanes} x float>"
    lines = [
        "%size = call float @llvm.fabs.f32(float %s)",
        f"%is_small = fcmp olt float %size, {_SMALL}",
        f"%is_large = fcmp ogt float %size, {_LARGE}",
        f"%up = select i1 %is_small, float {_LARGE}, float 1.0",
        f"%scale = select i1 %is_large, float {_SMALL}, float %up",
        "%scaled = fmul float %s, %scale",
        "%reciprocal = fdiv float 1.0, %scaled",
    ]
    for number in ("reciprocal", "scale"):
        lines += [
            f"%{number}.first = insertelement {vector} poison, float %{number}, i64 0",
            f"%{number}.all = shufflevector {vector} %{number}.first, {vector} poison, "
            f"<{lanes} x i32> zeroinitializer",
        ]
    lines += [
        # In this order: numbers below the smallest normal one are scaled first.
        f"%product = fmul {vector} %x, %scale.all",
        f"%quotient = fmul {vector} %product, %reciprocal.all",
        f"ret {vector} %quotient",
    ]
    head = f"define {vector} @{_name(lanes)}({vector} %x, float %s) alwaysinline nounwind"
    return f"{head} {{\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n"
