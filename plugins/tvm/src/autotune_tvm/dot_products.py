"""TVM's calls of dot-product instructions: int8 with int32 accumulation, bfloat16 with float32.

TVM 0.27's own intrinsics for them are of no use: they hand their operands to LLVM as vectors of
32-bit integers, which LLVM 22 refuses. Here operands are vectors of bytes. TVM does not check that
elements lie together as an instruction reads them; :func:`autotune.nest.layout_conflict` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import tvm
from attrs import frozen
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize, TensorIntrin
from tvm.script import tirx as T

from autotune.backends import InvalidSchedule
from autotune.ir.workloads import Stage
from autotune.sketches import Tensorize
from autotune.sketches.intrinsics import Intrinsic, find_intrinsic
from autotune_tvm.linked_text import linked

__all__ = [
    "CORRECTED",
    "TensorCall",
    "bfloat16_256",
    "bfloat16_512",
    "interleaving",
    "registered",
    "row_step",
    "vnni_256",
    "vnni_512",
    "vnni_512_signed",
]

CORRECTED = "autotune.corrected"
"""Annotation of a call's block: it stores a difference, whose first part adds to the sums.

The second part depends on the right factor alone.
"""

_GROUP = 4
# Makes an unsigned byte that is larger by 128 of a signed one, four at a time.
_SIGN_BITS = -0x7F7F7F80
# Where the four bytes of a column lie in four rows of 16 that follow each other, and from one
# column to the next.
_FIRST_COLUMN, _NEXT_COLUMN = 0x30201000, 0x01010101
# The same where they lie in four quarters of 16 bytes.
_FIRST_OF_FOUR = 0x0C080400
# The eight bits from each of these bits on are the bytes of 64 bits themselves.
_OWN_BITS = 0x3830282018100800


@frozen
class TensorCall:
    """A description of loops, and the calls that replace them, as TVM functions."""

    description: Any
    implementation: Any


def row_step(stage: Stage, step: Tensorize) -> int:
    """Rows of the left factor between two that follow each other in a call."""
    if len(find_intrinsic(step.intrinsic).spatial_axes) < 2:
        return 1
    row, vector = (axis.name for axis in stage.spatial_axes[-2:])
    for load in stage.loads:
        forms = stage.access_map(load)
        if not any(vector in form.coefficients for form in forms):
            return max(form.coefficients.get(row, 0) for form in forms)
    raise InvalidSchedule(f"{step}: no operand is the same for all lanes")


@cache
def registered(name: str, row_step: int = 1) -> str:
    """Register the calls of an intrinsic with TVM; returns TVM's name for them.

    Args:
        name: Of the declaration.
        row_step: Rows of the left factor from one that is read to the next. An intrinsic whose
            calls have several is made for other steps than 1 by a second argument.

    Raises:
        InvalidValueError: the intrinsic has no implementation for TVM.
    """
    intrinsic = find_intrinsic(name)
    make = intrinsic.implementation("tvm")
    call: TensorCall = make(intrinsic) if row_step == 1 else make(intrinsic, row_step)
    known = f"autotune.{name}" if row_step == 1 else f"autotune.{name}/{row_step}"
    TensorIntrin.register(known, call.description, call.implementation, override=True)
    return known


@cache
def interleaving(dtype: str, lanes: int, size: int, features: tuple[str, ...]) -> str:
    """Register a copy of ``size`` rows of ``lanes`` elements, interleaved; returns its name.

    Args:
        dtype: Of the elements.
        lanes: Elements of a row.
        size: Number of rows.
        features: What the target surely has.
    """
    known = f"autotune.interleave.{dtype}.{size}x{lanes}"
    is_byte_group = dtype in ("int8", "uint8") and size == _GROUP and lanes % 16 == 0
    feature = next((name for name in _WOVEN if is_byte_group and name in features), None)
    if feature is None:
        call = _interleaving(dtype, lanes, size)
    else:
        known += f".{feature}"
        call = _woven_by_columns(dtype, lanes, _WOVEN[feature])
    TensorIntrin.register(known, call.description, call.implementation, override=True)
    return known


def vnni_512(intrinsic: Intrinsic) -> TensorCall:
    """``vpdpbusd`` on 512 bits: unsigned by signed bytes."""
    return _dot(intrinsic, _call("llvm.x86.avx512.vpdpbusd.512", 16))


def vnni_256(intrinsic: Intrinsic) -> TensorCall:
    """``vpdpbusd`` on 256 bits: unsigned by signed bytes."""
    return _dot(intrinsic, _call("llvm.x86.avx512.vpdpbusd.256", 8))


def vnni_512_signed(intrinsic: Intrinsic) -> TensorCall:
    """``vpdpbusd`` on 512 bits for signed by signed bytes.

    The left factor is made unsigned by adding 128; 128 times the sum of the right factors is then
    too much. :mod:`autotune_tvm.passes.hoist_corrections` subtracts it once for many calls.
    """
    add = _call("llvm.x86.avx512.vpdpbusd.512", 16)
    nothing = tirx.Broadcast(tirx.const(0, "int8"), 64)
    # Zero products more: of signs that it knows LLVM makes a scalar operation and a move between
    # registers for each group, of others an operand of the vector operation.
    signs = add(_broadcast(_SIGN_BITS), tirx.const(0, "int32"), nothing)

    def corrected(sums: Any, data: Any, weights: Any) -> Any:
        shifted = tirx.bitwise_xor(tirx.Broadcast(data, 16), signs)
        excess = add(_broadcast(0), tirx.const(_SIGN_BITS, "int32"), weights)
        return add(sums, shifted, weights) - excess

    return _dot(intrinsic, corrected, {CORRECTED: 1})


def bfloat16_512(intrinsic: Intrinsic) -> TensorCall:
    """``vdpbf16ps`` on 512 bits."""
    return _bfloat16(intrinsic, "llvm.x86.avx512bf16.dpbf16ps.512")


def bfloat16_256(intrinsic: Intrinsic) -> TensorCall:
    """``vdpbf16ps`` on 256 bits."""
    return _bfloat16(intrinsic, "llvm.x86.avx512bf16.dpbf16ps.256")


def _bfloat16(intrinsic: Intrinsic, instruction: str) -> TensorCall:
    """Sums of pairs of bfloat16, which TVM has made integers of when LLVM sees them.

    LLVM's intrinsic takes its own type: a function in LLVM's text form, which calls bring with
    them, takes integers, and is put in where it is called.
    """
    (lanes,) = (axis.extent for axis in intrinsic.spatial_axes)
    sums, integers, halves = f"<{lanes} x float>", f"<{lanes} x i32>", f"<{2 * lanes} x bfloat>"
    name = f"autotune_{intrinsic.name.replace('-', '_')}"
    head = f"define {sums} @{name}({sums} %s, {integers} %a, {integers} %b)"
    text = f"""{head} alwaysinline nounwind {{
  %x = bitcast {integers} %a to {halves}
  %y = bitcast {integers} %b to {halves}
  %r = call {sums} @{instruction}({sums} %s, {halves} %x, {halves} %y)
  ret {sums} %r
}}
declare {sums} @{instruction}({sums}, {halves}, {halves})
"""

    def call(total: Any, data: Any, weights: Any) -> Any:
        pairs = tirx.reinterpret(f"int32x{lanes}", weights)
        return tirx.call_pure_extern(
            f"float32x{lanes}", name, total, tirx.Broadcast(data, lanes), pairs
        )

    made = _dot(intrinsic, call)
    return TensorCall(made.description, _importing(made.implementation, text))


def _importing(implementation: Any, text: str) -> Any:
    """Calls that bring definitions in LLVM's text form with them, and read halves from memory.

    TVM makes buffers of float32 of those of bfloat16 that are only a program's own, as long as
    nothing else is done with them than to read and to write elements.
    """
    block = implementation.body.block
    halves = [region.source for region in block.reads if str(region.source.dtype) == "bfloat16"]
    reads = [tirx.Evaluate(buffer.data) for buffer in halves]
    body = tirx.SeqStmt([*reads, linked(block.body, [text])])
    return implementation.with_body(
        SBlockRealize([], True, SBlock([], block.reads, block.writes, block.name_hint, body))
    )


def _call(name: str, lanes: int) -> Callable[[Any, Any, Any], Any]:
    """Of sums, four bytes in one integer or in each of a vector, and bytes: the result."""

    def call(sums: Any, data: Any, weights: Any) -> Any:
        groups = data if data.ty.dtype.lanes > 1 else tirx.Broadcast(data, lanes)
        factors = tirx.reinterpret(f"uint8x{_GROUP * lanes}", groups)
        code = tvm.target.codegen.llvm_lookup_intrinsic_id(name)
        return tirx.call_llvm_pure_intrin(
            f"int32x{lanes}", tirx.const(code, "uint32"), sums, factors, weights
        )

    return call


def _dot(
    intrinsic: Intrinsic,
    call: Callable[[Any, Any, Any], Any],
    annotations: Mapping[str, int] = MappingProxyType({}),
) -> TensorCall:
    """Sums in vectors of products of a group, which is 32 bits of the left factor.

    Args:
        intrinsic: The declaration.
        call: Of sums, a group in one integer, and right factors: the new sums.
        annotations: Of the block of a call.
    """
    noted = dict(annotations)
    (lanes,) = (axis.extent for axis in intrinsic.spatial_axes)
    (group,) = (axis.extent for axis in intrinsic.reduce_axes)
    left, right, total = (operand.dtype for operand in intrinsic.operands)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def description(data: T.handle, weights: T.handle, sums: T.handle) -> None:
        A = T.match_buffer(data, (group,), left, offset_factor=1)
        B = T.match_buffer(weights, (lanes, group), right, offset_factor=1)
        C = T.match_buffer(sums, (lanes,), total, offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:group], B[0:lanes, 0:group])
            T.writes(C[0:lanes])
            for k in T.serial(0, group):
                for j in T.serial(0, lanes):
                    with T.sblock("update"):
                        vj, vk = T.axis.remap("SR", [j, k])
                        C[vj] = C[vj] + T.cast(A[vk], total) * T.cast(B[vj, vk], total)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(data: T.handle, weights: T.handle, sums: T.handle) -> None:
        A = T.match_buffer(data, (group,), left, offset_factor=1)
        B = T.match_buffer(weights, (lanes, group), right, offset_factor=1)
        C = T.match_buffer(sums, (lanes,), total, offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0:group], B[0:lanes, 0:group])
            T.writes(C[0:lanes])
            T.sblock_attr(noted)
            C[T.ramp(T.int32(0), 1, lanes)] = call(
                C.vload([0], dtype=f"{total}x{lanes}"),
                T.reinterpret(A.vload([0], dtype=f"{left}x{group}"), dtype="int32"),
                B.vload([0, 0], dtype=f"{right}x{lanes * group}"),
            )

    return TensorCall(description, implementation)


def _interleaving(dtype: str, lanes: int, size: int) -> TensorCall:
    order = [row * lanes + lane for lane in range(lanes) for row in range(size)]

    def woven(rows: Any) -> Any:
        vectors = [rows.vload([row, 0], dtype=f"{dtype}x{lanes}") for row in range(size)]
        return tirx.Shuffle(vectors, [tirx.const(index, "int32") for index in order])

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def description(rows: T.handle, groups: T.handle) -> None:
        s = T.int32()
        A = T.match_buffer(rows, (size, lanes), dtype, strides=[s, 1], offset_factor=1)
        B = T.match_buffer(groups, (lanes, size), dtype, offset_factor=1)
        with T.sblock("root"):
            T.reads(A[0:size, 0:lanes])
            T.writes(B[0:lanes, 0:size])
            for k in T.serial(0, size):
                for j in T.serial(0, lanes):
                    with T.sblock("copy"):
                        vk, vj = T.axis.remap("SS", [k, j])
                        B[vj, vk] = A[vk, vj]

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(rows: T.handle, groups: T.handle) -> None:
        s = T.int32()
        A = T.match_buffer(rows, (size, lanes), dtype, strides=[s, 1], offset_factor=1)
        B = T.match_buffer(groups, (lanes, size), dtype, offset_factor=1)
        with T.sblock("root"):
            T.reads(A[0:size, 0:lanes])
            T.writes(B[0:lanes, 0:size])
            B[0, T.ramp(T.int32(0), 1, lanes * size)] = woven(A)

    return TensorCall(description, implementation)


def _woven_by_columns(dtype: str, lanes: int, weave: Callable[[Any], Any]) -> TensorCall:
    """Four rows of bytes, interleaved by a few instructions for every 16 columns.

    Args:
        dtype: Of the elements.
        lanes: Elements of a row.
        weave: Interleaves 16 columns of four rows that follow each other in a vector of 64 bytes.
    """

    def woven(rows: Any, part: Any) -> Any:
        vectors = [rows.vload([row, 16 * part], dtype=f"{dtype}x16") for row in range(_GROUP)]
        order = [tirx.const(index, "int32") for index in range(16 * _GROUP)]
        whole = tirx.reinterpret("int8x64", tirx.Shuffle(vectors, order))
        return tirx.reinterpret(f"{dtype}x64", weave(whole))

    description = _interleaving(dtype, lanes, _GROUP).description

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(rows: T.handle, groups: T.handle) -> None:
        s = T.int32()
        A = T.match_buffer(rows, (4, lanes), dtype, strides=[s, 1], offset_factor=1)
        B = T.match_buffer(groups, (lanes, 4), dtype, offset_factor=1)
        with T.sblock("root"):
            T.reads(A[0:4, 0:lanes])
            T.writes(B[0:lanes, 0:4])
            for part in T.unroll(0, lanes // 16):
                B[16 * part, T.ramp(T.int32(0), 1, 64)] = woven(A, part)

    return TensorCall(description, implementation)


def _woven_by_bytes(whole: Any) -> Any:
    """By one permutation of bytes (``vpermb``).

    LLVM makes four times as many instructions of the same shuffle, and recognises it in a
    permutation by constant indices. So the indices go through an instruction that it does not
    look through, and that here changes nothing (``vpmultishiftqb``); it comes before all loops.
    """
    own = _bytes(tirx.Broadcast(tirx.const(_OWN_BITS, "int64"), 8))
    columns = _bytes(_ramp(_FIRST_COLUMN, _NEXT_COLUMN))
    indices = _of_vectors("llvm.x86.avx512.pmultishift.qb.512", "int8x64", own, columns)
    return _of_vectors("llvm.x86.avx512.permvar.qi.512", "int8x64", whole, indices)


def _woven_by_quarters(whole: Any) -> Any:
    """By a permutation of quarters of rows, and one of the bytes of each (``vpermd, vpshufb``).

    The first brings four columns of all rows together. LLVM keeps the two as they are; of the
    whole shuffle it makes eleven.
    """
    number = _ramp(0, 1)
    row_first = _ramp(0, _GROUP) + tirx.shift_right(number, _broadcast(2))
    quarters = _of_vectors(
        "llvm.x86.avx512.permvar.si.512",
        "int32x16",
        tirx.reinterpret("int32x16", whole),
        row_first,
    )
    column = tirx.bitwise_and(number, _broadcast(_GROUP - 1))
    bytes_of_column = column * _broadcast(_NEXT_COLUMN) + _broadcast(_FIRST_OF_FOUR)
    return _of_vectors(
        "llvm.x86.avx512.pshuf.b.512", "int8x64", _bytes(quarters), _bytes(bytes_of_column)
    )


# How four rows of 16 bytes are interleaved best, by what the target has.
_WOVEN: Mapping[str, Callable[[Any], Any]] = {
    "avx512vbmi": _woven_by_bytes,
    "avx512bw": _woven_by_quarters,
}


def _ramp(first: int, step: int) -> Any:
    return tirx.Ramp(tirx.const(first, "int32"), tirx.const(step, "int32"), 16)


def _broadcast(value: int) -> Any:
    return tirx.Broadcast(tirx.const(value, "int32"), 16)


def _bytes(vector: Any) -> Any:
    return tirx.reinterpret("int8x64", vector)


def _of_vectors(name: str, dtype: str, *arguments: Any) -> Any:
    code = tvm.target.codegen.llvm_lookup_intrinsic_id(name)
    return tirx.call_llvm_pure_intrin(dtype, tirx.const(code, "uint32"), *arguments)
