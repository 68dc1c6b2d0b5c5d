"""Gathers of neighbours in memory, which are loads.

What a body extracts at a place that data says, and at the iterator of its lanes, is read by a
``vector.gather`` whose indices grow by one from lane to lane, as rows of a table in an embedding
bag. LLVM would read each lane by itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from autotune_mlir.importing.scalar_import import defining
from autotune_mlir.passes.vector_maker import VectorMaker, constant_of

__all__ = [
    "GATHER",
    "flattened",
    "is_dense",
    "is_true",
    "lane_dimension",
    "load_neighbours",
    "replace_by_rows",
]

GATHER = "vector.gather"
"""The operation that :func:`load_neighbours` takes."""

# Of each lane by itself; none has attributes that change what it computes.
_SUMS = frozenset({"arith.addi", "arith.subi"})
_CASTS = frozenset({"arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui"})
_OTHERS = frozenset({"arith.muli", "arith.minsi", "arith.maxsi", "arith.divui", "arith.remui"})
_MOVES = frozenset({"vector.broadcast", "vector.shape_cast", "vector.transpose"})
_OF_LANES = _SUMS | _CASTS | _OTHERS


def load_neighbours(ir: Any, gathers: Sequence[Any]) -> None:
    """Load what is gathered of neighbours, a vector for each row.

    Args:
        ir: The ``ir`` module of the bindings; the context is the current one.
        gathers: Operations :data:`GATHER` on buffers. Those with a mask, of other buffers than
            dense ones, and of what does not lie next to each other are left alone.
    """
    for gather in gathers:
        buffer, *_, indices, mask, _ = gather.operands
        kind = gather.results[0].type
        lanes = lane_dimension(kind)
        if lanes is None or not is_dense(ir, buffer.type) or not is_true(ir, mask):
            continue
        if _slope(ir, indices, lanes) == 1:
            with ir.InsertionPoint(gather), gather.location:
                _load(ir, gather)


def lane_dimension(kind: Any) -> int | None:
    """The innermost dimension of a vector with more than one lane."""
    return max((at for at, extent in enumerate(kind.shape) if extent > 1), default=None)


def is_dense(ir: Any, kind: Any) -> bool:
    """Whether a buffer has all its elements in row-major order, without gaps."""
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(len(kind.shape)))
    return bool(kind.shape) and kind.has_static_shape and bool(kind.layout == identity)


def is_true(ir: Any, mask: Any) -> bool:
    """Whether a mask is a constant that leaves no lane out."""
    constant = _splat(ir, mask)
    return constant is not None and bool(constant.value)


def _splat(ir: Any, value: Any) -> Any | None:
    """The attribute of a constant that is the same in all lanes."""
    made = defining(value)
    if made is None or made.name != "arith.constant":
        return None
    attribute = made.attributes["value"]
    splat = isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat
    return attribute.get_splat_value() if splat else None


def _slope(ir: Any, value: Any, dimension: int) -> int | None:
    """By how much lanes grow along a dimension; None where it is not the same everywhere."""
    if value.type.shape[dimension] == 1 or _splat(ir, value) is not None:
        return 0
    made = defining(value)
    if made is None:
        return None
    if made.name == "vector.step":
        return 1
    if made.name in _MOVES:
        source = made.operands[0]
        if not isinstance(source.type, ir.VectorType):
            return 0
        inner = _source_dimension(made, dimension)
        return 0 if inner is None else _slope(ir, source, inner) if inner >= 0 else None
    if made.name not in _OF_LANES:
        return None
    slopes = [_slope(ir, operand, dimension) for operand in made.operands]
    if None in slopes:
        return None
    if made.name == "arith.addi":
        return sum(slopes)  # type: ignore[arg-type]
    if made.name == "arith.subi":
        return slopes[0] - slopes[1]  # type: ignore[operator]
    if made.name == "arith.index_cast":
        return slopes[0]
    return 0 if not any(slopes) else None


def _source_dimension(moved: Any, dimension: int) -> int | None:
    """The dimension of a vector that one of a vector made of it is.

    Returns:
        None where lanes along it are copies; -1 where it is no dimension.
    """
    source, result = (list(it.type.shape) for it in (moved.operands[0], moved.results[0]))
    if moved.name == "vector.transpose":
        return int(list(moved.attributes["permutation"])[dimension])
    if moved.name == "vector.broadcast":
        inner = dimension - (len(result) - len(source))
        return inner if inner >= 0 and source[inner] > 1 else None
    before, after = ([at for at, n in enumerate(it) if n > 1] for it in (source, result))
    if [source[at] for at in before] != [result[at] for at in after]:
        return -1
    return before[after.index(dimension)]


def _load(ir: Any, gather: Any) -> None:
    buffer, *offsets, indices, _, _ = gather.operands
    make, elements = VectorMaker(ir), _Elements(ir, {})
    kind = gather.results[0].type
    extents = list(buffer.type.shape)
    strides = [math.prod(extents[at + 1 :]) for at in range(len(extents))]
    flat = flattened(ir, buffer)

    def loaded(outer: tuple[int, ...]) -> Any:
        first = elements.of(indices, (*outer, *[0] * (len(kind.shape) - len(outer))))
        if first.type != ir.IndexType.get():
            cast = ir.Operation.create("arith.index_cast", [ir.IndexType.get()], [first])
            first = cast.results[0]
        start = make.sum_of([first, *offsets], [1, *strides])
        return make.loaded(flat, start, 0, kind.shape[len(outer)])

    replace_by_rows(ir, gather, loaded)


def replace_by_rows(ir: Any, gather: Any, loaded: Callable[[tuple[int, ...]], Any]) -> None:
    """Put vectors at the insertion point in place of a gather with more than one lane.

    Args:
        ir: The ``ir`` module of the bindings.
        gather: The operation.
        loaded: Makes the lanes of each place along the dimensions outside of them.
    """
    kind, make = gather.results[0].type, VectorMaker(ir)
    lanes, shape = lane_dimension(kind), list(kind.shape)
    result = make.poison(kind)
    for outer in itertools.product(*map(range, shape[:lanes])):
        result = make.inserted(result, make.shaped(loaded(outer), shape[lanes:]), outer)
    gather.results[0].replace_all_uses_with(result)
    gather.erase()


def flattened(ir: Any, buffer: Any) -> Any:
    """A view of a dense buffer with one dimension."""
    shape = list(buffer.type.shape)
    if len(shape) == 1:
        return buffer
    kind = ir.MemRefType.get([math.prod(shape)], buffer.type.element_type)
    groups = {"reassociation": ir.Attribute.parse(str([list(range(len(shape)))]))}
    return ir.Operation.create("memref.collapse_shape", [kind], [buffer], groups).results[0]


@frozen
class _Elements:
    """Single elements of vectors, computed without the others."""

    ir: Any
    known: dict[tuple[Any, tuple[int, ...]], Any]

    def of(self, value: Any, place: tuple[int, ...]) -> Any:
        """The element of a vector at a place."""
        found = self.known.get((value, place))
        if found is None:
            found = self.known[value, place] = self._made(value, place)
        return found

    def _made(self, value: Any, place: tuple[int, ...]) -> Any:
        ir, element = self.ir, value.type.element_type
        if (constant := _splat(ir, value)) is not None:
            return constant_of(ir, element, constant)
        made = defining(value)
        if made is None:
            return VectorMaker(ir).element(value, place)
        name = made.name
        if name == "vector.step":
            return constant_of(ir, element, ir.IntegerAttr.get(element, place[0]))
        if name in _MOVES:
            source = made.operands[0]
            if not isinstance(source.type, ir.VectorType):
                return source
            return self.of(source, _source_place(made, place))
        if name in _OF_LANES:
            operands = [self.of(operand, place) for operand in made.operands]
            return ir.Operation.create(name, [element], operands).results[0]
        return VectorMaker(ir).element(value, place)


def _source_place(moved: Any, place: Sequence[int]) -> tuple[int, ...]:
    """The place in a vector of an element of a vector made of it."""
    source, result = (list(it.type.shape) for it in (moved.operands[0], moved.results[0]))
    if moved.name == "vector.transpose":
        order = [int(it) for it in moved.attributes["permutation"]]
        return tuple(place[order.index(dimension)] for dimension in range(len(source)))
    if moved.name == "vector.broadcast":
        own = place[len(result) - len(source) :]
        return tuple(at if extent > 1 else 0 for at, extent in zip(own, source, strict=True))
    number = 0
    for at, extent in zip(place, result, strict=True):
        number = number * extent + at
    found: list[int] = []
    for extent in reversed(source):
        number, at = divmod(number, extent)
        found.append(at)
    return tuple(reversed(found))
