"""Quotients and remainders of indices that are constants, or the same for all lanes.

Loops whose steps are multiples of a divisor leave the remainders of what is inside of them
constant, and so the conditions that guard what is read: products with the zero that a guard
chooses are dropped, as other compilers do. A quotient that no lane of a vector changes is computed
without them, or each lane would be read by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from attrs import field, frozen

from autotune_mlir.importing.scalar_import import defining
from autotune_mlir.traversal import constant_index, operations_in, parent_of, users_of

__all__ = ["PIECES", "fold_divided_indices"]

PIECES = "pieces"
"""The sequence of a schedule behind which indices are folded."""

_GENERIC = "linalg.generic"


@frozen
class _Axis:
    """What an index grows along.

    Attributes:
        start: Its first value.
        step: What all its values differ from that by multiples of.
        lanes: How many values an operation has at once; None of a loop.
    """

    start: int
    step: int
    lanes: int | None


@frozen
class _Index:
    """A sum: ``constant``, and axes times numbers, each with a value of the program that it is.

    Numbers are fractions where an axis is divided whose steps are multiples of the divisor. The
    sum is a whole number for all values of its axes.
    """

    constant: Fraction
    terms: Mapping[Any, tuple[Fraction, _Axis, Any]] = field(factory=dict)

    def plus(self, other: _Index, factor: Fraction = Fraction(1)) -> _Index:
        """The sum of this and a multiple of another."""
        terms = dict(self.terms)
        for key, (scale, axis, value) in other.terms.items():
            own = terms.get(key, (Fraction(0), axis, value))[0] + factor * scale
            terms[key] = (own, axis, value)
        kept = {key: term for key, term in terms.items() if term[0]}
        return _Index(self.constant + factor * other.constant, kept)

    @property
    def origin(self) -> int:
        """The value where all axes are at their starts."""
        total = sum((scale * axis.start for scale, axis, _ in self.terms.values()), self.constant)
        return int(total)

    @property
    def is_whole(self) -> bool:
        """Whether no number is a fraction."""
        numbers = [self.constant, *(scale for scale, _, _ in self.terms.values())]
        return all(number.denominator == 1 for number in numbers)

    @property
    def steps(self) -> list[int]:
        """What it grows by with one step of each axis."""
        return [int(scale * axis.step) for scale, axis, _ in self.terms.values()]

    def quotient(self, divisor: int) -> _Index | None:
        """The quotient, rounded down; None where its steps are not all the same."""
        if any(step % divisor for step in self.steps):
            return None
        terms = {
            key: (scale / divisor, axis, value) for key, (scale, axis, value) in self.terms.items()
        }
        starts = sum(scale * axis.start for scale, axis, _ in terms.values())
        return _Index(self.origin // divisor - Fraction(starts), terms)

    def without_lanes(self, divisor: int) -> _Index | None:
        """What has the same quotient in all lanes; None where lanes may have others."""
        inner = [term for term in self.terms.values() if term[1].lanes is not None]
        outer = {key: it for key, it in self.terms.items() if it[1].lanes is None}
        unit = math.gcd(divisor, *_Index(self.constant, outer).steps)
        spread = sum(scale * ((axis.lanes or 1) - 1) for scale, axis, _ in inner)
        is_inside = self.origin % unit + spread < unit and all(scale > 0 for scale, _, _ in inner)
        return _Index(self.constant, outer) if is_inside else None


def fold_divided_indices(ir: Any, kernel: Any) -> None:
    """Fold what divides indices in the bodies of operations on tensors.

    Args:
        ir: The ``ir`` module of the bindings.
        kernel: The function, on tensors.
    """
    bodies = [it for it in operations_in(kernel) if it.name == _GENERIC]
    for generic in bodies:
        for operation in [it for it in operations_in(generic) if it.name == "arith.divui"]:
            _fold_quotient(ir, operation)
        for operation in [it for it in operations_in(generic) if it.name == "arith.select"]:
            _fold_choice(ir, operation)
        _drop_unchanged(generic)


def _drop_unchanged(generic: Any) -> None:
    """Drop an operation that writes what was there, and the slice that it is put back into."""
    *_, last = operations_in(generic)
    own = list(generic.regions[0].blocks[0].arguments)[-1]
    if len(generic.results) != 1 or last.operands[0] != own:
        return
    result, before = generic.results[0], list(generic.operands)[-1]
    part = defining(before)
    for put in users_of(result):
        if part is not None and _puts_back(put, part):
            put.results[0].replace_all_uses_with(put.operands[1])
            put.erase()
    result.replace_all_uses_with(before)
    generic.erase()


def _puts_back(put: Any, part: Any) -> bool:
    """Whether a slice is put where it was taken from."""
    if (put.name, part.name) != ("tensor.insert_slice", "tensor.extract_slice"):
        return False
    places = ("static_offsets", "static_sizes", "static_strides")
    return list(put.operands)[1:] == list(part.operands) and all(
        list(put.attributes[name]) == list(part.attributes[name]) for name in places
    )


def _fold_quotient(ir: Any, division: Any) -> None:
    index, divisor = _index_of(ir, division.operands[0]), constant_index(division.operands[1])
    if index is None or not divisor or all(it[1].lanes is None for it in index.terms.values()):
        return
    uniform = index.without_lanes(divisor)
    if uniform is None or not uniform.is_whole:
        return
    kind = division.results[0].type
    create = ir.Operation.create

    def number(value: int) -> Any:
        attributes = {"value": ir.IntegerAttr.get(kind, value)}
        return create("arith.constant", [kind], attributes=attributes).results[0]

    with ir.InsertionPoint(division), division.location:
        total = number(int(uniform.constant))
        for scale, _, value in uniform.terms.values():
            product = create("arith.muli", [kind], [value, number(int(scale))]).results[0]
            total = create("arith.addi", [kind], [total, product]).results[0]
    division.operands[0] = total


def _fold_choice(ir: Any, select: Any) -> None:
    """Take the value that a constant condition chooses."""
    condition, *values = select.operands
    chosen = _truth(ir, condition)
    if chosen is None:
        return
    value = values[0] if chosen else values[1]
    if not chosen and _is_zero(value):
        _drop_products(select, value)
    select.results[0].replace_all_uses_with(value)
    select.erase()


def _drop_products(operation: Any, zero: Any) -> None:
    """Have nothing added where a product with a zero would be."""
    for use in list(operation.results[0].uses):
        user = getattr(use.owner, "operation", use.owner)
        if user.name in ("arith.mulf", "arith.muli"):
            _drop_products(user, zero)
        elif user.name in ("arith.addf", "arith.addi"):
            other = user.operands[1 - use.operand_number]
            user.results[0].replace_all_uses_with(other)


def _is_zero(value: Any) -> bool:
    producer = defining(value)
    return (
        producer is not None
        and producer.name == "arith.constant"
        and float(producer.attributes["value"].value) == 0
    )


def _truth(ir: Any, value: Any) -> bool | None:
    """A condition that is the same in all iterations; None where it is not known to be."""
    producer = defining(value)
    if producer is None:
        return None
    if producer.name in ("arith.andi", "arith.ori"):
        known = [_truth(ir, operand) for operand in producer.operands]
        decisive = bool(producer.name == "arith.ori")
        if decisive in known:
            return decisive
        return None if None in known else not decisive
    if producer.name != "arith.cmpi" or int(producer.attributes["predicate"].value) != 0:
        return None
    left, right = (_remainder(ir, operand) for operand in producer.operands)
    return None if left is None or right is None else left == right


def _remainder(ir: Any, value: Any) -> int | None:
    """A number, or a remainder, that is the same in all iterations."""
    producer = defining(value)
    if producer is None or producer.name != "arith.remui":
        index = _index_of(ir, value)
        return None if index is None or index.terms else int(index.constant)
    index, divisor = _index_of(ir, producer.operands[0]), constant_index(producer.operands[1])
    if index is None or not divisor:
        return None
    return None if any(step % divisor for step in index.steps) else index.origin % divisor


def _index_of(ir: Any, value: Any) -> _Index | None:
    """An index as a sum of axes; None where it is none."""
    producer = defining(value)
    if producer is None:
        return _loop_index(ir, value)
    if producer.name == "arith.constant":
        return _Index(Fraction(constant_index(value) or 0))
    if producer.name == "linalg.index":
        return _iterator(ir, producer)
    if producer.name == "affine.apply":
        operands = [_index_of(ir, operand) for operand in producer.operands]
        place = producer.attributes["map"].value
        return _mapped(ir, place.results[0], operands, place.n_dims)
    if producer.name in ("arith.addi", "arith.subi", "arith.muli"):
        left, right = (_index_of(ir, operand) for operand in producer.operands)
        if left is None or right is None:
            return None
        if producer.name == "arith.muli":
            return _product(left, right)
        return left.plus(right, Fraction(1 if producer.name == "arith.addi" else -1))
    return None


def _product(left: _Index, right: _Index) -> _Index | None:
    if left.terms and right.terms:
        return None
    factor, other = (right.constant, left) if left.terms else (left.constant, right)
    return _Index(Fraction(0)).plus(other, factor)


def _mapped(ir: Any, node: Any, operands: list[_Index | None], dims: int) -> _Index | None:
    """The result of an affine map."""
    if isinstance(node, ir.AffineConstantExpr):
        return _Index(Fraction(node.value))
    if isinstance(node, (ir.AffineDimExpr, ir.AffineSymbolExpr)):
        place = int(node.position) + (0 if isinstance(node, ir.AffineDimExpr) else dims)
        return operands[place]
    known = (ir.AffineAddExpr, ir.AffineMulExpr, ir.AffineFloorDivExpr, ir.AffineModExpr)
    if not isinstance(node, known):
        return None
    left, right = (_mapped(ir, it, operands, dims) for it in (node.lhs, node.rhs))
    if left is None or right is None:
        return None
    if isinstance(node, (ir.AffineFloorDivExpr, ir.AffineModExpr)):
        return _divided(left, right, remainder=isinstance(node, ir.AffineModExpr))
    return left.plus(right) if isinstance(node, ir.AffineAddExpr) else _product(left, right)


def _divided(index: _Index, divisor: _Index, *, remainder: bool) -> _Index | None:
    """The quotient of an index by a number, or its remainder."""
    if divisor.terms or not divisor.constant:
        return None
    found = index.quotient(int(divisor.constant))
    if found is None or not remainder:
        return found
    return index.plus(found, -divisor.constant)


def _iterator(ir: Any, producer: Any) -> _Index | None:
    """An iterator of the operation that a body is of."""
    number = int(producer.attributes["dim"].value)
    generic = parent_of(producer)
    assert generic is not None
    for place, operand in zip(generic.attributes["indexing_maps"], generic.operands, strict=True):
        for dimension, result in enumerate(place.value.results):
            if not isinstance(result, ir.AffineDimExpr) or result.position != number:
                continue
            if operand.type.is_dynamic_dim(dimension):
                return None
            extent = operand.type.shape[dimension]
            axis = {number: (Fraction(1), _Axis(0, 1, extent), None)}
            return _Index(Fraction(0), axis if extent > 1 else {})
    return None


def _loop_index(ir: Any, value: Any) -> _Index | None:
    """The variable of a loop."""
    loop = value.owner.owner
    loop = getattr(loop, "operation", loop)
    number = value.arg_number
    if loop.name == "scf.for" and number == 0:
        start, step = (constant_index(loop.operands[at]) for at in (0, 2))
    elif loop.name == "scf.forall":
        names = ("staticLowerBound", "staticStep")
        bounds = [list(loop.attributes[name]) for name in names]
        if number >= len(bounds[0]):
            return None
        start, step = (it[number] for it in bounds)
    else:
        return None
    if start is None or step is None:
        return None
    return _Index(Fraction(0), {value: (Fraction(1), _Axis(start, step, None), value)})
