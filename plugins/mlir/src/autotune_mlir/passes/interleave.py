"""Packed copies whose rows are interleaved in groups, in programs on buffers.

The Transform dialect packs an operand with its rows one behind the other. Instructions that
multiply groups read the elements of so many rows together: :func:`interleave` brings each group
of rows into this order where the copy lies, once it is complete.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from autotune.backends import InvalidSchedule
from autotune_mlir.importing.scalar_import import defining
from autotune_mlir.passes.split_packing import ALLOCATIONS, VIEWS, written_buffers
from autotune_mlir.traversal import ancestors, users_of

__all__ = ["PARALLEL", "Groups", "copy_behind", "flat", "interleave"]

PARALLEL = frozenset({"scf.forall", "scf.parallel", "omp.parallel"})
"""Operations whose bodies may run on several threads."""

_SAME_ELEMENTS = frozenset({"memref.cast", "memref.collapse_shape", "memref.expand_shape"})


@frozen
class Groups:
    """How the rows of a copy are interleaved.

    Attributes:
        size: Rows of a group.
        row: Elements of a row.
        lanes: Elements that one vector has of a row.
    """

    size: int
    row: int
    lanes: int


def copy_behind(buffer: Any) -> Any:
    """The buffer that a view without gaps has all elements of."""
    while (producer := defining(buffer)) is not None and producer.name in _SAME_ELEMENTS:
        buffer = producer.operands[0]
    return buffer


def interleave(
    ir: Any, buffer: Any, groups: Groups, readers: Sequence[Any], *, parallel: bool
) -> None:
    """Interleave groups of rows of a packed copy, where it has been made and is not read yet.

    Element ``i`` of row ``r`` of a group is behind element ``i`` of row ``r - 1`` then.

    Args:
        ir: The ``ir`` module of the bindings.
        buffer: What is allocated for the copy.
        groups: What is interleaved.
        readers: Operations that read it.
        parallel: Whether loops may run on several threads.

    Raises:
        InvalidSchedule: it is no copy of whole groups that is made first and read then.
    """
    kind = buffer.type
    producer = defining(buffer)
    if producer is None or producer.name not in ALLOCATIONS:
        raise InvalidSchedule(f"{kind} is no packed copy, and cannot be interleaved")
    total = math.prod(kind.shape)
    if total % (groups.size * groups.row) or groups.row % groups.lanes:
        raise InvalidSchedule(f"{kind} has no groups of {groups.size} rows")
    writers = _writers(buffer, readers)
    behind, around = _between(ir, writers, readers, kind)
    is_inside = any(operation.name in PARALLEL for operation in around)
    with behind, producer.location:
        elements = flat(ir, buffer)

        def weave(at: Any) -> None:
            _weave(ir, elements, at, groups)

        _loop(ir, total, groups.size * groups.row, weave, parallel=parallel and not is_inside)


def flat(ir: Any, buffer: Any) -> Any:
    """A buffer without gaps as one with a single dimension, where operations are inserted."""
    kind = buffer.type
    integer = ir.IntegerType.get_signless(64)
    dimensions = [ir.IntegerAttr.get(integer, at) for at in range(len(kind.shape))]
    result = ir.MemRefType.get([math.prod(kind.shape)], kind.element_type)
    attributes = {"reassociation": ir.ArrayAttr.get([ir.ArrayAttr.get(dimensions)])}
    return ir.Operation.create("memref.collapse_shape", [result], [buffer], attributes).results[0]


def _number(ir: Any, value: int) -> Any:
    """A constant index."""
    kind = ir.IndexType.get()
    attributes = {"value": ir.IntegerAttr.get(kind, value)}
    return ir.Operation.create("arith.constant", [kind], attributes=attributes).results[0]


def _writers(buffer: Any, readers: Sequence[Any]) -> list[Any]:
    """What writes a buffer.

    Raises:
        InvalidSchedule: something else than ``readers`` reads it, too.
    """
    found: list[Any] = []
    views = [buffer]
    while views:
        view = views.pop()
        for user in users_of(view):
            if user.name in VIEWS:
                views.append(user.results[0])
            elif user.name == "memref.dealloc" or user in readers:
                continue
            elif view in written_buffers(user):
                found.append(user)
            else:
                raise InvalidSchedule(f"{user.name} reads {buffer.type} before it is interleaved")
    return found


def _between(
    ir: Any, writers: Sequence[Any], readers: Sequence[Any], kind: Any
) -> tuple[Any, Sequence[Any]]:
    """The place behind the last writer and before the first reader, and what is around it."""
    paths = [ancestors(operation)[::-1] for operation in (*writers, *readers)]
    depth = 0
    deepest = min(map(len, paths)) - 1
    while depth < deepest and all(path[depth] == paths[0][depth] for path in paths):
        depth += 1
    around = paths[0][:depth]
    found = [path[depth] for path in paths]
    block = found[0].block
    order = [view.operation for view in block.operations]
    if not writers or not readers or not all(operation in order for operation in found):
        raise InvalidSchedule(f"{kind} is not packed and read one after the other")
    places = [order.index(operation) for operation in found]
    last, first = max(places[: len(writers)]), min(places[len(writers) :])
    if last >= first:
        raise InvalidSchedule(f"{kind} is read before all of it is packed")
    return ir.InsertionPoint(order[last + 1]), around


def _loop(ir: Any, end: int, step: int, body: Callable[[Any], None], *, parallel: bool) -> None:
    index = ir.IndexType.get()
    bounds = [_number(ir, value) for value in (0, end, step)]
    if parallel:
        segments = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 1, 0])}
        loop = ir.Operation.create("scf.parallel", [], bounds, segments, regions=1)
    else:
        loop = ir.Operation.create("scf.for", [], bounds, regions=1)
    block = ir.Block.create_at_start(loop.regions[0], [index])
    with ir.InsertionPoint(block):
        body(block.arguments[0])
        ir.Operation.create("scf.reduce" if parallel else "scf.yield")


def _weave(ir: Any, elements: Any, at: Any, groups: Groups) -> None:
    """Interleave one group in place.

    Args:
        ir: The ``ir`` module of the bindings.
        elements: The buffer, with a single dimension.
        at: Number of the group's first element.
        groups: What is interleaved.
    """
    group, row, lanes = groups.size, groups.row, groups.lanes
    create, element = ir.Operation.create, elements.type.element_type
    narrow = ir.VectorType.get([lanes], element)

    def place(offset: int) -> Any:
        operands = [at, _number(ir, offset)]
        return create("arith.addi", [ir.IndexType.get()], operands).results[0]

    woven = []
    for column in range(0, row, lanes):
        pieces = [
            create("vector.load", [narrow], [elements, place(line * row + column)]).results[0]
            for line in range(group)
        ]
        woven.append(_interleaved(ir, pieces))
    for order, value in enumerate(woven):
        create("vector.store", [], [value, elements, place(order * group * lanes)])


def _interleaved(ir: Any, vectors: Sequence[Any]) -> Any:
    """A vector with the first elements of some vectors, then with their second ones, and so on."""
    if len(vectors) == 1:
        return vectors[0]
    halves = [_interleaved(ir, vectors[first::2]) for first in (0, 1)]
    (extent,) = halves[0].type.shape
    kind = ir.VectorType.get([2 * extent], halves[0].type.element_type)
    return ir.Operation.create("vector.interleave", [kind], halves).results[0]
