"""Reads the operations of a function, in order, as the stages of a workload."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import evolve

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import (
    Binary,
    Constant,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    const,
    var,
)
from autotune.ir.rewrites.arg_reductions import arg_reduction
from autotune.ir.rewrites.reductions import is_neutral
from autotune.ir.workloads import Axis, Stage, Tensor
from autotune_mlir.importing.generic_form import Generic, Written, scanned, torch_combiner
from autotune_mlir.importing.scalar_import import (
    BodyReader,
    Unsupported,
    combination,
    constant_of,
    defining,
    dtype_of,
    yielded,
)
from autotune_mlir.importing.tensor_values import (
    Part,
    PartAt,
    TensorValue,
    Uniform,
    Unwritten,
    View,
    combined,
    concatenated,
    covers,
    inserted,
    is_inserted_into,
    joined,
    sliced,
    split_index,
)

__all__ = ["RESHAPES", "FunctionReader", "is_number", "tensor_of"]

RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")
"""Operations of static shape that keep all elements in their order."""

_PLURAL = {"add": "sum", "mul": "product"}
# What combines two numbers, of truth values.
_LOGIC = {"max": "or", "min": "and"}


def is_number(kind: Any) -> bool:
    """Return whether a type is one of numbers, such as ``f32`` and ``index``."""
    return not hasattr(kind, "shape")


def tensor_of(name: str, kind: Any) -> Tensor:
    """A tensor of an MLIR type with a shape and an element type, or of a number.

    Args:
        name: What to call it.
        kind: The type. A number is a tensor of rank 0; that of an index is of ``int64``.

    Raises:
        Unsupported: workloads have no tensors of this type.
    """
    if is_number(kind):
        return Tensor(name, (), "int64" if str(kind) == "index" else dtype_of(kind))
    shape = tuple(int(extent) for extent in kind.shape)
    if 0 in shape:
        raise Unsupported(f"{kind} has no elements")
    return Tensor(name, shape, dtype_of(kind.element_type))


class FunctionReader:
    """Reads operations in order.

    Inputs are called after their positions, and axes after the dimensions of what a stage writes:
    ``d0`` and so on.

    Args:
        arguments: Those of the function.

    Attributes:
        inputs: A tensor for each argument.
        stages: What was read so far.
    """

    def __init__(self, arguments: Sequence[Any]) -> None:
        self.inputs: list[Tensor] = []
        self.stages: list[Stage] = []
        self._values: dict[Any, TensorValue] = {}
        self._numbers: dict[Any, Callable[[], ScalarExpr]] = {}
        for position, value in enumerate(arguments):
            tensor = tensor_of(f"arg{position}", value.type)
            self.inputs.append(tensor)
            if is_number(value.type):
                self._numbers[value] = partial(Load, tensor.name, ())
            else:
                self._values[value] = View.of(tensor)
        self._taken = {tensor.name for tensor in self.inputs}
        self._known: Mapping[str, Callable[[Any, str], None]] = {
            "arith.constant": self._constant,
            "tensor.empty": self._empty,
            "tensor.splat": self._splat,
            "tensor.pad": self._pad,
            "tensor.concat": self._concat,
            "tensor.insert_slice": self._insert,
            "tensor.extract_slice": self._slice,
            **dict.fromkeys(RESHAPES, self._reshape),
            "tm_tensor.scan": self._torch_scan,
            "linalg.generic": self._generic,
        }

    def read(self, operation: Any, name: str) -> None:
        """Read one operation; those that compute numbers are read where these are used.

        Args:
            operation: The operation.
            name: What to call its stage; "" for a name that says what it does.

        Raises:
            Unsupported: it cannot be expressed.
        """
        if operation.name in self._known:
            self._known[operation.name](operation, name)
        elif operation.name.startswith("linalg."):
            raise Unsupported("it cannot be written as linalg.generic")

    def returned(self, values: Sequence[Any]) -> tuple[str, ...]:
        """Names of the stages that a function returns, another one for each value.

        Raises:
            Unsupported: nothing was written to one of them.
        """
        outputs: list[str] = []
        for value in values:
            known = self._value(value)
            is_stage = isinstance(known, View) and known.is_whole
            name = known.tensor.name if isinstance(known, View) else ""
            if not is_stage or name in outputs or name in {it.name for it in self.inputs}:
                stem = "constant" if isinstance(known, Uniform) else "copy"
                name = self._elementwise(value, stem, known.element).tensor.name
                self._values[value] = known
            outputs.append(name)
        return tuple(outputs)

    # Stages

    def _value(self, value: Any) -> TensorValue:
        if value not in self._values:
            raise Unsupported("it reads a tensor that no operation before it computes")
        return self._values[value]

    def _unique(self, stem: str) -> str:
        result, count = stem, 1
        while result in self._taken:
            result, count = f"{stem}_{count}", count + 1
        self._taken.add(result)
        return result

    def _stage(
        self,
        result: Any,
        stem: str,
        axes: Sequence[Axis],
        body: ScalarExpr,
        combiner: str | None = None,
    ) -> View:
        """Add a stage that computes a value of the function."""
        output = tensor_of(self._unique(stem), result.type)
        self.stages.append(Stage(output, tuple(axes), body, combiner))
        view = self._values[result] = View.of(output)
        return view

    def _elementwise(
        self, result: Any, stem: str, element: Callable[[Sequence[ScalarExpr]], ScalarExpr]
    ) -> View:
        """Add a stage whose elements are computed of their positions."""
        axes = _axes(result.type.shape)
        places = [IndexValue(var(axis.name)) for axis in axes]
        return self._stage(result, stem, axes, element(places))

    def _extracted(
        self, extents: Mapping[str, int], value: Any, indices: Sequence[ScalarExpr]
    ) -> ScalarExpr:
        return self._value(value).element(indices, extents)

    def _number(self, value: Any) -> ScalarExpr:
        """A number of the function."""
        return BodyReader((), self._numbers, partial(self._extracted, {})).scalar(value)

    # Operations

    def _constant(self, operation: Any, name: str) -> None:
        (result,) = operation.results
        if is_number(result.type):
            return
        attribute = operation.attributes["value"]
        if not getattr(attribute, "is_splat", False):
            raise Unsupported(
                f"a constant of type {result.type} has many values; "
                "make it an argument of the function"
            )
        dtype, value = dtype_of(result.type.element_type), attribute.get_splat_value().value
        number = Constant(bool(value) if dtype == "bool" else value, dtype)
        self._values[result] = Uniform(number)

    def _empty(self, operation: Any, name: str) -> None:
        self._values[operation.results[0]] = Unwritten()

    def _splat(self, operation: Any, name: str) -> None:
        number = self._number(operation.operands[0])
        self._elementwise(operation.results[0], name or "splat", lambda _: number)

    def _pad(self, operation: Any, name: str) -> None:
        """A select between the tensor and the constant, by the position."""
        if len(operation.operands) != 1:
            raise Unsupported("its padding is dynamic")
        margin = defining(yielded(operation.regions[0].blocks[0])[0])
        if margin is None or margin.name != "arith.constant":
            raise Unsupported("it pads with something else than a constant")
        source, result = operation.operands[0], operation.results[0]
        low = [int(extent) for extent in operation.attributes["static_low"]]
        sizes = tuple(int(extent) for extent in source.type.shape)
        part = Part(source, tuple(low), sizes, (1,) * len(low), tuple(range(len(low))))

        def element(places: Sequence[ScalarExpr]) -> ScalarExpr:
            indices = [combined("sub", it, begin) for it, begin in zip(places, low, strict=True)]
            inside = PartAt(part, places, result.type.shape, self._number).inside()
            body = self._value(source).element(indices)
            return body if inside is None else Select(inside, body, constant_of(margin))

        self._elementwise(result, name, element)

    def _concat(self, operation: Any, name: str) -> None:
        self._join(operation.results[0], name or "concat", None, concatenated(operation))

    def _insert(self, operation: Any, name: str) -> None:
        """With what is inserted before, where nothing else reads that."""
        if is_inserted_into(operation):
            return
        base, parts = inserted(operation)
        known: TensorValue | None = self._value(base)
        if isinstance(known, Unwritten):
            if not covers(parts, operation.results[0].type.shape):
                raise Unsupported(
                    "it leaves elements of a tensor that was never written (tensor.empty)"
                )
            known = None
        default = "concat" if known is None else "insert"
        self._join(operation.results[0], name or default, known, parts)

    def _join(
        self, result: Any, stem: str, base: TensorValue | None, parts: Sequence[Part]
    ) -> None:
        shape = tuple(int(extent) for extent in result.type.shape)
        extents = {axis.name: axis.extent for axis in _axes(shape)}

        def element(places: Sequence[ScalarExpr]) -> ScalarExpr:
            return joined(
                parts,
                None if base is None else base.element(places),
                places,
                shape,
                partial(self._extracted, extents),
                self._number,
            )

        self._elementwise(result, stem, element)

    def _slice(self, operation: Any, name: str) -> None:
        """A view; a stage where it begins at a place that a number says."""
        part, result = sliced(operation), operation.results[0]
        source, shape = self._value(part.value), result.type.shape
        if part.is_static:
            if isinstance(source, View):
                source = source.part(part.offsets, part.sizes, part.strides, shape)
            self._values[result] = source
            return

        def element(places: Sequence[ScalarExpr]) -> ScalarExpr:
            indices = [
                IndexValue(const(it)) if isinstance(it, int) else self._number(it)
                for it in part.offsets
            ]
            for own, place in zip(part.kept, places, strict=True):
                step = combined("mul", place, part.strides[own])
                indices[own] = combined("add", step, indices[own])
            return source.element(indices, {axis.name: axis.extent for axis in _axes(shape)})

        self._elementwise(result, name or "slice", element)

    def _reshape(self, operation: Any, name: str) -> None:
        """A view where only dimensions of extent 1 come or go; else a stage."""
        source, result = self._value(operation.operands[0]), operation.results[0]
        before = [int(extent) for extent in operation.operands[0].type.shape]
        after = [int(extent) for extent in result.type.shape]
        if not isinstance(source, View):
            self._values[result] = source
            return
        if [it for it in before if it != 1] == [it for it in after if it != 1]:
            self._values[result] = source.with_units(after)
            return
        groups = [
            [int(it.value) for it in group] for group in operation.attributes["reassociation"]
        ]
        extents = {axis.name: axis.extent for axis in _axes(after)}

        def element(places: Sequence[ScalarExpr]) -> ScalarExpr:
            dimensions = [var(axis.name) for axis in _axes(after)]
            indices = []
            for number, group in enumerate(groups):
                if operation.name == "tensor.expand_shape":
                    inner = [math.prod(after[it + 1 : group[-1] + 1]) for it in group]
                    terms = zip(group, inner, strict=True)
                    kept = (dimensions[it] * size for it, size in terms if after[it] != 1)
                    indices.append(sum(kept, const(0)))
                else:
                    indices += split_index(dimensions[number], [before[it] for it in group])
            return source.element([IndexValue(it) for it in indices], extents)

        self._elementwise(result, name or "reshape", element)

    def _torch_scan(self, operation: Any, name: str) -> None:
        combiner = torch_combiner(operation)
        source, _, start = operation.operands
        result = operation.results[0]
        axes = _scan_axes(result.type.shape, int(operation.attributes["dimension"].value))
        places = [IndexValue(var(axis.name)) for axis in axes]
        self._stage(result, name or "scan", axes, self._value(source).element(places), combiner)
        self._check_start(self.stages[-1], start)

    def _check_start(self, stage: Stage, start: Any) -> None:
        known = self._value(start)
        if not isinstance(known, Uniform) or not is_neutral(stage, known.number):
            raise Unsupported("it does not begin with the neutral element of what combines")

    def _generic(self, operation: Any, name: str) -> None:
        generic = Generic.of(operation)
        number = None if generic.passes_on is None else self._uniform(generic.passes_on)
        results = list(operation.results)
        if number is not None:
            self._values[results[0]] = Uniform(number)
        elif generic.is_scan:
            self._scan(generic, name)
        elif all(generic.dependences(it) <= {it} for it in range(len(results))):
            for place, result in enumerate(results):
                if any(True for _ in result.uses):
                    self._single(generic, place, name)
        else:
            self._arg_reduction(generic)

    def _uniform(self, value: Any) -> Constant | None:
        """The constant that a value is everywhere, if it is one."""
        if is_number(value.type):
            producer = defining(value)
            is_known = producer is not None and producer.name == "arith.constant"
            return constant_of(producer) if is_known else None
        known = self._values.get(value)
        return known.number if isinstance(known, Uniform) else None

    def _reader(
        self, generic: Generic, written: Written, before: Mapping[Any, Callable[[], ScalarExpr]]
    ) -> BodyReader:
        """Reader of the body of an operation.

        Args:
            generic: The operation.
            written: The iteration space of the result that is read.
            before: What the arguments are that hold what was there.
        """
        extents = written.extents
        arguments = {**self._numbers, **before}
        for value, item, argument in zip(
            generic.inputs, generic.maps, generic.body.arguments, strict=False
        ):
            if is_number(value.type):
                arguments[argument] = partial(self._number, value)
            else:
                indices = written.indices(item)
                arguments[argument] = partial(self._extracted, extents, value, indices)
        return BodyReader(written.iterators, arguments, partial(self._extracted, extents))

    def _single(self, generic: Generic, place: int, name: str) -> None:
        """Read a result that depends on no other one."""
        written, result = generic.written(place), generic.operation.results[place]
        places = [IndexValue(it) for it in written.places]
        value, before = generic.yielded[place], generic.accumulators[place]
        old = generic.outputs[place]
        if not any(generic.reduces):
            known = {before: partial(self._extracted, written.extents, old, places)}
            body = self._reader(generic, written, known).scalar(value)
            self._stage(result, name or _name_of(value), written.axes, body)
            return
        combiner, terms = combination(value, before)
        reader = self._reader(generic, written, {})
        left, *right = (reader.scalar(term) for term in terms)
        body = Binary("mul", left, right[0]) if right else left
        start = self._value(old)
        stem = name or _PLURAL.get(combiner, combiner)
        made = self._stage(result, stem, written.axes, body, combiner)
        if isinstance(start, Uniform) and is_neutral(self.stages[-1], start.number):
            return
        op = _LOGIC[combiner] if made.tensor.dtype == "bool" else combiner
        self._elementwise(
            result,
            f"{made.tensor.name}_accumulated",
            lambda own: Binary(op, start.element(own), made.element(own)),
        )

    def _scan(self, generic: Generic, name: str) -> None:
        combiner, value = scanned(generic)
        shape = generic.outputs[1].type.shape
        axes = _scan_axes(shape, generic.reduces.index(True))
        written = Written(axes, tuple(var(axis.name) for axis in axes))
        body = self._reader(generic, written, {}).scalar(value)
        # Of the two results of a scan the second is all of it.
        self._stage(generic.operation.results[1], name or "scan", axes, body, combiner)
        self._check_start(self.stages[-1], generic.outputs[0])

    def _arg_reduction(self, generic: Generic) -> None:
        """An extreme value and its index, of which the value starts as neutral."""
        results = list(generic.operation.results)
        if len(results) != 2:
            raise Unsupported(f"it has {len(results)} results that depend on one another")
        first, second = (generic.written(place) for place in range(2))
        if first != second:
            raise Unsupported("its results that depend on one another are indexed differently")
        stems = ["extreme" if generic.dependences(it) == {it} else "index" for it in range(2)]
        outputs = [
            tensor_of(self._unique(stem), result.type)
            for stem, result in zip(stems, results, strict=True)
        ]
        before = [Load(output.name, first.places) for output in outputs]
        known = {
            argument: partial(Load, it.tensor, it.indices)
            for argument, it in zip(generic.accumulators, before, strict=True)
        }
        reader = self._reader(generic, first, known)
        updates = [reader.scalar(value) for value in generic.yielded]
        tensors = {it.name: it for it in (*self.inputs, *(it.output for it in self.stages))}
        try:
            made = arg_reduction(outputs, first.axes, updates, before, tensors)
        except UnsupportedWorkload as reason:
            raise Unsupported(str(reason)) from None
        place = outputs.index(made[0].output)
        self._check_start(made[0], generic.outputs[place])
        for number, stage in zip((place, 1 - place), made, strict=True):
            if number == place or any(True for _ in results[number].uses):
                self.stages.append(stage)
                self._values[results[number]] = View.of(stage.output)


def _axes(shape: Sequence[int]) -> tuple[Axis, ...]:
    return tuple(Axis(f"d{position}", int(extent)) for position, extent in enumerate(shape))


def _scan_axes(shape: Sequence[int], along: int) -> tuple[Axis, ...]:
    """Axes of a shape, of which one is scanned along."""
    return tuple(
        evolve(axis, kind="scan") if number == along else axis
        for number, axis in enumerate(_axes(shape))
    )


def _name_of(value: Any) -> str:
    """A name for a stage by the operation that computes its elements."""
    producer = defining(value)
    if producer is None:
        return "copy"
    name = str(producer.name.rpartition(".")[2])
    return name[:-1] if name[:-1] in ("add", "sub", "mul", "div", "neg") else name
