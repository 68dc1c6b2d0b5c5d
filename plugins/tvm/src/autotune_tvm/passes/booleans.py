"""Programs of truth values that LLVM and CUDA take.

TVM makes comparisons of floats of comparisons of truth values, which LLVM refuses: they become
comparisons of numbers.

In kernels TVM 0.27 writes vectors of up to four truth values, as vectors of numbers of two bytes,
and cannot negate them. In memory a truth value is one byte: such a vector is read from the wrong
places and written over what lies behind it. Loops that read, write or negate truth values are
unrolled instead, and vectors that only compare have four lanes at most.
"""

from __future__ import annotations

import json
from typing import Any

from tvm import tirx
from tvm.ir import Call, IRModule, Op, TensorLoad, load_json, save_json
from tvm.s_tir import SBlockRealize

from autotune.ir.expressions import Binary, Cast, Constant, Gather, Load, ScalarExpr, Select, Unary
from autotune.ir.expressions.scalar import COMPARISONS, LOGIC, walk
from autotune.ir.workloads import Workload
from autotune_tvm.passes.statements import (
    nodes_in,
    replaced,
    substituted,
    with_bodies,
    with_fields,
)

__all__ = ["compare_booleans", "compares_booleans", "narrow_boolean_vectors"]

_KINDS = tuple(f"prim.{name.upper()}" for name in COMPARISONS)


def compares_booleans(workload: Workload) -> bool:
    """Return whether programs of a workload compare truth values with each other."""
    return any(
        isinstance(node, Binary)
        and node.op in COMPARISONS
        and (_is_boolean(node.left, workload) or _is_boolean(node.right, workload))
        for stage in workload.stages
        for node in walk(stage.body)
    )


def compare_booleans(module: IRModule) -> IRModule:
    """The same program without comparisons of truth values.

    They are changed in the text form, where each expression stands once.
    """
    data = json.loads(str(save_json(module)))
    nodes: list[dict[str, Any]] = data["nodes"]
    number: int | None = None
    for node in list(nodes):
        if node["type"] not in _KINDS or not _is_bool(nodes, node["data"]["a"]):
            continue
        if number is None:
            number = _add_integer(nodes)
        for side in ("a", "b"):
            cast = {"span": node["data"]["span"], "ty": number, "value": node["data"][side]}
            nodes.append({"type": "prim.Cast", "data": cast})
            node["data"][side] = len(nodes) - 1
    return module if number is None else load_json(json.dumps(data))


def _is_bool(nodes: list[dict[str, Any]], operand: int) -> bool:
    kind = nodes[nodes[operand]["data"]["ty"]]
    return bool(kind["data"].get("dtype") == "bool")


def _add_integer(nodes: list[dict[str, Any]]) -> int:
    """Position of a new node that is the type of 32-bit integers."""
    span = next(node["data"]["span"] for node in nodes if node["type"] == "ir.PrimType")
    nodes.append({"type": "ir.PrimType", "data": {"span": span, "dtype": "int32"}})
    return len(nodes) - 1


def _is_boolean(body: ScalarExpr, workload: Workload) -> bool:
    if isinstance(body, (Load, Gather)):
        return workload.tensors[body.tensor].dtype == "bool"
    if isinstance(body, (Constant, Cast)):
        return body.dtype == "bool"
    if isinstance(body, Select):
        return _is_boolean(body.on_true, workload)
    return isinstance(body, (Unary, Binary)) and body.op in ("not", *COMPARISONS, *LOGIC)


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
        return with_fields(node, kind=tirx.ForKind.UNROLLED, annotations={})
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
    for node in nodes_in(loop.body):
        if isinstance(node, SBlockRealize):
            pairs = zip(node.block.iter_vars, node.iter_values, strict=True)
            moving += [axis.var for axis, value in pairs if _uses(value, moving)]
        elif isinstance(node, (TensorLoad, tirx.BufferStore)):
            buffer = node.source if isinstance(node, TensorLoad) else node.buffer
            found = 1 if str(buffer.dtype) == "bool" else found
        elif isinstance(node, Call) and node.op.same_as(_CONDITIONAL):
            asked += nodes_in(node.args[0])
        elif isinstance(node, tirx.Not) and _uses(node, moving):
            found = 1
        elif isinstance(node, _COMPARISONS) and not any(node.same_as(it) for it in asked):
            found = min(found, _MOST_LANES) if _uses(node, moving) else found
    return found


def _uses(expression: Any, variables: list[Any]) -> bool:
    used = nodes_in(expression, tirx.Var)
    return any(node.same_as(it) for node in used for it in variables)
