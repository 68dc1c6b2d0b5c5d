"""Partial results of the lanes of a vector, combined in halves.

A reduction in lanes ends with one loop over them, each step of which waits for the one before: 16
additions take as long as a row of 64 elements does otherwise. That loop may not be reordered by
LLVM. What is combined there has no order of its own, as the lanes came from splitting the axis; so
halves of the vector are combined with each other until one element is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import DataType, tirx
from tvm.ir import IRModule, TensorLoad
from tvm.s_tir import SBlockRealize
from tvm.sym import Analyzer
from tvm_ffi import structural_equal, structural_map

from autotune_tvm.blocks import walk
from autotune_tvm.linked_text import with_functions, with_linked
from autotune_tvm.passes.statements import at, number_of, replaced, with_bodies

__all__ = ["LANES", "combine_lanes", "note_lanes"]

LANES = "autotune.lanes"
"""The annotation of blocks that combine lanes, and of the loops in which they do."""

_TYPES: Mapping[str, str] = {"float32": "float", "float64": "double"}
# With the comparison by which TVM selects the larger or the smaller.
_OPERATIONS: tuple[tuple[Any, str, str], ...] = (
    (tirx.Add, "fadd", ""),
    (tirx.Mul, "fmul", ""),
    (tirx.Max, "max", "ogt"),
    (tirx.Min, "min", "olt"),
)


def note_lanes(module: IRModule) -> IRModule:
    """A scheduled module whose loops over lanes say so: what blocks say vanishes with them."""

    def noted(node: Any) -> Any | None:
        if not isinstance(node, tirx.For) or not _combines(node):
            return None
        annotations = {**dict(node.annotations), LANES: tirx.const(1, "int32")}
        return tirx.For(
            *(node.loop_var, node.min, node.extent, node.kind, node.body),
            *(node.thread_binding, annotations, node.step),
        )

    return with_bodies(module, lambda body: replaced(body, noted))


def _combines(loop: Any) -> bool:
    """Whether a loop does nothing but combine lanes."""
    inner = loop.body
    while isinstance(inner, tirx.For) and number_of(inner.extent) == 1:
        inner = inner.body
    if not isinstance(inner, SBlockRealize) or LANES not in inner.block.annotations:
        return False
    pairs = zip(inner.block.iter_vars, inner.iter_values, strict=True)
    return loop.kind == tirx.ForKind.SERIAL and any(
        int(axis.iter_type) == tirx.IterVar.CommReduce and value.same_as(loop.loop_var)
        for axis, value in pairs
    )


def combine_lanes(module: IRModule) -> IRModule:
    """A lowered module that combines the lanes of vectors in halves.

    Lanes of single and double precision that lie one after the other, a power of two of them; any
    others are left to their loop.
    """

    def changed(function: Any) -> Any:
        texts: dict[str, str] = {}
        made = structural_map(function, (tirx.For, lambda loop: _combined(loop, texts) or loop))
        return with_linked(made, [texts[name] for name in sorted(texts)]) if texts else function

    return with_functions(module, changed)


def _combined(loop: Any, texts: dict[str, str]) -> Any | None:
    """One store in the place of a loop over lanes; None of other loops."""
    if LANES not in loop.annotations or not isinstance(loop.body, tirx.BufferStore):
        return None
    store, lanes = loop.body, number_of(loop.extent)
    parts = _parts(store)
    if lanes is None or lanes < 2 or lanes.bit_count() != 1 or parts is None:
        return None
    kind, lane = parts
    dtype = str(lane.source.dtype)
    moves = any(node.same_as(loop.loop_var) for it in store.indices for node in walk(it))
    base = _first(lane, loop)
    if dtype not in _TYPES or moves or base is None:
        return None
    (operation,) = (it for it in _OPERATIONS if it[0] is kind)
    name = f"autotune_lanes_{operation[1]}_{dtype}_{lanes}"
    texts[name] = _definition(name, operation, _TYPES[dtype], lanes)
    vector = tirx.BufferLoad(lane.source, [tirx.Ramp(base, tirx.const(1, "int32"), lanes)])
    before = tirx.BufferLoad(store.buffer, store.indices)
    result = tirx.call_pure_extern(dtype, name, vector)
    return tirx.BufferStore(store.buffer, kind(before, result), store.indices)


def _parts(store: Any) -> tuple[Any, Any] | None:
    """The operation by which a store combines an element of another buffer, and that element."""
    before = tirx.BufferLoad(store.buffer, store.indices)
    for kind, _, _ in _OPERATIONS:
        if isinstance(store.value, kind) and structural_equal(store.value.a, before):
            other = store.value.b
            is_element = isinstance(other, TensorLoad) and len(other.indices) == 1
            scalar = is_element and DataType(str(other.ty.dtype)).lanes == 1
            return (kind, other) if scalar and not other.source.same_as(store.buffer) else None
    return None


def _first(lane: Any, loop: Any) -> Any | None:
    """The index of the first lane, if each is one element behind the one before."""
    analyzer, (index,) = Analyzer(), lane.indices
    base = at(index, [loop.loop_var], [loop.min])
    offset = analyzer.simplify(index - base)
    return analyzer.simplify(base) if offset.same_as(loop.loop_var) else None


def _definition(name: str, operation: tuple[Any, str, str], element: str, lanes: int) -> str:
    """A function in LLVM's text form of a vector with so many lanes."""
    _, how, comparison = operation
    head = f"define {element} @{name}(<{lanes} x {element}> %x) alwaysinline nounwind"
    lines: list[str] = []
    value = "%x"
    while lanes > 1:
        half, kind = lanes // 2, f"<{lanes} x {element}>"
        narrow = f"<{half} x {element}>"
        low, high, made = (f"%{part}{half}" for part in ("low", "high", "made"))
        for part, start in ((low, 0), (high, half)):
            places = ", ".join(f"i32 {place}" for place in range(start, start + half))
            lines.append(
                f"{part} = shufflevector {kind} {value}, {kind} poison, <{half} x i32> <{places}>"
            )
        if comparison:
            lines.append(f"%is{half} = fcmp {comparison} {narrow} {low}, {high}")
            chosen = f"select <{half} x i1> %is{half}, {narrow} {low}, {narrow} {high}"
        else:
            chosen = f"{how} {narrow} {low}, {high}"
        lines.append(f"{made} = {chosen}")
        value, lanes = made, half
    lines.append(f"%one = extractelement <1 x {element}> {value}, i32 0")
    body = "\n".join(f"  {line}" for line in (*lines, f"ret {element} %one"))
    return f"{head} {{\n{body}\n}}\n"
