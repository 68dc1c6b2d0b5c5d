"""Operands of a network's functions that are constants in every call."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx
from tvm.ir import GenericConst, GlobalVar, IRModule
from tvm.relax.analysis import post_order_visit

from autotune.errors import UnsupportedWorkload
from autotune_tvm.importer import CONSTANTS, constants_of
from autotune_tvm.networks.graph import ENTRY, bindings_of, operator_of, tensor_calls

__all__ = ["constant_operands_of", "mark_constants"]


def mark_constants(module: IRModule) -> IRModule:
    """The module with functions that say which of their parameters are constants.

    Args:
        module: A network of compiled functions.
    """
    known = constant_operands_of(module)
    changed = module
    for variable, function in module.functions_items():
        positions = known.get(str(variable.name_hint), frozenset())
        if not isinstance(function, tirx.PrimFunc) or positions == constants_of(function):
            continue
        changed = module.clone() if changed is module else changed
        marked = function.without_attr(CONSTANTS)
        if positions:
            marked = function.with_attr(CONSTANTS, sorted(positions))
        changed.update_func(changed.get_global_var(variable.name_hint), marked)
    return changed


def constant_operands_of(module: IRModule) -> dict[str, frozenset[int]]:
    """Positions by function; functions that are used by more than straight calls have none.

    Empty where ``main`` is no straight line without side effects, which could not be rewritten.
    """
    names = {str(variable.name_hint) for variable in module.get_global_vars()}
    if ENTRY not in names or not isinstance(module[ENTRY], relax.Function):
        return {}
    body = module[ENTRY].body
    if not isinstance(body, relax.SeqExpr):
        return {}
    if not all(isinstance(block, relax.DataflowBlock) for block in body.blocks):
        return {}
    try:
        calls = tensor_calls(module)
    except UnsupportedWorkload:
        return {}
    found: dict[str, frozenset[int]] = {}
    for name, call in calls:
        fields = call.args[1].fields
        constants = {i for i, field in enumerate(fields) if isinstance(field, GenericConst)}
        found[name] = found.get(name, frozenset(constants)) & constants
    others = _used_otherwise(module)
    return {name: it for name, it in found.items() if it and name not in others}


def _used_otherwise(module: IRModule) -> set[str]:
    """Names of functions that are used by more than ``call_tir`` in ``main``."""
    found: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, GlobalVar):
            found.add(str(node.name_hint))

    for binding in bindings_of(module[ENTRY]):
        if operator_of(binding.value) != "call_tir":
            post_order_visit(binding.value, visit)
    for variable, function in module.functions_items():
        if variable.name_hint != ENTRY and isinstance(function, relax.Function):
            post_order_visit(function, visit)
    return found
