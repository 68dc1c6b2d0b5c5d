"""Contents of a ``linalg.generic``, and of the scans that torch-mlir writes beside it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from autotune.ir.expressions import IndexValue, IntExpr, ScalarExpr, var
from autotune.ir.workloads import Axis
from autotune_mlir.bindings import Bindings
from autotune_mlir.importing.scalar_import import (
    COMBINERS,
    Unsupported,
    combiner_of,
    defining,
    index_of_map,
    yielded,
)

__all__ = ["Generic", "SCANS", "Written", "load_scans", "scanned", "torch_combiner"]


@frozen
class Written:
    """The iteration space of one result of an operation.

    Attributes:
        axes: Those that index the result, in its order, and then those that are reduced.
        iterators: The index that each iterator of the operation is.
    """

    axes: tuple[Axis, ...]
    iterators: tuple[IntExpr, ...]

    @property
    def extents(self) -> dict[str, int]:
        """Extent of each axis by name."""
        return {axis.name: axis.extent for axis in self.axes}

    @property
    def places(self) -> tuple[IntExpr, ...]:
        """Places that the result is written to."""
        return tuple(var(axis.name) for axis in self.axes if axis.kind != "reduce")

    def indices(self, item: Any) -> list[ScalarExpr]:
        """The indices that a map gives."""
        return [IndexValue(index_of_map(it, self.iterators)) for it in item.results]


@frozen(eq=False)
class Generic:
    """A ``linalg.generic``.

    Attributes:
        operation: The operation.
        inputs: What it reads.
        outputs: What its results are written over.
        maps: Affine maps of both, in order.
        reduces: Of each iterator, whether it reduces.
        body: Its block.
        yielded: What that yields for each result.
    """

    operation: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    maps: tuple[Any, ...]
    reduces: tuple[bool, ...]
    body: Any
    yielded: tuple[Any, ...]

    @classmethod
    def of(cls, operation: Any) -> Generic:
        """Read the contents of an operation."""
        count = list(operation.attributes["operandSegmentSizes"])[0]
        operands = tuple(operation.operands)
        maps = tuple(item.value for item in operation.attributes["indexing_maps"])
        kinds = operation.attributes["iterator_types"]
        reduces = tuple("reduction" in str(kind) for kind in kinds)
        body = operation.regions[0].blocks[0]
        return cls(
            operation, operands[:count], operands[count:], maps, reduces, body, (*yielded(body),)
        )

    @property
    def accumulators(self) -> list[Any]:
        """The arguments of the body for what was there."""
        return list(self.body.arguments)[len(self.inputs) :]

    @property
    def output_maps(self) -> tuple[Any, ...]:
        """The maps of its results."""
        return self.maps[len(self.inputs) :]

    @property
    def passes_on(self) -> Any | None:
        """The input that a result is everywhere, with one of each; else None."""
        known = len(self.inputs) == len(self.outputs) == 1
        return self.inputs[0] if known and self.yielded == (self.body.arguments[0],) else None

    @property
    def is_scan(self) -> bool:
        """True if it is a scan.

        That has two results, of which the first lacks the dimension that is scanned along, and the
        second has all. Both are what was there and a new element.
        """
        if len(self.outputs) != 2 or sum(self.reduces) != 1:
            return False
        continued, everything = (_positions(item) for item in self.output_maps)
        whole = list(range(len(self.reduces)))
        kept = [number for number in whole if not self.reduces[number]]
        unread = not any(True for _ in self.accumulators[1].uses)
        same = self.yielded[0] == self.yielded[1]
        return everything == whole and continued == kept and same and unread

    @property
    def extents(self) -> dict[int, int]:
        """Number of steps of each iterator: the extent of a dimension that it alone indexes."""
        return {
            result.position: int(extent)
            for item, value in zip(self.maps, (*self.inputs, *self.outputs), strict=True)
            for result, extent in zip(item.results, getattr(value.type, "shape", ()), strict=True)
            if _is_iterator(result)
        }

    def written(self, place: int) -> Written:
        """The iteration space of a result.

        Raises:
            Unsupported: it does not write each element once.
        """
        item, extents = self.output_maps[place], self.extents
        iterators: dict[int, IntExpr] = {}
        axes: list[Axis] = []
        shape = self.outputs[place].type.shape
        for position, (expression, extent) in enumerate(zip(item.results, shape, strict=True)):
            axes.append(Axis(f"d{position}", int(extent)))
            if type(expression).__name__ == "AffineConstantExpr" and extent == 1:
                continue  # As of a dimension that was reduced, and kept.
            number = expression.position if _is_iterator(expression) else None
            if number is None or number in iterators or self.reduces[number]:
                raise Unsupported(
                    f"index {position} of its write is {expression}, "
                    "not a parallel iterator of its own"
                )
            iterators[number] = var(f"d{position}")
        for number, reduces in enumerate(self.reduces):
            if number in iterators:
                continue
            if not reduces:
                raise Unsupported(
                    f"iterator d{number} is parallel but does not index what it writes"
                )
            iterators[number] = var(f"d{len(axes)}")
            axes.append(Axis(f"d{len(axes)}", extents[number], "reduce"))
        return Written(tuple(axes), tuple(iterators[it] for it in range(len(self.reduces))))

    def dependences(self, place: int) -> set[int]:
        """The results so far that a result is computed from."""
        seen: set[Any] = set()
        left = [self.yielded[place]]
        while left:
            value = left.pop()
            if value not in seen:
                seen.add(value)
                producer = defining(value)
                left += [] if producer is None else list(producer.operands)
        return {number for number, it in enumerate(self.accumulators) if it in seen}


def _is_iterator(expression: Any) -> bool:
    return type(expression).__name__ == "AffineDimExpr"


def _positions(item: Any) -> Sequence[int | None]:
    """The iterators that a map gives; None for anything else."""
    return [it.position if _is_iterator(it) else None for it in item.results]


def scanned(generic: Generic) -> tuple[str, Any]:
    """Combination of a scan, and the value that it combines with what was there.

    Raises:
        Unsupported: it does something else.
    """
    before = generic.accumulators[0]
    combining = defining(generic.yielded[0])
    combiner = "" if combining is None else combiner_of(combining)
    if combining is not None and combiner in COMBINERS and sum(1 for _ in before.uses) == 1:
        operands = list(combining.operands)
        if before in operands:
            return combiner, operands[1 if operands[0] == before else 0]
    raise Unsupported("its body is not a scan of the form output = previous (+, *, max or min) x")


SCANS = ("tm_tensor.scan",)
"""Operations that are scans."""

# Loads the dialect, which the bindings have no name for.
_LOADING = "builtin.module(func.func(convert-torch-to-tmtensor))"


def load_scans(mlir: Bindings, text: str) -> None:
    """Make the dialect of scans known to the current context, where a text may have them."""
    if "tm_tensor." not in text or mlir.root != "torch_mlir":
        return
    dialect = importlib.import_module("torch_mlir.dialects.torch")
    dialect.register_dialect(mlir.ir.Context.current)
    nothing = mlir.ir.Module.parse("func.func @f() { return }")
    mlir.passmanager.PassManager.parse(_LOADING).run(nothing.operation)


def torch_combiner(operation: Any) -> str:
    """Combination of each element with what was there, in a scan of :data:`SCANS`.

    Raises:
        Unsupported: it leaves out the element itself, its last results are used, or its body does
            something else than combine two numbers.
    """
    if not operation.attributes["inclusive"].value:
        raise Unsupported("it is exclusive; only inclusive scans are supported")
    if any(True for _ in operation.results[1].uses):
        raise Unsupported("what it ends with is used; only all results are supported")
    body = operation.regions[0].blocks[0]
    inner = [view.operation for view in body.operations]
    combiner, arguments = combiner_of(inner[0]), list(body.arguments)
    both = list(inner[0].operands) in (arguments, arguments[::-1])
    if len(inner) == 2 and combiner in COMBINERS and both:
        return combiner
    raise Unsupported("it does not combine each element with what was there by +, *, max or min")
