"""Comparisons of truth values as comparisons of numbers.

TVM makes comparisons of floats of them, which LLVM refuses.
"""

from __future__ import annotations

import json
from typing import Any

from tvm.ir import IRModule, load_json, save_json

from autotune.ir.expressions import Binary, Cast, Constant, Gather, Load, ScalarExpr, Select, Unary
from autotune.ir.expressions.scalar import COMPARISONS, LOGIC, walk
from autotune.ir.workloads import Workload

__all__ = ["compare_booleans", "compares_booleans"]

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
