"""Writing one row while the next one is computed.

The last stage of a row writes it in one burst, for which a core waits: it has room for few stores
that memory has not taken yet. Then memory waits, while the next row is computed. Here the last
stage of a row moves into a loop of the next row, a few vectors at a time: arithmetic between the
stores gives memory time to take them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import frozen
from tvm import tirx
from tvm.ir import IRModule, Range, TensorLoad, TensorRegion
from tvm.s_tir import SBlockRealize
from tvm_ffi import structural_map

from autotune_tvm.blocks import walk
from autotune_tvm.passes.statements import (
    at,
    blocks,
    buffers_read,
    buffers_written,
    rebuilt,
    replaced,
    with_bodies,
    with_fields,
    with_store,
)

__all__ = ["HOST", "LATE", "pipeline_rows"]

LATE = "autotune.late"
"""The annotation of blocks that run an iteration late."""

HOST = "autotune.host"
"""The annotation of blocks in whose loops they do."""

_SPLITTABLE = (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED)


def pipeline_rows(module: IRModule) -> IRModule:
    """A scheduled module whose late blocks run in the loops of their hosts, an iteration late.

    Both loops are split into as many pieces as divide both, which take turns. What late blocks
    read of the others is kept from one iteration to the next, in the same place.
    """
    return with_bodies(module, lambda body: replaced(body, _pipelined))


@frozen
class _Rows:
    """A loop over rows.

    Attributes:
        loop: The loop.
        before: The statements ahead of the host, for one row.
        host: The host.
        behind: Those behind it, but for the late one.
        late: The late one.
    """

    loop: Any
    before: list[Any]
    host: Any
    behind: list[Any]
    late: Any


@frozen
class _Piece:
    """One of so many equal pieces of a loop."""

    position: Any
    count: int


def _pipelined(node: Any) -> Any | None:
    rows = _rows(node)
    if rows is None:
        return None
    rows = _in_one_place(rows)
    row, last = rows.loop.loop_var, int(rows.loop.extent) - 1
    dtype = row.ty.dtype
    count = math.gcd(_trips(rows.host), _trips(rows.late))
    piece = _Piece(tirx.Var("piece", row.ty), count)
    late = tirx.IfThenElse(row > 0, _copied(rows.late, {row: row - 1}, piece), None)
    taken = tirx.SeqStmt([late, _copied(rows.host, {}, piece)])
    zero, extent = tirx.const(0, dtype), tirx.const(count, dtype)
    turns = tirx.For(piece.position, zero, extent, tirx.ForKind.SERIAL, taken)
    body = tirx.SeqStmt([*rows.before, turns, *rows.behind])
    end = _copied(rows.late, {row: tirx.const(last, dtype)}, None)
    return tirx.SeqStmt([rebuilt(rows.loop, [body]), end])


def _rows(node: Any) -> _Rows | None:
    """The loop over rows that a node is; None where it is none, or runs but once."""
    if not isinstance(node, tirx.For) or not isinstance(node.body, tirx.SeqStmt):
        return None
    *others, late = list(node.body.seq)
    if node.kind != tirx.ForKind.SERIAL or int(node.extent) < 2 or not _has(late, LATE):
        return None
    others = [each for other in others for each in _apart(other)]
    # The initialisation of a reduction has the annotations of its block, and comes before.
    position = max(index for index, other in enumerate(others) if _has(other, HOST))
    return _Rows(node, others[:position], others[position], others[position + 1 :], late)


def _apart(node: Any) -> list[Any]:
    """The statements that loops which run once share, without these loops."""
    values: dict[Any, Any] = {}
    inner = node
    while isinstance(inner, tirx.For) and int(inner.extent) == 1:
        values[inner.loop_var] = inner.min
        inner = inner.body
    if not isinstance(inner, tirx.SeqStmt):
        return [node]
    return [_copied(each, values, None) for each in inner.seq]


def _has(node: Any, annotation: str) -> bool:
    return any(annotation in block.annotations for block in blocks(node))


def _in_one_place(rows: _Rows) -> _Rows:
    """The rows with what the late statement reads of the others where it is for any row.

    TVM then allocates one row of it, around the loop.
    """
    others = (*rows.before, rows.host, *rows.behind)
    written = {buffer for other in others for buffer in buffers_written(other)}
    kept = [buffer for buffer in buffers_read(rows.late) if buffer in written]

    def changed(node: Any) -> Any | None:
        if not isinstance(node, SBlockRealize):
            return None
        pairs = zip(node.block.iter_vars, node.iter_values, strict=True)
        moved = [item.var for item, value in pairs if _uses(value, [rows.loop.loop_var])]
        return rebuilt(node, [_without_row(node.block, moved, kept)])

    def all_changed(nodes: list[Any]) -> list[Any]:
        return [replaced(each, changed) for each in nodes]

    return _Rows(
        rows.loop,
        all_changed(rows.before),
        replaced(rows.host, changed),
        all_changed(rows.behind),
        replaced(rows.late, changed),
    )


def _without_row(block: Any, moved: list[Any], kept: list[Any]) -> Any:
    """A block that touches some buffers at 0 wherever the index moves from row to row."""

    def placed(index: Any) -> Any:
        return tirx.const(0, index.ty.dtype) if _uses(index, moved) else index

    def load(node: Any) -> Any:
        if node.source not in kept:
            return node
        return tirx.BufferLoad(node.source, [placed(index) for index in node.indices])

    def region(found: Any) -> Any:
        if found.source not in kept:
            return found
        ranges = [Range.from_min_extent(placed(it.min), it.extent) for it in found.region]
        return TensorRegion(found.source, ranges, found.ty)

    store = block.body
    value = structural_map(store.value, (TensorLoad, load))
    own = store.buffer in kept
    indices = [placed(index) if own else index for index in store.indices]
    return with_fields(
        block,
        reads=[region(each) for each in block.reads],
        writes=[region(each) for each in block.writes],
        body=tirx.BufferStore(store.buffer, value, indices),
    )


def _uses(expression: Any, variables: list[Any]) -> bool:
    return any(node.same_as(variable) for node in walk(expression) for variable in variables)


def _outer_loop(node: Any) -> Any | None:
    """The outermost loop of a statement that runs more than once, where it can be split."""
    while isinstance(node, tirx.For) and int(node.extent) == 1:
        node = node.body
    return node if isinstance(node, tirx.For) and node.kind in _SPLITTABLE else None


def _trips(node: Any) -> int:
    loop = _outer_loop(node)
    return 1 if loop is None else int(loop.extent)


def _copied(node: Any, values: Mapping[Any, Any], piece: _Piece | None) -> Any:
    """A copy of a statement, with loops of its own, for some values of variables.

    Args:
        node: Loops around blocks that store.
        values: By variable.
        piece: Which part of the outermost loop; None for all of it.
    """
    if isinstance(node, tirx.For):
        return _copied_loop(node, values, piece)
    if isinstance(node, tirx.SeqStmt):
        return tirx.SeqStmt([_copied(each, values, None) for each in node.seq])
    names, given = list(values), list(values.values())
    block = with_store(node.block, [item.var for item in node.block.iter_vars], node.block.body)
    placed = [at(value, names, given) for value in node.iter_values]
    predicate = node.predicate
    if not isinstance(predicate, tirx.IntImm):
        predicate = at(predicate, names, given)
    return SBlockRealize(placed, predicate, block)


def _copied_loop(loop: Any, values: Mapping[Any, Any], piece: _Piece | None) -> Any:
    extent, variable = int(loop.extent), tirx.Var(str(loop.loop_var.name), loop.loop_var.ty)
    value: Any = variable
    if piece is not None and extent > 1:
        if loop.kind in _SPLITTABLE:
            extent //= piece.count
            value = piece.position * extent + variable
        piece = None
    return tirx.For(
        variable,
        loop.min,
        tirx.const(extent, variable.ty.dtype),
        loop.kind,
        _copied(loop.body, {**values, loop.loop_var: value}, piece),
        loop.thread_binding,
        loop.annotations,
        loop.step,
    )
