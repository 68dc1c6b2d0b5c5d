"""Configuring the tile registers once in a thread's share of a loop, not in every call.

A call of :mod:`autotune_tvm.tile_products` configures the tile registers and clears them: so it
is right wherever a schedule puts it. But ``ldtilecfg`` waits until the processor is done with the
tiles before, which takes about as long as the products of a call. Where all calls inside a
parallel loop agree on the configuration, the body of that loop needs only one.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import IRModule
from tvm_ffi import structural_equal

from autotune_tvm.passes.statements import (
    inside,
    intrinsic_of,
    rebuilt,
    statements,
    with_bodies,
)

__all__ = ["CONFIGURE", "hoist_tile_config"]

CONFIGURE = "llvm.x86.ldtilecfg"
"""What configures the registers, and clears them."""

_CLEAR = "llvm.x86.tilerelease"


def hoist_tile_config(module: IRModule) -> IRModule:
    """A scheduled module whose parallel loops configure the tile registers outside of calls.

    Parallel loops without calls, and those whose calls differ in the configuration, stay as they
    are, as do calls outside of parallel loops: registers belong to the thread.
    """
    if not any(_calls(function.body, CONFIGURE) for function in module.functions.values()):
        return module
    return with_bodies(module, _hoisted)


def _hoisted(node: Any) -> Any:
    """The statement with its outermost parallel loops configured once."""
    if not isinstance(node, tirx.For) or node.kind != tirx.ForKind.PARALLEL:
        return rebuilt(node, [_hoisted(inner) for inner in inside(node)])
    found = _calls(node.body, CONFIGURE)
    if not found or not all(structural_equal(found[0], other) for other in found):
        return node
    clear = _calls(node.body, _CLEAR)[0]
    (body,) = _without_calls(node.body)
    return rebuilt(node, [tirx.SeqStmt([found[0], *_sequence(body), clear])])


def _without_calls(node: Any) -> list[Any]:
    """The statement without what configures and clears registers; nothing where that is all."""
    if intrinsic_of(node) in (CONFIGURE, _CLEAR):
        return []
    return [rebuilt(node, [kept for inner in inside(node) for kept in _without_calls(inner)])]


def _calls(node: Any, name: str) -> list[Any]:
    return [statement for statement in statements(node) if intrinsic_of(statement) == name]


def _sequence(node: Any) -> list[Any]:
    return list(node.seq) if isinstance(node, tirx.SeqStmt) else [node]
