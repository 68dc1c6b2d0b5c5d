"""Programs of bfloat16: rounding that keeps every NaN one, and vectors that repeat an element.

TVM rounds by adding to the bits of a float32, which carries out of the largest NaNs into zeros,
and makes infinities of NaNs whose upper half is that of one. LLVM's own conversion takes
denormals for zeros where the processor has an instruction. So what TVM lowered a conversion to
becomes the same arithmetic with NaN apart, in LLVM's text form: a few vector instructions on any
processor.

TVM stores vectors of bfloat16 as vectors of integers, except for those that repeat one element,
which it leaves as they are and then refuses: zeros around a packed operand are such vectors, and
so is what is broadcast along rows. Here such an element depends on the lane as TVM sees it, and is
the same for all of them to LLVM.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
from tvm import DataType, tirx
from tvm.ir import Call, IRModule
from tvm.s_tir import SBlockRealize
from tvm_ffi import structural_equal, structural_map

from autotune.ir.element_types import bfloat16_bits
from autotune.lower.emitter import Value
from autotune.lower.llvm_ir import LLVMEmitter, function_text
from autotune_tvm.linked_text import with_functions, with_linked
from autotune_tvm.passes.statements import inside, nodes_in, rebuilt, statements, with_bodies

__all__ = ["bfloat16_constants", "round_to_bfloat16"]

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

    def made(emitter: LLVMEmitter, x: Value) -> Value:
        say, number = emitter.operation, partial(emitter.constant, dtype="int32")
        bits = emitter.bitcast(x, "int32", lanes)
        upper = say("lshr", bits, number(_BITS))
        odd = say("and", upper, number(1))
        biased = say("add", say("add", bits, number(_BELOW_HALF)), odd)
        is_nan, quiet = say("fcmp uno", x, x, "bool"), say("or", upper, number(_QUIET))
        chosen = emitter.select(is_nan, quiet, say("lshr", biased, number(_BITS)))
        return emitter.converted("trunc", chosen, "uint16")

    (text,) = function_text(_name(lanes), ("float32", lanes), made)
    return text


_DTYPE = "bfloat16"


def bfloat16_constants(module: IRModule) -> IRModule:
    """The module with constants and repeated elements of bfloat16 in vector loops rewritten."""
    return with_bodies(module, _rewritten)


def _rewritten(node: Any) -> Any:
    if _is_vector(node):
        # TVM does not make vectors of vectors of such expressions.
        nested = any(_is_vector(statement) for statement in statements(node.body))
        return node if nested else _in_vectors(node)
    if isinstance(node, tirx.IfThenElse):
        branches = [it for it in (node.then_case, node.else_case) if it is not None]
        made = [_rewritten(branch) for branch in branches]
        same = all(new.same_as(old) for new, old in zip(made, branches, strict=True))
        return node if same else tirx.IfThenElse(node.condition, *made)
    before = inside(node)
    after = [_rewritten(statement) for statement in before]
    if all(new.same_as(old) for new, old in zip(after, before, strict=True)):
        return node
    return rebuilt(node, after)


def _is_vector(node: Any) -> bool:
    return isinstance(node, tirx.For) and node.kind == tirx.ForKind.VECTORIZED


def _in_vectors(loop: Any) -> Any:
    # Zero in every lane, and nothing that TVM simplifies.
    lane = tirx.BitwiseAnd(tirx.Cast("uint16", loop.loop_var), tirx.const(0, "uint16"))
    moving = _moving(loop)

    def constant(value: Any) -> Any:
        if str(value.ty.dtype) != _DTYPE:
            return value
        bits = int(bfloat16_bits(np.asarray(float(value.value))))
        return tirx.reinterpret(_DTYPE, tirx.BitwiseOr(tirx.const(bits, "uint16"), lane))

    def repeated(store: Any) -> Any:
        if str(store.buffer.dtype) != _DTYPE or not _may_repeat(store.value, moving):
            return store
        # TVM computes in float32, and keeps what it computes so: the bits of a value are those.
        wide = tirx.reinterpret("uint32", tirx.Cast("float32", store.value))
        same = tirx.BitwiseOr(wide, tirx.Cast("uint32", lane))
        value = tirx.Cast(_DTYPE, tirx.reinterpret("float32", same))
        return tirx.BufferStore(store.buffer, value, store.indices)

    body = structural_map(loop.body, (tirx.FloatImm, constant))
    body = structural_map(body, (tirx.BufferStore, repeated))
    return loop if body.same_as(loop.body) else rebuilt(loop, [body])


def _may_repeat(value: Any, moving: list[Any]) -> bool:
    """Tell if a value may be the same in all lanes: a quotient of the lane's number may be."""
    if nodes_in(value, tirx.FloorDiv) or nodes_in(value, tirx.FloorMod):
        return True
    return not any(node.same_as(name) for node in nodes_in(value, tirx.Var) for name in moving)


def _moving(loop: Any) -> list[Any]:
    """The loop's variable, and those of blocks in it that change with it."""
    found = [loop.loop_var]
    for statement in statements(loop.body):
        if isinstance(statement, SBlockRealize):
            pairs = zip(statement.block.iter_vars, statement.iter_values, strict=True)
            found += [
                item.var
                for item, value in pairs
                if any(node.same_as(name) for node in nodes_in(value, tirx.Var) for name in found)
            ]
    return found
