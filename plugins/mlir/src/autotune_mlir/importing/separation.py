"""Operations of linalg with several results, as one operation for each of them.

What is computed for one of the results does not depend on the others in programs that sum numbers
and their squares at once. In those that find an extreme value and its index, the value is reduced
first, and then the index of what equals it: the least or the greatest such index, as the program
takes the first or the last of equal values. Where nothing equals it (NaN), the index is in range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from autotune_mlir.bindings import Bindings
from autotune_mlir.building import Builder, is_identity
from autotune_mlir.importing.scalar_import import (
    Unsupported,
    combiner_of,
    comparison_of,
    defining,
    dtype_of,
)

__all__ = ["erase", "separate"]

# Signs of left - right for which a comparison holds.
_SIGNS = {
    "lt": frozenset({-1}),
    "le": frozenset({-1, 0}),
    "gt": frozenset({1}),
    "ge": frozenset({0, 1}),
}
_ALL = frozenset({-1, 0, 1})
# Numbers of the predicate "equal" of comparisons.
_EQUAL = {"arith.cmpf": 1, "arith.cmpi": 0}


def separate(mlir: Bindings, operation: Any) -> None:
    """Replace a ``linalg.generic`` with several results; one with a single result stays.

    Raises:
        Unsupported: a result depends on another one, and not as an index on its value.
    """
    results = list(operation.results)
    if len(results) < 2:
        return
    separator = _Separator(mlir, operation)
    depends = [separator.dependences(place) for place in range(len(results))]
    if all(found <= {place} for place, found in enumerate(depends)):
        made = [separator.alone(place) for place in range(len(results))]
    else:
        made = separator.arg_reduction(depends)
    for old, new in zip(results, made, strict=True):
        old.replace_all_uses_with(new)
    erase(operation)
    for unused in [defining(new) for new in made if not any(True for _ in new.uses)]:
        erase(unused)


def erase(operation: Any) -> None:
    """Erase an operation that nothing uses, and what only it used."""
    operands = list(operation.operands)
    operation.erase()
    for value in operands:
        producer = defining(value)
        if producer is not None and not any(_uses(producer)):
            erase(producer)


def _uses(operation: Any) -> Iterator[bool]:
    """One item for every use of a result."""
    return (True for result in operation.results for _ in result.uses)


@frozen
class _Choice:
    """A selection between what was there and something else.

    Attributes:
        other: The something else.
        taken: The signs of ``x`` minus the value so far for which that is taken.
        compares: The name of the operation that compares.
    """

    other: Any
    taken: frozenset[int]
    compares: str


class _Separator:
    """Makes operations with one result before ``operation``."""

    def __init__(self, mlir: Bindings, operation: Any) -> None:
        self._ir = mlir.ir
        self._build = Builder(mlir)
        self._operation = operation
        self._operands = list(operation.operands)
        self._maps = list(operation.attributes["indexing_maps"])
        self._body = operation.regions[0].blocks[0]
        self._inputs = len(self._operands) - len(operation.results)
        self._outputs = list(self._body.arguments)[self._inputs :]
        self._yielded = list(list(self._body.operations)[-1].operation.operands)

    def dependences(self, place: int) -> set[int]:
        """The results so far that a result is computed from."""
        seen: list[Any] = []
        left = [self._yielded[place]]
        while left:
            value = left.pop()
            if value not in seen:
                seen.append(value)
                producer = defining(value)
                left += [] if producer is None else list(producer.operands)
        return {place for place, output in enumerate(self._outputs) if output in seen}

    def alone(self, place: int) -> Any:
        """A result of an operation of its own, with what the body computes for it."""
        ir, where = self._ir, self._operation.location
        with ir.InsertionPoint(self._operation), where:
            copy = self._operation.clone()
        body = copy.operation.regions[0].blocks[0]
        end = list(body.operations)[-1].operation
        with ir.InsertionPoint(end), where:
            ir.Operation.create("linalg.yield", operands=[list(end.operands)[place]])
        end.erase()
        for view in list(body.operations)[-2::-1]:
            if not any(_uses(view.operation)):
                view.operation.erase()
        for other in reversed(range(len(self._outputs))):
            if other != place:
                body.erase_argument(self._inputs + other)
        new = self._made([*range(self._inputs), self._inputs + place])
        body.append_to(new.regions[0])
        copy.operation.erase()
        return new.results[0]

    def _made(self, places: Sequence[int], values: Sequence[Any] = ()) -> Any:
        """An operation without a body on some of the operands, the last of which it writes.

        Args:
            places: Positions of the operands of which it has the maps.
            values: What it has in their place.
        """
        ir, attributes = self._ir, self._operation.attributes
        operands = list(values) or [self._operands[place] for place in places]
        given = {
            "indexing_maps": ir.ArrayAttr.get([self._maps[place] for place in places]),
            "iterator_types": attributes["iterator_types"],
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands) - 1, 1]),
        }
        with ir.InsertionPoint(self._operation), self._operation.location:
            kinds = [operands[-1].type]
            return ir.Operation.create("linalg.generic", kinds, operands, given, regions=1)

    def arg_reduction(self, depends: list[set[int]]) -> list[Any]:
        """The results of two operations that find an extreme value, and then its index.

        Args:
            depends: The results so far that each result is computed from.

        Raises:
            Unsupported: the operation is something else.
        """
        if sorted(map(len, depends)) != [1, 2] or self._inputs != 1:
            raise Unsupported(
                f"it has {len(depends)} results that depend on one another and are no extreme "
                "value of its one operand with the index of that (argmax, argmin)"
            )
        index = 0 if len(depends[0]) == 2 else 1
        value = 1 - index
        combiner, name = self._extreme(value)
        choice = self._choice(self._yielded[index], value, index)
        ahead = 1 if combiner == "max" else -1
        if ahead not in choice.taken or -ahead in choice.taken:
            raise Unsupported("the index that it keeps is not that of the value that it keeps")
        old = self._operands[1 + value]
        start = self._build.constant_of(old)
        if start is None or not is_identity(combiner, start, old.type.element_type):
            raise Unsupported("the value that it finds the index of does not start as neutral")
        made: list[Any] = [None, None]
        made[value] = self._value(value, name)
        made[index] = self._index(value, index, choice, made[value])
        return made

    def _extreme(self, value: int) -> tuple[str, str]:
        """How a value is combined with the value so far, and by which operation.

        Raises:
            Unsupported: neither the larger nor the smaller one is kept.
        """
        yielded = defining(self._yielded[value])
        x, before = self._body.arguments[0], self._outputs[value]
        operands = [] if yielded is None else list(yielded.operands)
        if yielded is not None and combiner_of(yielded) in ("max", "min"):
            if operands in ([x, before], [before, x]):
                return combiner_of(yielded), yielded.name
        else:
            choice = self._choice(self._yielded[value], value, value)
            if choice.other == x and len({1, -1} & choice.taken) == 1:
                combiner = "max" if 1 in choice.taken else "min"
                is_float = choice.compares == "arith.cmpf"
                names = {True: f"arith.{combiner}imumf", False: f"arith.{combiner}si"}
                return combiner, names[is_float]
        raise Unsupported("of its value it keeps neither the larger nor the smaller one")

    def _choice(self, yielded: Any, value: int, kept: int) -> _Choice:
        """The selection between a result so far and something else.

        Args:
            yielded: What it results in.
            value: The result by which it selects.
            kept: The result so far.

        Raises:
            Unsupported: it is no such selection by a comparison of the operand with the value.
        """
        select = defining(yielded)
        operands = [] if select is None or select.name != "arith.select" else [*select.operands]
        compared = defining(operands[0]) if operands else None
        pair = [self._body.arguments[0], self._outputs[value]]
        before = self._outputs[kept]
        if compared is not None and compared.name in _EQUAL and before in operands[1:]:
            signs = _SIGNS.get(comparison_of(compared) or "", frozenset())
            if list(compared.operands) == pair[::-1]:
                signs = frozenset(-sign for sign in signs)
            other = operands[2] if operands[1] == before else operands[1]
            if list(compared.operands) in (pair, pair[::-1]) and signs:
                taken = _ALL - signs if operands[1] == before else signs
                return _Choice(other, taken, compared.name)
        raise Unsupported("a result is not selected by a comparison of its operand with the value")

    def _value(self, value: int, name: str) -> Any:
        """The value, reduced by an operation on numbers."""
        new = self._made([0, 1 + value])
        kinds = [argument.type for argument in (self._body.arguments[0], self._outputs[value])]
        body = new.regions[0].blocks.append(*kinds)
        with self._ir.InsertionPoint(body), self._operation.location:
            operands = list(body.arguments)
            combined = self._ir.Operation.create(name, [kinds[1]], operands).results[0]
            self._ir.Operation.create("linalg.yield", operands=[combined])
        return new.results[0]

    def _index(self, value: int, index: int, choice: _Choice, found: Any) -> Any:
        """The first or last index of what equals ``found``."""
        ir, create = self._ir, self._ir.Operation.create
        dimension, extent = self._reduced(choice.other)
        old = self._operands[1 + index]
        number = old.type.element_type
        limits = np.iinfo(dtype_of(number))
        if extent - 1 > limits.max:
            raise Unsupported(f"its index, of {extent} positions, does not fit in {number}")
        last = 0 in choice.taken
        first, beyond = (limits.min, 0) if last else (limits.max, extent - 1)
        with ir.InsertionPoint(self._operation), self._operation.location:
            start = self._build.scalar(ir.IntegerAttr.get(number, int(first)), number)
            splat = ir.DenseElementsAttr.get_splat(old.type, start.owner.attributes["value"])
            begin = create("arith.constant", [old.type], attributes={"value": splat}).results[0]
        new = self._made([0, 1 + value, 1 + index], [self._operands[0], found, begin])
        kinds = [self._body.arguments[0].type, found.type.element_type, number]
        body = new.regions[0].blocks.append(*kinds)
        x, extreme, so_far = body.arguments
        with ir.InsertionPoint(body), self._operation.location:
            whole = ir.IntegerType.get_signless(64)
            axis = {"dim": ir.IntegerAttr.get(whole, dimension)}
            place = create("linalg.index", [ir.IndexType.get()], attributes=axis).results[0]
            place = create("arith.index_cast", [number], [place]).results[0]
            beside = self._build.scalar(ir.IntegerAttr.get(number, beyond), number)
            equal = {"predicate": ir.IntegerAttr.get(whole, _EQUAL[choice.compares])}
            truth = ir.IntegerType.get_signless(1)
            is_equal = create(choice.compares, [truth], [x, extreme], equal).results[0]
            chosen = create("arith.select", [number], [is_equal, place, beside]).results[0]
            how = "arith.maxsi" if last else "arith.minsi"
            combined = create(how, [number], [chosen, so_far]).results[0]
            create("linalg.yield", operands=[combined])
        return new.results[0]

    def _reduced(self, place: Any) -> tuple[int, int]:
        """The one iterator that reduces, and its extent, where ``place`` is its position.

        Raises:
            Unsupported: ``place`` is something else.
        """
        cast = defining(place)
        inner = None if cast is None or cast.name != "arith.index_cast" else cast.operands[0]
        producer = None if inner is None else defining(inner)
        kinds = [str(kind) for kind in self._operation.attributes["iterator_types"]]
        reduced = [number for number, kind in enumerate(kinds) if "reduction" in kind]
        if producer is not None and producer.name == "linalg.index" and len(reduced) == 1:
            dimension = int(producer.attributes["dim"].value)
            shape = self._operands[0].type.shape
            for expression, extent in zip(self._maps[0].value.results, shape, strict=True):
                if [dimension] == reduced and str(expression) == f"d{dimension}":
                    return dimension, int(extent)
        raise Unsupported("its index is not the position along the one iterator that it reduces")
