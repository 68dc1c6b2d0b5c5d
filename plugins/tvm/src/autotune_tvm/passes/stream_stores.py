"""Writing results past the caches.

A vector that is stored as usual makes the processor read the line that it belongs to first, and
keeps that in the caches. Of a result that no cache holds until it is read again, both are traffic
for nothing. TVM has no statement for the other kind of store, so calls of functions in LLVM's text
form take the place of stores, and are inlined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call, IRModule
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm_ffi import structural_map, structural_walk

from autotune_tvm.linked_text import with_functions, with_linked
from autotune_tvm.passes.statements import number_of, statements

__all__ = [
    "NONTEMPORAL",
    "STREAM",
    "STREAMED",
    "alignment_of",
    "note_streams",
    "stream_stores",
    "streamed_buffers",
]

STREAM = "autotune.stream"
"""The annotation of blocks whose results are written so, and the mark of their buffers."""

STREAMED = "autotune_stream"
"""How the names of functions begin that write so."""

_FENCE = f"{STREAMED}_fence"
NONTEMPORAL = "!0 = !{i32 1}"
"""What definitions have with them that mark stores by ``!nontemporal !0``."""

_LAUNCH = "pragma_parallel_launch_point"
_LINE_BYTES = 64
_LEAST_BYTES = 16
_TYPES: Mapping[str, str] = {
    "float32": "float",
    "float64": "double",
    "int8": "i8",
    "int32": "i32",
    "int64": "i64",
}
_FENCE_TEXT = (
    "declare void @llvm.x86.sse.sfence()",
    f"define linkonce_odr void @{_FENCE}() alwaysinline nounwind {{\n"
    "  call void @llvm.x86.sse.sfence()\n  ret void\n}",
)


def note_streams(module: IRModule) -> IRModule:
    """A scheduled module that says around the body which buffers are written past the caches.

    Annotations of blocks vanish with the blocks, before loops become vectors.
    """

    def noted(function: Any) -> Any:
        body = function.body
        for node in statements(function.body):
            if isinstance(node, SBlock) and STREAM in node.annotations:
                for written in node.writes:
                    body = tirx.AttrStmt(written.source.data, STREAM, tirx.const(1, "int32"), body)
        return function if body.same_as(function.body) else function.with_body(body)

    return with_functions(module, noted)


def stream_stores(module: IRModule) -> IRModule:
    """A module on vectors whose marked buffers are written past the caches.

    Aligned vectors are, for no others have instructions; anything else is stored as usual. Every
    thread waits for its stores before others are told that it is done.
    """

    def changed(function: Any) -> Any:
        marked = _marks(function)
        return _streamed(function, marked) if marked else function

    return with_functions(module, changed)


def _is_mark(node: Any) -> bool:
    return isinstance(node, tirx.AttrStmt) and node.attr_key == STREAM


def _marks(function: Any) -> list[Any]:
    """The statements that say which buffers are marked."""
    found: list[Any] = []

    def note(node: Any) -> None:
        if _is_mark(node):
            found.append(node)

    structural_walk(function.body, (tirx.AttrStmt, note))
    return found


def _streamed(function: Any, marked: list[Any]) -> Any:
    analyzer, texts = Analyzer(), dict[str, str]()

    def stored(store: Any) -> Any:
        return _call(store, buffers, texts, analyzer) or store

    def shared(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.PARALLEL or not _calls(loop):
            return loop
        # What is launched is each thread's share of the loop, and then its fence.
        one = tirx.const(1, "int32")
        return tirx.AttrStmt(one, _LAUNCH, one, tirx.SeqStmt([loop, _fence()]))

    def unmarked(node: Any) -> Any:
        if not _is_mark(node):
            return node
        calls = _calls(node.body)
        return (
            tirx.SeqStmt([node.body, _fence()]) if calls and not _fences(node.body) else node.body
        )

    def bind(node: Any) -> None:
        # Parts of indices that several share, and nothing else that has a name.
        if "int" in str(getattr(node.var.ty, "dtype", "")):
            analyzer.bind(node.var, node.value)

    for node in marked:
        structural_walk(node.body, (tirx.Bind, bind))
    buffers = streamed_buffers(function)
    entries = [(tirx.BufferStore, stored), (tirx.For, shared), (tirx.AttrStmt, unmarked)]
    changed = structural_map(function, entries)
    return (
        with_linked(changed, [*texts.values(), *_FENCE_TEXT, NONTEMPORAL])
        if _fences(changed)
        else changed
    )


def streamed_buffers(function: Any) -> list[Any]:
    """Marked buffers of a function, and others that are the same memory with another shape."""
    found = [node.node.args[0] for node in _marks(function)]
    if not found:
        return []

    def note(view: Any) -> None:
        arguments = view.data.args if isinstance(view.data, Call) else ()
        if any(argument.same_as(other) for argument in arguments for other in found):
            found.append(view.buffer)

    structural_walk(function.body, (tirx.DeclBuffer, note))
    return found


def _calls(node: Any) -> bool:
    """Whether anything in a statement passes the caches."""
    return any(name != _FENCE for name in _called(node))


def _fences(node: Any) -> bool:
    """Whether threads wait for their stores somewhere in a statement."""
    return _FENCE in _called(node)


def _called(node: Any) -> list[str]:
    """Names of the functions of this module that are called in a statement."""
    found: list[str] = []

    def note(call: Any) -> None:
        if isinstance(call.value, Call) and len(call.value.args) > 0:
            first = call.value.args[0]
            name = str(first.value) if isinstance(first, tvm.ir.StringImm) else ""
            if name.startswith(STREAMED):
                found.append(name)

    structural_walk(node, (tirx.Evaluate, note))
    return found


def _fence() -> Any:
    return tirx.Evaluate(tirx.call_extern("void", _FENCE))


def _call(store: Any, buffers: list[Any], texts: dict[str, str], analyzer: Any) -> Any | None:
    """The call in place of a store; None where it stores no aligned vector of these buffers."""
    buffer, value = store.buffer, store.value
    if not any(buffer.same_as(other) for other in buffers) or len(store.indices) != 1:
        return None
    (index,) = store.indices
    dtype = str(buffer.dtype)
    if dtype not in _TYPES or not isinstance(index, tirx.Ramp):
        return None
    alignment = alignment_of(index, tvm.DataType(dtype).bits // 8, analyzer)
    if not alignment:
        return None
    lanes = int(index.lanes)
    name = f"{STREAMED}_{dtype}_{lanes}"
    vector = f"<{lanes} x {_TYPES[dtype]}>"
    texts[name] = (
        f"define linkonce_odr void @{name}(ptr %p, {vector} %v) alwaysinline nounwind {{\n"
        f"  store {vector} %v, ptr %p, align {alignment}, !nontemporal !0\n  ret void\n}}"
    )
    address = tirx.address_of(tirx.BufferLoad(buffer, [index.base]))
    return tirx.Evaluate(tirx.call_extern("void", name, address, value))


def alignment_of(index: Any, width: int, analyzer: Any | None = None) -> int:
    """Bytes to which a vector is aligned for certain; 0 where it cannot pass the caches.

    Args:
        index: The ``Ramp`` of its elements, from the start of a buffer.
        width: Bytes of an element.
        analyzer: That knows of what the index consists.
    """
    alignment = math.gcd(int(index.lanes) * width, _LINE_BYTES)
    place = (analyzer or Analyzer()).modular_set(index.base)
    inside = place.coeff * width % alignment or place.base * width % alignment
    is_one = number_of(index.stride) == 1
    return alignment if is_one and alignment >= _LEAST_BYTES and not inside else 0
