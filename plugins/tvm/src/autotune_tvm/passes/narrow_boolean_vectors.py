"""Kernels without vectors of truth values that CUDA has no code for.

TVM 0.27 writes vectors of up to four truth values, as vectors of numbers of two bytes, and cannot
negate them. In memory a truth value is one byte: such a vector is read from the wrong places and
written over what lies behind it. Loops that read, write or negate truth values are unrolled
instead, and vectors that only compare have four lanes at most.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call, IRModule, Op, TensorLoad
from tvm.s_tir import SBlockRealize
from tvm_ffi import structural_walk

from autotune_tvm.passes.statements import replaced, substituted, with_bodies

__all__ = ["narrow_boolean_vectors"]

_MOST_LANES = 4
_CONDITIONAL = Op.get("prim.if_then_else")
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def narrow_boolean_vectors(module: IRModule) -> IRModule:
    """A scheduled module of kernels whose vectors of truth values CUDA's code generator writes."""
    return with_bodies(module, lambda body: replaced(body, _changed))


def _changed(node: Any) -> Any:
    if not isinstance(node, tirx.For) or node.kind != tirx.ForKind.VECTORIZED:
        return None
    extent = int(node.extent)
    lanes = _lanes(node)
    if lanes >= extent:
        return node
    if lanes == 1 or extent % lanes:
        return tirx.For(node.loop_var, node.min, node.extent, tirx.ForKind.UNROLLED, node.body)
    kind = str(node.loop_var.ty.dtype)
    outer, inner = (tirx.Var(f"{node.loop_var.name}_{level}", kind) for level in range(2))
    zero, width = tirx.const(0, kind), tirx.const(lanes, kind)
    body = substituted(node.body, [node.loop_var], [outer * width + inner])
    vector = tirx.For(inner, zero, width, tirx.ForKind.VECTORIZED, body)
    rounds = tirx.const(extent // lanes, kind)
    return tirx.For(outer, zero, rounds, tirx.ForKind.UNROLLED, vector)


def _lanes(loop: Any) -> int:
    """Number of lanes that a loop may have, by its use of truth values."""
    moving = [loop.loop_var]
    # Conditions of calls are asked one by one where they differ between lanes.
    asked: list[Any] = []
    found = int(loop.extent)
    for node in _nodes(loop.body):
        if isinstance(node, SBlockRealize):
            pairs = zip(node.block.iter_vars, node.iter_values, strict=True)
            moving += [axis.var for axis, value in pairs if _uses(value, moving)]
        elif isinstance(node, (TensorLoad, tirx.BufferStore)):
            buffer = node.source if isinstance(node, TensorLoad) else node.buffer
            found = 1 if str(buffer.dtype) == "bool" else found
        elif isinstance(node, Call) and node.op.same_as(_CONDITIONAL):
            asked += _nodes(node.args[0])
        elif isinstance(node, tirx.Not) and _uses(node, moving):
            found = 1
        elif isinstance(node, _COMPARISONS) and not any(node.same_as(it) for it in asked):
            found = min(found, _MOST_LANES) if _uses(node, moving) else found
    return found


def _nodes(node: Any) -> list[Any]:
    """Everything in a statement or an expression, from the outside in."""
    found: list[Any] = []
    structural_walk(node, found.append, order="pre")
    return found


def _uses(expression: Any, variables: list[Any]) -> bool:
    used = [node for node in _nodes(expression) if isinstance(node, tirx.Var)]
    return any(node.same_as(it) for node in used for it in variables)
