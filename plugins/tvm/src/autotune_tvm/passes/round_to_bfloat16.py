"""Rounding to bfloat16 that keeps every NaN one.

TVM rounds by adding to the bits of a float32, which carries out of the largest NaNs into zeros,
and makes infinities of NaNs whose upper half is that of one. LLVM's own conversion takes
denormals for zeros where the processor has an instruction. So what TVM lowered a conversion to
becomes the same arithmetic with NaN apart, in LLVM's text form: a few vector instructions on any
processor.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tvm import DataType, tirx
from tvm.ir import Call, IRModule
from tvm_ffi import structural_equal, structural_map

from autotune_tvm.linked_text import with_functions, with_linked

__all__ = ["round_to_bfloat16"]

_BITS = 16
_BELOW_HALF = 0x7FFF
_QUIET = 0x40


def round_to_bfloat16(module: IRModule) -> IRModule:
    """The module with conversions to bfloat16, which TVM has lowered, replaced."""
    return with_functions(module, _in_function)


def _in_function(function: Any) -> Any:
    used: set[int] = set()

    def replaced(cast: Any) -> Any:
        rounded = _rounded(cast)
        if rounded is None:
            return cast
        lanes = DataType(str(cast.ty.dtype)).lanes
        used.add(lanes)
        return tirx.call_pure_extern(str(cast.ty.dtype), _name(lanes), rounded)

    changed = structural_map(function, (tirx.Cast, replaced))
    if not used:
        return function
    return with_linked(changed, [*map(_definition, sorted(used))])


def _rounded(cast: Any) -> Any:
    """Value that a conversion to bfloat16 rounds; None where a cast is something else."""
    if DataType(str(cast.ty.dtype)).with_lanes(1) != "uint16":
        return None
    if not isinstance(cast.value, tirx.RShift) or not isinstance(cast.value.a, tirx.Add):
        return None
    bits = cast.value.a.a
    if not isinstance(bits, Call) or getattr(bits.op, "name", "") != "tirx.reinterpret":
        return None
    value = bits.args[0]
    dtype = DataType(str(value.ty.dtype))
    if dtype.with_lanes(1) != "float32" or not structural_equal(
        cast, _lowered(value, dtype.lanes)
    ):
        return None
    return value


def _lowered(value: Any, lanes: int) -> Any:
    """Lower a conversion of ``value`` as TVM does."""

    def number(amount: int) -> Any:
        scalar = tirx.const(amount, "uint32")
        return tirx.Broadcast(scalar, lanes) if lanes > 1 else scalar

    suffix = f"x{lanes}" if lanes > 1 else ""
    bits = tirx.reinterpret(f"uint32{suffix}", value)
    odd = tirx.BitwiseAnd(tirx.RShift(bits, number(_BITS)), number(1))
    rounded = tirx.Add(bits, tirx.Add(odd, number(_BELOW_HALF)))
    return tirx.Cast(f"uint16{suffix}", tirx.RShift(rounded, number(_BITS)))


def _name(lanes: int) -> str:
    return f"autotune_bfloat16_{lanes}"


@lru_cache(maxsize=64)
def _definition(lanes: int) -> str:
    """A function in LLVM's text form."""

    def typed(element: str) -> str:
        return f"<{lanes} x {element}>" if lanes > 1 else element

    def number(amount: int) -> str:
        return f"<{', '.join([f'i32 {amount}'] * lanes)}>" if lanes > 1 else str(amount)

    word, single = typed("i32"), typed("float")
    lines = (
        f"%bits = bitcast {single} %x to {word}",
        f"%upper = lshr {word} %bits, {number(_BITS)}",
        f"%odd = and {word} %upper, {number(1)}",
        f"%biased = add {word} %bits, {number(_BELOW_HALF)}",
        f"%carried = add {word} %biased, %odd",
        f"%rounded = lshr {word} %carried, {number(_BITS)}",
        f"%quiet = or {word} %upper, {number(_QUIET)}",
        f"%nan = fcmp uno {single} %x, %x",
        f"%chosen = select {typed('i1')} %nan, {word} %quiet, {word} %rounded",
        f"%half = trunc {word} %chosen to {typed('i16')}",
        f"ret {typed('i16')} %half",
    )
    head = f"define {typed('i16')} @{_name(lanes)}({single} %x) alwaysinline nounwind"
    return f"{head} {{\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n"
