"""Keeping sums in tile registers over the loops that add to the same ones.

A call of :mod:`autotune_tvm.tile_products` loads its sums and stores them again, so that it is
right wherever a schedule puts it. In a nest of loops whose calls all add to the same sums, which
is what the reduce loops around a single register tile are, they are loaded once before the nest
and stored once behind it: moving them takes two to three times as long as 64 products of each.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen
from tvm import tirx
from tvm.ir import IRModule, Range
from tvm.s_tir import SBlock, SBlockRealize
from tvm.s_tir.stmt import MatchBufferRegion
from tvm_ffi import structural_equal

from autotune.sketches.intrinsics.tile_registers import SUMS
from autotune_tvm.passes.hoist_tile_config import CONFIGURE
from autotune_tvm.passes.statements import (
    at,
    inside,
    intrinsic_of,
    rebuilt,
    statements,
    with_bodies,
)
from autotune_tvm.tile_products import move

__all__ = ["hoist_accumulators"]

_LOAD, _STORE = "llvm.x86.tileloadd64", "llvm.x86.tilestored64"


@frozen
class _Nest:
    """Loops around one block of calls, outermost first."""

    loops: tuple[Any, ...]
    realize: Any


def hoist_accumulators(module: IRModule) -> IRModule:
    """A scheduled module whose calls keep their sums in registers where they can.

    Calls that configure the registers themselves, which clears them, stay as they are.
    """
    return with_bodies(module, lambda body: _sequence(_hoisted(body)))


def _hoisted(node: Any) -> list[Any]:
    """The statement, or what takes its place."""
    nest = _nest(node)
    if nest is not None and _one_place(nest):
        return [_block(nest, "load"), _without_moves(node), _block(nest, "store")]
    before = inside(node)
    after = [_hoisted(statement) for statement in before]
    changed = [
        len(new) != 1 or not new[0].same_as(old) for new, old in zip(after, before, strict=True)
    ]
    if not any(changed):
        return [node]
    flat = [statement for new in after for statement in new]
    return [rebuilt(node, flat if isinstance(node, tirx.SeqStmt) else [_sequence(flat)])]


def _sequence(found: list[Any]) -> Any:
    return found[0] if len(found) == 1 else tirx.SeqStmt(found)


def _nest(node: Any) -> _Nest | None:
    """The nest that begins with this loop, if it holds nothing but calls."""
    loops = []
    while isinstance(node, tirx.For) and node.kind != tirx.ForKind.PARALLEL:
        loops.append(node)
        node = node.body
    if not loops or not isinstance(node, SBlockRealize):
        return None
    names = [intrinsic_of(statement) for statement in statements(node.block)]
    if _STORE not in names or CONFIGURE in names:
        return None
    return _Nest(tuple(loops), node)


def _one_place(nest: _Nest) -> bool:
    """Whether all calls of the nest, which are several, add to the same sums."""
    if all(int(loop.extent) == 1 for loop in nest.loops):
        return False
    own = [item.var for item in nest.realize.block.iter_vars]
    variables = [loop.loop_var for loop in nest.loops]
    for bound in _place(nest).region:
        index = at(bound.min, own, nest.realize.iter_values)
        first = at(index, variables, [0] * len(variables))
        for position, loop in enumerate(nest.loops):
            corner = [0] * len(variables)
            corner[position] = int(loop.extent) - 1
            if not structural_equal(first, at(index, variables, corner)):
                return False
    return True


def _place(nest: _Nest) -> Any:
    """The region of the sums, in the block's own variables."""
    block = nest.realize.block
    written = block.writes[0].source
    (found,) = (
        match.source for match in block.match_buffers if match.source.source.same_as(written)
    )
    return found


def _block(nest: _Nest, direction: str) -> Any:
    """A block that loads all registers of sums, or stores them."""
    block, place = nest.realize.block, _place(nest)
    own = [item.var for item in block.iter_vars]
    variables = [loop.loop_var for loop in nest.loops]
    ranges = []
    for bound in place.region:
        index = at(bound.min, own, nest.realize.iter_values)
        begin = at(index, variables, [0] * len(variables))
        ranges.append(Range.from_min_extent(begin, bound.extent))
    region = tirx.BufferRegion(place.source, ranges)
    rows, columns = (int(bound.extent) for bound in ranges[-2:])
    stride, dtype = tirx.Var("stride", "int32"), str(place.source.dtype)
    sums = tirx.decl_buffer(
        (rows, columns), dtype, "sums", strides=[stride, tirx.const(1)], offset_factor=1
    )
    count = sum(intrinsic_of(statement) == _STORE for statement in statements(block))
    height = rows * 2 // count
    mode = "r" if direction == "load" else "w"
    moves = [
        tirx.Evaluate(
            move(
                direction,
                register,
                sums.access_ptr(mode, offset=register // 2 * height * stride + register % 2 * 16),
                4 * stride,
            )
        )
        for register in range(count)
    ]
    reads, writes = ([region], []) if direction == "load" else ([], [region])
    name = f"{block.name_hint}_{direction}"
    matched = [MatchBufferRegion(sums, region)]
    body = tirx.SeqStmt(moves)
    return SBlockRealize([], True, SBlock([], reads, writes, name, body, None, [], matched))


def _without_moves(node: Any) -> Any:
    """The nest without loads and stores of sums."""
    kept = [_without_moves(statement) for statement in inside(node) if not _moves_sums(statement)]
    return rebuilt(node, kept) if kept else node


def _moves_sums(node: Any) -> bool:
    name = intrinsic_of(node)
    return name == _STORE or (name == _LOAD and int(node.value.args[1].value) in SUMS)
