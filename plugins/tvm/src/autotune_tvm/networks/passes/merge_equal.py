"""Functions that compute the same are one."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx
from tvm.ir import Call, IRModule
from tvm_ffi import structural_equal, structural_hash

from autotune_tvm.networks.graph import Graph, operator_of, rewrite

__all__ = ["merge_equal"]


def merge_equal(module: IRModule) -> tuple[IRModule, str]:
    """Let calls of functions of one structure call one of them.

    Names and attributes, such as the number that TVM gives a function, play no part.
    """
    first: dict[int, list[tuple[Any, Any]]] = {}
    instead: dict[str, Any] = {}
    for variable, function in module.functions_items():
        if not isinstance(function, tirx.PrimFunc):
            continue
        bare = _without_attributes(function)
        known = first.setdefault(structural_hash(bare, map_free_vars=True), [])
        for other, program in known:
            if structural_equal(bare, program, map_free_vars=True):
                instead[str(variable.name_hint)] = other
                break
        else:
            known.append((variable, bare))
    if not instead:
        return module, ""

    def replace(call: Any, graph: Graph) -> Any:
        if operator_of(call) != "call_tir" or call.args[0].name_hint not in instead:
            return None
        arguments = [instead[call.args[0].name_hint], *call.args[1:]]
        return Call(call.op, arguments, call.attrs, call.ty_args)

    changed = relax.transform.DeadCodeElimination()(rewrite(module, replace))
    return changed, f"{len(instead)} functions"


def _without_attributes(function: Any) -> Any:
    """The function without its name, and without what passes noted of it."""
    for name in list(function.attrs.keys()) if function.attrs is not None else []:
        function = function.without_attr(name)
    return function
