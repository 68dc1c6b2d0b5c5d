"""Reads a program in normal form as a workload."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from attrs import evolve, frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import (
    Binary,
    Gather,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    const,
    index_bounds,
    simplify_index,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.ir.workloads.inputs import index_inputs
from autotune_mlir.emit import STAGE
from autotune_mlir.importing.joining import kept_dimensions
from autotune_mlir.importing.locations import at
from autotune_mlir.importing.scalar_import import (
    BodyReader,
    Unsupported,
    combination,
    dtype_of,
    index_of_map,
)
from autotune_mlir.importing.scans import scan_of
from autotune_mlir.importing.signs import unsigned_tensors

__all__ = ["input_name", "read_program", "tensor_of"]

_INPUT = "bufferization.to_tensor"
_OUTPUT = "bufferization.materialize_in_destination"


def input_name(position: int) -> str:
    """The name of an input, by its position: MLIR drops the names of values."""
    return f"arg{position}"


def read_program(function: Any, name: str, file: str) -> Workload:
    """What a function on buffers computes, whose operations on tensors are marked as stages.

    Inputs are called after their positions, stages after their marks, and axes after the
    dimensions of the maps: ``d0`` and so on.

    Args:
        function: The operation ``func.func``.
        name: What to call the workload.
        file: What the program was read from, for messages.

    Raises:
        UnsupportedWorkload: an operation cannot be expressed; says where it stands and why.
    """
    reader = _ProgramReader(unsigned_tensors(function.regions[0].blocks[0]))
    for view in function.regions[0].blocks[0].operations:
        operation = view.operation
        try:
            reader.read(operation)
        except Unsupported as reason:
            name = "func.return" if operation.name == _OUTPUT else operation.name
            where = at(operation, file)
            raise UnsupportedWorkload(f"operation {name}{where}: {reason}") from None
    made = Workload(name, tuple(reader.inputs), tuple(reader.stages), tuple(reader.outputs))
    # Says whether there are inputs by which candidates can be validated.
    index_inputs(made, np.random.default_rng(0))
    return made


def tensor_of(name: str, kind: Any, *, unsigned: bool = False) -> Tensor:
    """A tensor of an MLIR type with a shape and an element type.

    Args:
        name: What to call it.
        kind: The type.
        unsigned: Whether its numbers are, which are bytes then.

    Raises:
        Unsupported: workloads have no tensors of this type.
    """
    shape = tuple(int(extent) for extent in kind.shape)
    if 0 in shape:
        raise Unsupported(f"{kind} has no elements")
    return Tensor(name, shape, "uint8" if unsigned else dtype_of(kind.element_type))


@frozen
class _View:
    """A tensor value: a part of a tensor of the workload, or all of it.

    Attributes:
        value: The value.
        tensor: Name of the tensor.
        offsets: Where the part begins, in each dimension of the tensor.
        strides: Distances of its elements, in each dimension of the tensor.
        kept: The tensor's dimension that each dimension of the value is; others are dropped.
    """

    value: Any
    tensor: str
    offsets: tuple[int, ...]
    strides: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it begins with the tensor and leaves out nothing between its elements."""
        whole = len(self.kept) == len(self.offsets)
        return whole and not any(self.offsets) and all(stride == 1 for stride in self.strides)


class _ProgramReader:
    """Reads the operations of a function in order.

    Args:
        unsigned: The tensors of unsigned bytes.
    """

    def __init__(self, unsigned: Sequence[Any]) -> None:
        self._unsigned = unsigned
        self.inputs: list[Tensor] = []
        self.stages: list[Stage] = []
        self.outputs: list[str] = []
        self._views: list[_View] = []

    def read(self, operation: Any) -> None:
        """Read one operation.

        Raises:
            Unsupported: it cannot be expressed.
        """
        if operation.name == _INPUT:
            tensor = self._tensor(input_name(len(self.inputs)), operation.results[0])
            self.inputs.append(tensor)
            self._name(operation.results[0], tensor)
        elif operation.name == _OUTPUT:
            self.outputs.append(self._view(operation.operands[0]).tensor)
        elif operation.name == "tensor.extract_slice":
            self._slice(operation)
        elif STAGE in operation.attributes:
            is_pad = operation.name == "tensor.pad"
            stage = self._pad(operation) if is_pad else self._generic(operation)
            self.stages.append(stage)
            # Of the two results of a scan the second is all of it.
            self._name(list(operation.results)[-1], stage.output)

    def _tensor(self, name: str, value: Any) -> Tensor:
        return tensor_of(name, value.type, unsigned=value in self._unsigned)

    def _name(self, value: Any, tensor: Tensor) -> None:
        rank = len(tensor.shape)
        self._views.append(_View(value, tensor.name, (0,) * rank, (1,) * rank, tuple(range(rank))))

    def _view(self, value: Any) -> _View:
        for view in self._views:
            if view.value == value:
                return view
        raise Unsupported("it reads a tensor that no operation before it computes")

    def _slice(self, operation: Any) -> None:
        sizes = list(operation.attributes["static_sizes"])
        source = self._view(operation.operands[0])
        offsets = list(operation.attributes["static_offsets"])
        steps = list(operation.attributes["static_strides"])
        shape = operation.operands[0].type.shape
        for first, size, step, extent in zip(offsets, sizes, steps, shape, strict=True):
            last = first + (size - 1) * step
            if min(first, last) < 0 or max(first, last) >= extent:
                raise Unsupported(f"it reads from {first} to {last}, of {extent} elements")
        begins, strides = list(source.offsets), list(source.strides)
        for dimension, offset, step in zip(source.kept, offsets, steps, strict=True):
            begins[dimension] += offset * strides[dimension]
            strides[dimension] *= step
        kept = tuple(
            source.kept[place] for place in kept_dimensions(sizes, operation.results[0].type.shape)
        )
        view = _View(operation.results[0], source.tensor, tuple(begins), tuple(strides), kept)
        self._views.append(view)

    def _extracted(
        self, axes: Sequence[Axis], value: Any, indices: Sequence[ScalarExpr]
    ) -> Load | Gather:
        """What the body of an operation over ``axes`` reads of a tensor at indices of its own."""
        extents = {axis.name: axis.extent for axis in axes}
        view = self._view(value)
        places: list[IntExpr] = []
        for position, (index, extent) in enumerate(zip(indices, value.type.shape, strict=True)):
            if not isinstance(index, IndexValue):
                continue
            place = simplify_index(index.index, extents)
            low, high = index_bounds(place, extents)
            if low < 0 or high >= extent:
                raise Unsupported(
                    f"index {position} of its read of {view.tensor!r} runs from {low} to {high}, "
                    f"of {extent} elements"
                )
            places.append(place)
        if len(places) == len(indices):
            return self._load(value, places)
        if not view.is_whole:
            raise Unsupported(f"it reads a part of {view.tensor!r} where data says")
        return Gather(view.tensor, tuple(indices))

    def _load(self, value: Any, indices: Sequence[IntExpr]) -> Load:
        view = self._view(value)
        places: list[IntExpr] = [const(begin) for begin in view.offsets]
        for dimension, index in zip(view.kept, indices, strict=True):
            places[dimension] = index * view.strides[dimension] + view.offsets[dimension]
        return Load(view.tensor, tuple(places))

    def _pad(self, operation: Any) -> Stage:
        """A select between the tensor and the constant, by the position."""
        output = self._tensor(str(operation.attributes[STAGE].value), operation.results[0])
        source = operation.operands[0]
        low = [int(extent) for extent in operation.attributes["static_low"]]
        axes = _axes(output.shape, ())
        inside: ScalarExpr | None = None
        for axis, before, extent in zip(axes, low, source.type.shape, strict=True):
            bounds = []
            if before > 0:
                bounds.append(Binary("ge", IndexValue(var(axis.name)), IndexValue(const(before))))
            if before + extent < axis.extent:
                end = IndexValue(const(before + extent))
                bounds.append(Binary("lt", IndexValue(var(axis.name)), end))
            for bound in bounds:
                inside = bound if inside is None else Binary("and", inside, bound)
        indices = [var(axis.name) - before for axis, before in zip(axes, low, strict=True)]
        body: ScalarExpr = self._load(source, indices)
        if inside is not None:
            body = Select(inside, body, self._padding(operation))
        return Stage(output, axes, body)

    def _padding(self, operation: Any) -> ScalarExpr:
        yielded = list(operation.regions[0].blocks[0].operations)[-1].operation.operands[0]
        reader = BodyReader((), (), partial(self._extracted, ()), self._is_unsigned)
        reader.stores_unsigned = operation.results[0] in self._unsigned
        return reader.scalar(yielded)

    def _is_unsigned(self, tensor: str) -> bool:
        """Whether a tensor holds unsigned bytes."""
        return any(view.tensor == tensor and view.value in self._unsigned for view in self._views)

    def _generic(self, operation: Any) -> Stage:
        outputs = list(operation.results)
        output = self._tensor(str(operation.attributes[STAGE].value), outputs[-1])
        maps = [item.value for item in operation.attributes["indexing_maps"]]
        operands = list(operation.operands)
        extents = _extents(maps, operands)
        rank = len(output.shape)
        axes = _axes(extents[:rank], extents[rank:])
        if len(outputs) > 1:
            axes = _with_scan(axes, operation.attributes["iterator_types"])
        dimensions = [var(axis.name) for axis in axes]
        body = operation.regions[0].blocks[0]
        arguments = []
        for value, item, argument in zip(
            operands[: -len(outputs)], maps, body.arguments, strict=False
        ):
            if any(True for _ in argument.uses):
                indices = [index_of_map(result, dimensions) for result in item.results]
                arguments.append((argument, self._load(value, indices)))
        names = [axis.name for axis in axes]
        reader = BodyReader(names, arguments, partial(self._extracted, axes), self._is_unsigned)
        reader.stores_unsigned = output.dtype == "uint8"
        if len(outputs) > 1:
            combiner, value = scan_of(operation)
            return Stage(output, axes, reader.scalar(value), combiner)
        if len(extents) == rank:
            yielded = list(body.operations)[-1].operation.operands[0]
            return Stage(output, axes, reader.scalar(yielded))
        combiner, _, value = combination(body)
        return Stage(output, axes, reader.scalar(value), combiner)


def _axes(spatial: Sequence[int], reduced: Sequence[int]) -> tuple[Axis, ...]:
    kinds = ["spatial"] * len(spatial) + ["reduce"] * len(reduced)
    extents = (*spatial, *reduced)
    return tuple(
        Axis(f"d{position}", int(extent), kind)
        for position, (extent, kind) in enumerate(zip(extents, kinds, strict=True))
    )


def _with_scan(axes: Sequence[Axis], kinds: Sequence[Any]) -> tuple[Axis, ...]:
    """Axes, of which the one that is scanned along is that of the iterator that reduces."""
    return tuple(
        evolve(axis, kind="scan") if "reduction" in str(kind) else axis
        for axis, kind in zip(axes, kinds, strict=True)
    )


def _extents(maps: Sequence[Any], operands: Sequence[Any]) -> list[int]:
    """How often each iterator runs: the extent of a dimension that it alone indexes."""
    found: dict[int, int] = {}
    for item, value in zip(maps, operands, strict=True):
        for result, extent in zip(item.results, value.type.shape, strict=True):
            if type(result).__name__ == "AffineDimExpr":
                found[result.position] = int(extent)
    return [found[position] for position in range(maps[-1].n_dims)]
