"""Makes operations of linalg at the current insertion point, and tells constants from others."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

from autotune.ir.element_types import element_type
from autotune.ir.expressions import Constant
from autotune.ir.workloads import Axis, Stage, Tensor
from autotune_mlir.bindings import Bindings
from autotune_mlir.emit import INIT, STAGE
from autotune_mlir.importing.scalar_import import defining, dtype_of

__all__ = ["Builder", "is_identity", "spreads_a_constant"]


class Builder:
    """Makes operations.

    Args:
        mlir: The bindings; their context is the current one, and so is an insertion point.
    """

    def __init__(self, mlir: Bindings) -> None:
        self._ir = mlir.ir
        self._linalg = importlib.import_module(f"{mlir.root}.dialects.linalg")

    def scalar(self, attribute: Any, element: Any) -> Any:
        """A constant of type ``element``."""
        attributes = {"value": attribute}
        create = self._ir.Operation.create
        return create("arith.constant", results=[element], attributes=attributes).results[0]

    def extracted(self, value: Any, place: Any) -> Any:
        """The element of a tensor that the body of a ``linalg.generic`` reads by itself.

        Args:
            value: The tensor.
            place: The map of the generic's iterators to indices.
        """
        ir = self._ir
        index = ir.IndexType.get()
        whole = ir.IntegerType.get_signless(64)
        iterators = [
            ir.Operation.create(
                "linalg.index",
                results=[index],
                attributes={"dim": ir.IntegerAttr.get(whole, position)},
            ).results[0]
            for position in range(place.n_dims)
        ]
        indices = [
            ir.Operation.create(
                "affine.apply",
                results=[index],
                operands=iterators,
                attributes={
                    "map": ir.AffineMapAttr.get(ir.AffineMap.get(place.n_dims, 0, [expression]))
                },
            ).results[0]
            for expression in place.results
        ]
        return ir.Operation.create(
            "tensor.extract", results=[value.type.element_type], operands=[value, *indices]
        ).results[0]

    def empty(self, kind: Any) -> Any:
        """A tensor of type ``kind`` without values."""
        return self._ir.Operation.create("tensor.empty", results=[kind]).results[0]

    def reshaped(self, kind: str, value: Any, result: Any, split: Sequence[int]) -> Any:
        """A view of ``value`` in which some dimensions are two, or of which pairs are one.

        Args:
            kind: ``tensor.expand_shape``, ``tensor.collapse_shape``, or that of memrefs.
            value: A tensor or a buffer of static shape.
            result: Type of the view.
            split: The dimensions that are two, counted where they are one.
        """
        ir = self._ir
        is_expanded = kind.endswith("expand_shape")
        count = (value.type if is_expanded else result).rank
        groups, first = [], 0
        for place in range(count):
            width = 1 + (place in split)
            groups.append(list(range(first, first + width)))
            first += width
        attributes = {"reassociation": ir.Attribute.parse(str(groups))}
        if is_expanded:
            extents = list(result.shape)
            attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(extents)
        create = ir.Operation.create
        return create(kind, [result], [value], attributes).results[0]

    def reversed(self, buffer: Any, places: Sequence[int]) -> Any:
        """A view of ``buffer``, of static shape in row-major order, with dimensions reversed.

        Args:
            buffer: The buffer.
            places: The dimensions.
        """
        ir, shape = self._ir, list(buffer.type.shape)
        strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
        offset = sum((shape[place] - 1) * strides[place] for place in places)
        for place in places:
            strides[place] *= -1
        layout = ir.StridedLayoutAttr.get(offset, strides)
        kind = ir.MemRefType.get(shape, buffer.type.element_type, layout)
        attributes = {
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
            "static_offsets": ir.DenseI64ArrayAttr.get([offset]),
            "static_sizes": ir.DenseI64ArrayAttr.get(shape),
            "static_strides": ir.DenseI64ArrayAttr.get(strides),
        }
        create = ir.Operation.create
        return create("memref.reinterpret_cast", [kind], [buffer], attributes).results[0]

    def filled(self, kind: Any, attribute: Any, stage: str) -> Any:
        """A tensor that holds a number everywhere, to initialise ``stage``."""
        value = self.scalar(attribute, kind.element_type)
        result = self._linalg.fill(value, outs=[self.empty(kind)])
        result.owner.attributes[INIT] = self._ir.StringAttr.get(stage)
        return result

    def generic(
        self, name: str, inputs: Sequence[Any], maps: Sequence[Any], output: Any, reduced: int = 0
    ) -> Any:
        """A ``linalg.generic`` that lacks its body.

        Args:
            name: Of the stage.
            inputs: Tensors.
            maps: Of the inputs and, last, of the output.
            output: What it writes to.
            reduced: How many iterators reduce, the last ones.
        """
        ir = self._ir
        kinds = ["parallel"] * (maps[-1].n_dims - reduced) + ["reduction"] * reduced
        iterators = [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]
        attributes = {
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(item) for item in maps]),
            "iterator_types": ir.ArrayAttr.get(iterators),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
            STAGE: ir.StringAttr.get(name),
        }
        operands = [*inputs, output]
        create = ir.Operation.create
        return create("linalg.generic", [output.type], operands, attributes, regions=1)

    def pointwise(self, name: str, inputs: Sequence[Any], kind: Any, how: str | None) -> Any:
        """A stage of type ``kind`` from numbers and tensors of its shape.

        Args:
            name: Of the stage.
            inputs: One value, which is copied, or two that are combined: tensors of type
                ``kind``, and numbers.
            kind: Type of the result.
            how: Name of the operation that combines two numbers.
        """
        ir = self._ir
        tensors = [value for value in inputs if value.type == kind]
        maps = [ir.AffineMap.get_identity(kind.rank)] * (len(tensors) + 1)
        stage = self.generic(name, tensors, maps, self.empty(kind))
        body = stage.regions[0].blocks.append(*[kind.element_type] * len(maps))
        arguments = iter(list(body.arguments))
        values = [next(arguments) if value.type == kind else value for value in inputs]
        with ir.InsertionPoint(body):
            if how is not None:
                values = [ir.Operation.create(how, [kind.element_type], values).results[0]]
            ir.Operation.create("linalg.yield", operands=values)
        return stage.results[0]

    def constant_of(self, value: Any) -> Any | None:
        """The attribute of the number that ``value`` is everywhere; None where it is no constant.

        Args:
            value: A number or a tensor.
        """
        operation = defining(value)
        if operation is None:
            return None
        if operation.name == "arith.constant":
            attribute = operation.attributes["value"]
            if not isinstance(value.type, self._ir.RankedTensorType):
                return attribute
            splat = isinstance(attribute, self._ir.DenseElementsAttr) and attribute.is_splat
            return attribute.get_splat_value() if splat else None
        if spreads_a_constant(operation):
            return self.constant_of(operation.operands[0])
        return None

    def identity(self, combiner: str, element: Any) -> Any:
        """The neutral element of a combiner, as an attribute of type ``element``."""
        dtype = dtype_of(element)
        value = _neutral(combiner, dtype)
        if element_type(dtype).is_float:
            return self._ir.FloatAttr.get(element, float(value))
        return self._ir.IntegerAttr.get(element, value)


def spreads_a_constant(operation: Any) -> bool:
    """Whether an operation only fills a tensor with one number that is a constant."""
    if operation.name not in ("linalg.fill", "linalg.generic") or len(operation.operands) != 2:
        return False
    producer = defining(operation.operands[0])
    if producer is None or producer.name != "arith.constant":
        return False
    body = operation.regions[0].blocks[0]
    yielded = list(list(body.operations)[-1].operation.operands)
    return yielded == [body.arguments[0]]


def is_identity(combiner: str, attribute: Any, element: Any) -> bool:
    """Whether a number is the neutral element of a combiner.

    For max and min so are the finite limits of a type, which many programs write for it, and NaN,
    which the operations that prefer numbers to NaN start from.
    """
    dtype = dtype_of(element)
    value = bool(attribute.value) if dtype == "bool" else attribute.value
    neutral = _neutral(combiner, dtype)
    if value == neutral:
        return True
    if not isinstance(neutral, float) or not math.isinf(neutral):
        return False
    limit = element_type(dtype).largest
    return math.isnan(value) or bool(value == math.copysign(limit, neutral))


def _neutral(combiner: str, dtype: str) -> float | int:
    if dtype == "bool":
        return int(combiner == "min")
    axes = (Axis("k", 1, "reduce"),)
    return Stage(Tensor("result", (), dtype), axes, Constant(0, dtype), combiner).identity()
