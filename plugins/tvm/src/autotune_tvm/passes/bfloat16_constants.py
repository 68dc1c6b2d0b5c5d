"""Constants of bfloat16 in vectors, and what is repeated in all lanes, in a form that TVM lowers.

TVM stores vectors of bfloat16 as vectors of integers, except for those that repeat one element,
which it leaves as they are and then refuses: zeros around a packed operand are such vectors, and
so is what is broadcast along rows. Here such an element depends on the lane as TVM sees it, and is
the same for all of them to LLVM.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import SBlockRealize
from tvm_ffi import structural_map

from autotune.ir.bfloat16 import bfloat16_bits
from autotune_tvm.passes.statements import inside, rebuilt, statements, walk, with_bodies

__all__ = ["bfloat16_constants"]

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
    nodes = list(walk(value))
    if any(isinstance(node, (tirx.FloorDiv, tirx.FloorMod)) for node in nodes):
        return True
    return not any(node.same_as(name) for node in nodes for name in moving)


def _moving(loop: Any) -> list[Any]:
    """The loop's variable, and those of blocks in it that change with it."""
    found = [loop.loop_var]
    for statement in statements(loop.body):
        if isinstance(statement, SBlockRealize):
            pairs = zip(statement.block.iter_vars, statement.iter_values, strict=True)
            found += [
                item.var
                for item, value in pairs
                if any(node.same_as(name) for node in walk(value) for name in found)
            ]
    return found
