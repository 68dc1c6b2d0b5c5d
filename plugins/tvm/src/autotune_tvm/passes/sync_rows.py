"""Barriers between threads of one row, in kernels whose threads have two dimensions.

TVM 0.27 puts no barrier between a store and a load at the same index where that depends on the
dimension of threads that was declared last: each thread would load what it stored. It declares
dimensions in the order of their names. So what the first thread of a row, of those along ``x``,
stores at the number ``y`` of the row is read by the others without a barrier. Here the pass runs
with ``x`` declared last as well, so that an index has to depend on both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import IRModule
from tvm_ffi import structural_map, structural_walk

from autotune_tvm.linked_text import with_functions

__all__ = ["has_rows_of_threads", "sync_rows"]

_EXTENT = "thread_extent"
_COLUMN, _ROW = "threadIdx.x", "threadIdx.y"


def has_rows_of_threads(module: IRModule) -> bool:
    """Return whether loops of a scheduled module are bound to the second dimension of threads."""
    return _any(module, tirx.For, _is_bound_to_rows)


def sync_rows(module: IRModule) -> IRModule:
    """A module without blocks, before TVM's pass for barriers, with those that it will forget.

    Modules whose threads have one dimension stay as they are.
    """
    if not _any(module, tirx.AttrStmt, lambda node: _tag(node) == _ROW):
        return module
    turned = _with_last(module, _COLUMN)
    for scope in ("shared", "shared.dyn"):
        turned = s_tir.transform.ThreadSync(scope)(turned)
    return _with_last(turned, _ROW)


def _with_last(module: IRModule, last: str) -> IRModule:
    """The module with one of two dimensions of threads declared inside the other."""
    changed = partial(_inside_out, last)
    return with_functions(module, lambda it: structural_map(it, (tirx.AttrStmt, changed)))


def _inside_out(last: str, node: Any) -> Any:
    inner = node.body
    if _tag(node) != last or _tag(inner) not in (_COLUMN, _ROW):
        return node
    lower = tirx.AttrStmt(node.node, node.attr_key, node.value, inner.body)
    return tirx.AttrStmt(inner.node, inner.attr_key, inner.value, lower)


def _tag(node: Any) -> str:
    """The level of a GPU that a statement declares; empty where it declares none."""
    if not isinstance(node, tirx.AttrStmt) or node.attr_key != _EXTENT:
        return ""
    return str(node.node.thread_tag)


def _is_bound_to_rows(loop: Any) -> bool:
    binding = loop.thread_binding
    return binding is not None and str(binding.thread_tag) == _ROW


def _any(module: IRModule, kind: type, holds: Callable[[Any], bool]) -> bool:
    """Return whether something holds of any node of a kind in the module's functions."""
    found: list[bool] = []
    for function in module.functions.values():
        if isinstance(function, tirx.PrimFunc):
            structural_walk(function.body, (kind, lambda node: found.append(holds(node))))
    return any(found)
