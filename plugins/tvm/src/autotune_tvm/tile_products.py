"""TVM's calls of AMX: int8 and bfloat16 matmul in tile registers.

A call configures the tile registers, which belong to the thread, adds a product to two or two by
two tiles of sums, and clears them again. Linux lets a process use these registers only when it has
asked for them: see :mod:`autotune_tvm.passes.request_tiles`.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.script import tirx as T

from autotune.ir.element_types import element_type
from autotune.sketches.intrinsics import Intrinsic
from autotune.sketches.intrinsics.tile_registers import ROW_BYTES, TileCall, configuration
from autotune_tvm.dot_products import TensorCall

__all__ = ["move", "tiles"]


def tiles(intrinsic: Intrinsic, row_step: int = 1) -> TensorCall:
    """Products of tiles: registers 0 to 3 are the sums, two for every block.

    Registers 4 and 5 are blocks of rows of the left factor, 6 and 7 halves of the right one. Rows
    that fit one register are one block: a product takes as many cycles as it has rows, but the
    right factor is loaded for every block.

    Args:
        intrinsic: The declaration.
        row_step: Rows of the left factor from one that is read to the next.
    """
    return TensorCall(_description(intrinsic, row_step), _implementation(intrinsic, row_step))


def _description(intrinsic: Intrinsic, row_step: int) -> Any:
    """What the call computes, element by element."""
    depth, left = intrinsic.reduce_axes[0].extent, intrinsic.left.dtype
    right, total = intrinsic.right.dtype, intrinsic.result.dtype
    call = TileCall.of(intrinsic)
    group, rows = call.group, call.rows
    reach = (rows - 1) * row_step + 1

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def description(data: T.handle, weights: T.handle, sums: T.handle) -> None:
        sa, sb, sc = T.int32(), T.int32(), T.int32()
        A = T.match_buffer(data, (reach, depth), left, strides=[sa, 1], offset_factor=1)
        B = T.match_buffer(
            weights, (depth // group, 32, group), right, strides=[sb, group, 1], offset_factor=1
        )
        C = T.match_buffer(sums, (rows, 32), total, strides=[sc, 1], offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:rows, 0:32], A[0:reach, 0:depth], B[0 : depth // group, 0:32, 0:group])
            T.writes(C[0:rows, 0:32])
            for i in T.serial(0, rows):
                for k in T.serial(0, depth):
                    for j in T.serial(0, 32):
                        with T.sblock("update"):
                            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                            C[vi, vj] = C[vi, vj] + T.cast(A[vi * row_step, vk], total) * T.cast(
                                B[vk // group, vj, vk % group], total
                            )

    return description


def _implementation(intrinsic: Intrinsic, row_step: int) -> Any:
    """The call, by instructions."""
    depth, left = intrinsic.reduce_axes[0].extent, intrinsic.left.dtype
    right, total = intrinsic.right.dtype, intrinsic.result.dtype
    call = TileCall.of(intrinsic)
    product, size = f"llvm.x86.{call.product}", element_type(left).bytes
    group, wide, rows = call.group, ROW_BYTES // size, call.rows
    reach = (rows - 1) * row_step + 1
    two, half = call.blocks == 2, call.block_rows
    # All bytes are ASCII, so that a string constant holds them.
    layout = tvm.ir.StringImm(configuration(half).decode("ascii"))

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(data: T.handle, weights: T.handle, sums: T.handle) -> None:
        sa, sb, sc = T.int32(), T.int32(), T.int32()
        A = T.match_buffer(data, (reach, depth), left, strides=[sa, 1], offset_factor=1)
        B = T.match_buffer(
            weights, (depth // group, 32, group), right, strides=[sb, group, 1], offset_factor=1
        )
        C = T.match_buffer(sums, (rows, 32), total, strides=[sc, 1], offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:rows, 0:32], A[0:reach, 0:depth], B[0 : depth // group, 0:32, 0:group])
            T.writes(C[0:rows, 0:32])
            # TVM makes buffers of float32 of those of bfloat16 of which it sees only elements.
            T.evaluate(A.data)
            T.evaluate(B.data)
            T.evaluate(_call("llvm.x86.ldtilecfg", layout))
            T.evaluate(move("load", 0, C.access_ptr("r", offset=0), 4 * sc))
            T.evaluate(move("load", 1, C.access_ptr("r", offset=16), 4 * sc))
            if two:
                T.evaluate(move("load", 2, C.access_ptr("r", offset=half * sc), 4 * sc))
                T.evaluate(move("load", 3, C.access_ptr("r", offset=half * sc + 16), 4 * sc))
            for step in T.unroll(0, depth // wide):
                first = T.address_of(A[0, wide * step])
                T.evaluate(move("load", 4, first, size * row_step * sa))
                left_half = T.address_of(B[16 * step, 0, 0])
                T.evaluate(move("load", 6, left_half, size * sb))
                right_half = T.address_of(B[16 * step, 16, 0])
                T.evaluate(move("load", 7, right_half, size * sb))
                T.evaluate(_call(product, *_bytes(0, 4, 6)))
                T.evaluate(_call(product, *_bytes(1, 4, 7)))
                if two:
                    second = T.address_of(A[half * row_step, wide * step])
                    T.evaluate(move("load", 5, second, size * row_step * sa))
                    T.evaluate(_call(product, *_bytes(2, 5, 6)))
                    T.evaluate(_call(product, *_bytes(3, 5, 7)))
            T.evaluate(move("store", 0, C.access_ptr("w", offset=0), 4 * sc))
            T.evaluate(move("store", 1, C.access_ptr("w", offset=16), 4 * sc))
            if two:
                T.evaluate(move("store", 2, C.access_ptr("w", offset=half * sc), 4 * sc))
                T.evaluate(move("store", 3, C.access_ptr("w", offset=half * sc + 16), 4 * sc))
            T.evaluate(_call("llvm.x86.tilerelease"))

    return implementation


def _call(name: str, *arguments: Any) -> Any:
    code = tvm.target.codegen.llvm_lookup_intrinsic_id(name)
    return tirx.call_llvm_intrin("void", tirx.const(code, "uint32"), *arguments)


def move(direction: str, register: int, place: Any, stride: Any) -> Any:
    """Load a tile register from memory, or store it, with rows ``stride`` bytes apart."""
    name = "llvm.x86.tileloadd64" if direction == "load" else "llvm.x86.tilestored64"
    return _call(name, *_bytes(register), place, tirx.Cast("int64", stride))


def _bytes(*values: int) -> list[Any]:
    return [tirx.const(value, "int8") for value in values]
