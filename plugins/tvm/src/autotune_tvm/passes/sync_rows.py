"""Barriers between threads of one row, in kernels whose threads have two dimensions.

TVM 0.27 puts no barrier between a store and a load at the same index where that depends on the
dimension of threads that was declared last: each thread would load what it stored. It declares
dimensions in the order of their names. So what the first thread of a row, of those along ``x``,
stores at the number ``y`` of the row is read by the others without a barrier. Here the pass runs
with ``x`` declared last as well, so that an index has to depend on both.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir.transform import ThreadSync
from tvm_ffi import structural_map

from autotune_tvm.linked_text import with_functions
from autotune_tvm.passes.statements import nodes_in

__all__ = ["sync_rows"]

_EXTENT = "thread_extent"
_COLUMN, _ROW = "threadIdx.x", "threadIdx.y"


def sync_rows(module: IRModule) -> IRModule:
    """A module without blocks, before TVM's pass for barriers, with those that it will forget.

    Modules whose threads have one dimension stay as they are.
    """
    bodies = (it.body for it in module.functions.values() if isinstance(it, tirx.PrimFunc))
    if not any(_tag(node) == _ROW for body in bodies for node in nodes_in(body, tirx.AttrStmt)):
        return module
    turned = _with_last(module, _COLUMN)
    for scope in ("shared", "shared.dyn"):
        turned = ThreadSync(scope)(turned)
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
