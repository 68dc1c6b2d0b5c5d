"""int8 products with zero points, as products of the numbers as they are stored.

The sum of ``(a - y) * (b - z)`` over ``n`` terms is that of ``a * b``, less ``z`` times the sum of
``a`` and ``y`` times the sum of ``b``, plus ``n * y * z``. In the arithmetic of integers, which
wraps around, both are the same; the first one is what processors have instructions for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from autotune_mlir.bindings import Bindings
from autotune_mlir.building import Builder
from autotune_mlir.emit import STAGE
from autotune_mlir.importing.generic_form import dimensions_of, maps_of
from autotune_mlir.importing.scalar_import import defining

__all__ = ["split_zero_points"]

_EXTENSIONS = ("arith.extsi", "arith.extui")


@frozen
class _Factor:
    """A byte from which a zero point may be subtracted.

    Attributes:
        place: Position of the operand with the bytes.
        extension: The operation that makes a wider number of one.
        zero: The zero point: the position of an operand, or the attribute of a constant.
    """

    place: int
    extension: str
    zero: Any


def split_zero_points(mlir: Bindings, operation: Any, name: Callable[[str], str]) -> None:
    """Write a sum of such products as that of the bytes, sums of bytes, and what combines them.

    Anything else is left as it is.

    Args:
        mlir: The bindings.
        operation: A ``linalg.generic`` of the normal form.
        name: Makes a name that no other stage has of one.
    """
    factors = _factors(mlir.ir, operation)
    if factors is not None and any(it.zero is not None for it in factors):
        _Split(mlir, operation, factors, name).write()


def _factors(ir: Any, operation: Any) -> list[_Factor] | None:
    """The two factors of what is summed; None where it is no such sum."""
    body = operation.regions[0].blocks[0]
    *_, end = (view.operation for view in body.operations)
    total = defining(end.operands[0])
    if len(end.operands) != 1 or total is None or total.name != "arith.addi":
        return None
    terms = [it for it in total.operands if it != list(body.arguments)[-1]]
    product = defining(terms[0]) if len(terms) == 1 else None
    if product is None or product.name != "arith.muli":
        return None
    found = [_factor(ir, operation, value) for value in product.operands]
    known = [it for it in found if it is not None]
    reads = sum(isinstance(it, int) for factor in known for it in (factor.place, factor.zero))
    if len(known) < 2 or known[0].place == known[1].place or reads != len(body.arguments) - 1:
        return None
    maps = maps_of(operation)
    spatial = _iterators(operation, "parallel")
    reduced = set(_iterators(operation, "reduction"))
    used = [_axes(ir, maps[it.place]) for it in known]
    everywhere = all(reduced <= own for own in used) and set(spatial) <= used[0] | used[1]
    return known if everywhere else None


def _factor(ir: Any, operation: Any, value: Any) -> _Factor | None:
    body, zero = operation.regions[0].blocks[0], None
    producer = defining(value)
    if producer is not None and producer.name == "arith.subi":
        zero = _zero_point(ir, operation, producer.operands[1])
        producer = defining(producer.operands[0]) if zero is not None else None
    if producer is None or producer.name not in _EXTENSIONS:
        return None
    byte = producer.operands[0]
    arguments = list(body.arguments)
    narrow, wide = (str(it.type) for it in (byte, producer.results[0]))
    if (narrow, wide) != ("i8", "i32") or byte not in arguments[:-1]:
        return None
    return _Factor(arguments.index(byte), producer.name, zero)


def _zero_point(ir: Any, operation: Any, value: Any) -> Any:
    """The position of an operand of rank 0, or the attribute of a constant; None of others."""
    arguments = list(operation.regions[0].blocks[0].arguments)[:-1]
    if value in arguments:
        place = arguments.index(value)
        return None if list(maps_of(operation)[place].results) else place
    producer = defining(value)
    if producer is None or producer.name != "arith.constant":
        return None
    return producer.attributes["value"]


def _iterators(operation: Any, kind: str) -> list[int]:
    kinds = operation.attributes["iterator_types"]
    return [number for number, own in enumerate(kinds) if kind in str(own)]


def _axes(ir: Any, place: Any) -> set[int]:
    """The iterators that an operand is read at."""
    return {axis for result in place.results for axis in dimensions_of(ir, result)}


class _Split:
    """Makes the stages that a sum of products is split into.

    Args:
        mlir: The bindings.
        operation: The sum.
        factors: Its factors.
        name: Makes names of stages.
    """

    def __init__(
        self,
        mlir: Bindings,
        operation: Any,
        factors: Sequence[_Factor],
        name: Callable[[str], str],
    ) -> None:
        self._ir, self._build = mlir.ir, Builder(mlir)
        self._operation, self._factors, self._name = operation, factors, name
        self._stage = str(operation.attributes[STAGE].value)
        self._maps, self._operands = maps_of(operation), list(operation.operands)
        self._kind = operation.results[0].type
        self._spatial = _iterators(operation, "parallel")
        self._reduced = _iterators(operation, "reduction")

    def write(self) -> None:
        """Put the stages in the place of the sum."""
        operation = self._operation
        with self._ir.InsertionPoint(operation), operation.location:
            product = self._product()
            sums = [
                None if other.zero is None else self._sum(factor, side)
                for factor, other, side in zip(
                    self._factors, reversed(self._factors), ("left", "right"), strict=True
                )
            ]
            result = self._combined(product, sums)
        operation.results[0].replace_all_uses_with(result)
        operation.erase()

    def _create(self, kind: str, *operands: Any) -> Any:
        element = self._kind.element_type
        return self._ir.Operation.create(kind, [element], list(operands)).results[0]

    def _product(self) -> Any:
        places = [factor.place for factor in self._factors]
        operands = [self._operands[place] for place in places]
        maps = [self._maps[place] for place in (*places, -1)]
        name = self._name(f"{self._stage}_product")
        stage = self._reduction(name, operands, maps, self._kind)
        *bytes_, before = stage.regions[0].blocks[0].arguments
        with self._ir.InsertionPoint(stage.regions[0].blocks[0]):
            pairs = zip(self._factors, bytes_, strict=True)
            wide = [self._create(factor.extension, byte) for factor, byte in pairs]
            total = self._create("arith.addi", before, self._create("arith.muli", *wide))
            self._ir.Operation.create("linalg.yield", operands=[total])
        return stage.results[0]

    def _sum(self, factor: _Factor, side: str) -> Any:
        """The sums of a factor, with the iterators of the result that it has."""
        ir = self._ir
        own = self._maps[factor.place]
        results = list(own.results)
        used = _axes(ir, own)
        kept = [axis for axis in self._spatial if axis in used]
        order = {axis: number for number, axis in enumerate((*kept, *self._reduced))}
        dimension = ir.AffineExpr.get_dim
        placed = ir.AffineMap.get(
            len(order), 0, [dimension(order.get(axis, 0)) for axis in range(own.n_dims)]
        )
        read = ir.AffineMap.get(len(order), 0, [result.compose(placed) for result in results])
        written = ir.AffineMap.get(len(order), 0, [dimension(order[axis]) for axis in kept])
        extents = [self._extent(axis) for axis in kept]
        kind = ir.RankedTensorType.get(extents, self._kind.element_type)
        operands, maps = [self._operands[factor.place]], [read]
        plain = {result.position for result in read.results if hasattr(result, "position")}
        missing = [axis for axis in self._reduced if order[axis] not in plain]
        if missing:
            # Only the extents of such an operand count.
            window = [self._extent(axis) for axis in missing]
            operands.append(
                self._build.empty(ir.RankedTensorType.get(window, self._kind.element_type))
            )
            maps.append(ir.AffineMap.get(len(order), 0, [dimension(order[it]) for it in missing]))
        name = self._name(f"{self._stage}_{side}_sums")
        stage = self._reduction(name, operands, [*maps, written], kind)
        byte, *_, before = stage.regions[0].blocks[0].arguments
        with ir.InsertionPoint(stage.regions[0].blocks[0]):
            total = self._create("arith.addi", before, self._create(factor.extension, byte))
            ir.Operation.create("linalg.yield", operands=[total])
        return stage.results[0], kept

    def _reduction(
        self, name: str, operands: Sequence[Any], maps: Sequence[Any], kind: Any
    ) -> Any:
        zero = self._build.identity("add", kind.element_type)
        begun = self._build.filled(kind, zero, name)
        stage = self._build.generic(name, operands, maps, begun, len(self._reduced))
        stage.regions[0].blocks.append(*(it.type.element_type for it in (*operands, begun)))
        return stage

    def _extent(self, axis: int) -> int:
        for place, operand in zip(self._maps, self._operands, strict=True):
            for number, result in enumerate(place.results):
                if getattr(result, "position", None) == axis:
                    return int(operand.type.shape[number])
        raise AssertionError(f"iterator d{axis} is no dimension of an operand")

    def _combined(self, product: Any, sums: Sequence[Any]) -> Any:
        """The product, less the sums of each factor times the zero point of the other."""
        ir, rank = self._ir, len(self._spatial)
        dimension = ir.AffineExpr.get_dim
        operands, maps = [product], [ir.AffineMap.get_identity(rank)]
        for found in sums:
            if found is not None:
                value, kept = found
                operands.append(value)
                maps.append(ir.AffineMap.get(rank, 0, [dimension(axis) for axis in kept]))
        zeros = [factor.zero for factor in self._factors]
        for zero in zeros:
            if isinstance(zero, int):
                operands.append(self._operands[zero])
                maps.append(ir.AffineMap.get(rank, 0, []))
        maps.append(ir.AffineMap.get_identity(rank))
        output = self._build.empty(self._kind)
        stage = self._build.generic(self._stage, operands, maps, output)
        body = stage.regions[0].blocks.append(
            *(it.type.element_type for it in (*operands, output))
        )
        arguments = iter(list(body.arguments))
        with ir.InsertionPoint(body):
            total = next(arguments)
            summed = [None if found is None else next(arguments) for found in sums]
            points = [self._point(zero, arguments) for zero in zeros]
            for own, point in zip(summed, reversed(points), strict=True):
                if own is not None:
                    shifted = self._create("arith.muli", own, point)
                    total = self._create("arith.subi", total, shifted)
            if all(point is not None for point in points):
                terms = math.prod(map(self._extent, self._reduced))
                count = self._build.scalar(
                    ir.IntegerAttr.get(self._kind.element_type, terms), self._kind.element_type
                )
                both = self._create("arith.muli", self._create("arith.muli", *points), count)
                total = self._create("arith.addi", total, both)
            ir.Operation.create("linalg.yield", operands=[total])
        return stage.results[0]

    def _point(self, zero: Any, arguments: Any) -> Any:
        if zero is None:
            return None
        if isinstance(zero, int):
            return next(arguments)
        return self._build.scalar(zero, self._kind.element_type)
