"""Configuring the tile registers once in a thread's share of a loop, not in every call.

A call of :mod:`autotune_tvm.tile_products` configures the tile registers and clears them: so it
is right wherever a schedule puts it. But ``ldtilecfg`` waits until the processor is done with the
tiles before, which takes about as long as the products of a call. Where all calls inside a
parallel loop agree on the configuration, the body of that loop needs only one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call, IRModule
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_equal

__all__ = [
    "CONFIGURE",
    "configured_once",
    "inside",
    "intrinsic_of",
    "rebuilt",
    "statements",
    "with_bodies",
]

CONFIGURE = "llvm.x86.ldtilecfg"
"""What configures the registers, and clears them."""

_CLEAR = "llvm.x86.tilerelease"


def configured_once(module: IRModule) -> IRModule:
    """A scheduled module whose parallel loops configure the tile registers outside of calls.

    Parallel loops without calls, and those whose calls differ in the configuration, stay as they
    are, as do calls outside of parallel loops: registers belong to the thread.
    """
    if not any(_calls(function.body, CONFIGURE) for function in module.functions.values()):
        return module
    return with_bodies(module, _mended)


def with_bodies(module: IRModule, changed: Callable[[Any], Any]) -> IRModule:
    """A module with changed bodies of its functions; those that stay the same are left alone."""
    functions = {}
    for name, function in module.functions.items():
        body = changed(function.body)
        functions[name] = function if body.same_as(function.body) else function.with_body(body)
    return IRModule(functions, attrs=module.attrs)


def _mended(node: Any) -> Any:
    """The statement with its outermost parallel loops mended."""
    if not isinstance(node, tirx.For) or node.kind != tirx.ForKind.PARALLEL:
        return rebuilt(node, [_mended(inner) for inner in inside(node)])
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


def statements(node: Any) -> Iterator[Any]:
    """The statement and all in it."""
    yield node
    for inner in inside(node):
        yield from statements(inner)


def intrinsic_of(node: Any) -> str:
    """Name of the LLVM intrinsic that a statement calls; empty where it is no such call."""
    if not isinstance(node, tirx.Evaluate) or not isinstance(node.value, Call):
        return ""
    called = node.value
    if not called.op.same_as(tvm.ir.Op.get("tirx.call_llvm_intrin")):
        return ""
    return str(tvm.target.codegen.llvm_get_intrinsic_name(int(called.args[0].value)))


def _sequence(node: Any) -> list[Any]:
    return list(node.seq) if isinstance(node, tirx.SeqStmt) else [node]


def inside(node: Any) -> list[Any]:
    """The statements directly inside one of those that a scheduled program consists of."""
    if isinstance(node, tirx.SeqStmt):
        return list(node.seq)
    if isinstance(node, SBlockRealize):
        return [node.block]
    return [node.body] if isinstance(node, (tirx.For, SBlock)) else []


def rebuilt(node: Any, inside: list[Any]) -> Any:
    """The statement with others directly inside."""
    if isinstance(node, tirx.SeqStmt):
        return tirx.SeqStmt(inside) if len(inside) > 1 else inside[0]
    if isinstance(node, tirx.For):
        return tirx.For(
            node.loop_var,
            node.min,
            node.extent,
            node.kind,
            inside[0],
            node.thread_binding,
            node.annotations,
            node.step,
        )
    if isinstance(node, SBlockRealize):
        return SBlockRealize(node.iter_values, node.predicate, inside[0])
    if isinstance(node, SBlock):
        return SBlock(
            node.iter_vars,
            node.reads,
            node.writes,
            node.name_hint,
            inside[0],
            node.init,
            node.alloc_buffers,
            node.match_buffers,
            node.annotations,
        )
    return node
