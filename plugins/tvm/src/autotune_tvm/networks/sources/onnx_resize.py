"""Nodes of ONNX that resize, in the forms that TVM lacks or reads otherwise.

TVM resizes up to three axes behind two others to sizes. What else there is of ``Resize`` and
``Upsample``, such as smoothing, scales that give no whole sizes, or other axes, becomes reads of
single elements, sums of them with weights, or products with a matrix, one axis after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from autotune.errors import UnsupportedWorkload
from autotune.networks.readers.resize_weights import (
    COORDINATES,
    ROUNDINGS,
    AxisResize,
    Interpolation,
)
from autotune_tvm.networks.sources.onnx_nodes import (
    Array,
    KnownTensors,
    NodeWriter,
    replace_nodes,
)

__all__ = ["write_out_resizes"]

_KINDS = ("Resize", "Upsample")
_MODES = ("nearest", "linear", "cubic")
_POLICIES = ("stretch", "not_larger", "not_smaller")
_CROPS = "tf_crop_and_resize"
_FIRST_WITH_SIZES = 11
"""Before this opset elements are those in front, and there are scales only."""
_MOST_TAPS = 4
"""More elements with weights than these are a product with a matrix."""


def write_out_resizes(model: Any, shapes: Mapping[str, Sequence[int]]) -> Any:
    """A model that resizes only as TVM does; the same one where it already is one.

    Args:
        model: The ``ModelProto``; it is not changed.
        shapes: The lengths of the axes of each input, by its name.

    Raises:
        UnsupportedWorkload: a node has a form that cannot be expressed; names it.
    """

    def write(node: Any, known: KnownTensors, writer: NodeWriter) -> bool:
        resize = _Node(node, known).resize()
        if resize is None or (resize.is_plain and resize.is_known_to_tvm):
            return False
        if resize.is_known_to_tvm:
            resize.write_plain(writer)
        else:
            resize.write_out(writer)
        return True

    return replace_nodes(model, shapes, _KINDS, "resized", write)


@frozen(eq=False)
class _Resize:
    """What a node does.

    Attributes:
        data: Name of what is resized.
        output: Name of the result.
        kind: Type of the elements.
        shape: Before.
        axes: How axes change, by number; others stay as they are.
        how: How elements are interpolated.
        has_sizes: Whether nodes of this opset may have sizes.
        is_plain: Whether the node says so in a way that TVM reads.
    """

    data: str
    output: str
    kind: np.dtype[Any]
    shape: tuple[int, ...]
    axes: Mapping[int, AxisResize]
    how: Interpolation
    has_sizes: bool
    is_plain: bool

    @property
    def interpolates_integers(self) -> bool:
        """Whether results have to be rounded, which the specification leaves open."""
        is_float = self.kind.kind == "f" or self.kind.name == "bfloat16"
        return self.how.mode != "nearest" and not is_float

    @property
    def is_known_to_tvm(self) -> bool:
        """Whether TVM computes the same, given sizes."""
        how = self.how
        if not self.has_sizes or how.smooth or how.coordinates == "half_pixel_symmetric":
            return False
        # TVM interpolates in single precision.
        if how.mode != "nearest" and self.kind.itemsize > np.dtype(np.float32).itemsize:
            return False
        return 3 <= len(self.shape) <= 5 and all(
            number >= 2 and self._is_whole(axis) for number, axis in self.axes.items()
        )

    def _is_whole(self, axis: AxisResize) -> bool:
        """Whether a scale is the ratio of lengths, which TVM takes in its place."""
        if self.how.coordinates == "align_corners" and axis.to == 1:
            return False  # TVM divides by zero
        exact = axis.scale * axis.extent
        # Which element is the nearest one may hang on the last digit.
        return exact == axis.to if self.how.mode == "nearest" else math.isclose(exact, axis.to)

    def write_plain(self, writer: NodeWriter) -> None:
        """The same with sizes of all axes."""
        how = self.how
        sizes = [axis.to if axis else extent for extent, axis in self._each()]
        region = ""
        if how.coordinates == _CROPS:
            regions = [axis.region if axis else (0.0, 1.0) for _, axis in self._each()]
            region = writer.constant(np.array(regions, np.float32).T.reshape(-1))
        resized = writer.op(
            "Resize",
            self.data,
            region,
            "",
            writer.constant(np.array(sizes, np.int64)),
            mode=how.mode,
            coordinate_transformation_mode=how.coordinates,
            nearest_mode=how.rounding,
            cubic_coeff_a=how.coefficient,
            exclude_outside=int(how.leave_out),
            extrapolation_value=how.outside,
        )
        writer.rename(resized, self.output)

    def _each(self) -> list[tuple[int, AxisResize | None]]:
        return [(extent, self.axes.get(number)) for number, extent in enumerate(self.shape)]

    def write_out(self, writer: NodeWriter) -> None:
        """One axis after the other, those first that become shorter."""
        from onnx import helper

        current, is_half = self.data, self.kind.itemsize < np.dtype(np.float32).itemsize
        in_single = self.how.mode != "nearest" and is_half
        kind = np.dtype(np.float32) if in_single else self.kind
        if in_single:
            current = writer.op("Cast", current, to=helper.np_dtype_to_tensor_dtype(kind))
        for number, axis in sorted(
            self.axes.items(), key=lambda item: item[1].to / item[1].extent
        ):
            current = _written_axis(writer, current, number, len(self.shape), axis, self.how, kind)
        if in_single:
            current = writer.op("Cast", current, to=helper.np_dtype_to_tensor_dtype(self.kind))
        writer.rename(current, self.output)


def _written_axis(
    writer: NodeWriter,
    data: str,
    number: int,
    rank: int,
    axis: AxisResize,
    how: Interpolation,
    kind: np.dtype[Any],
) -> str:
    """The data with one axis resized."""
    matrix, added = how.weights(axis)
    count = int((matrix != 0).sum(1).max())
    order = np.argsort(matrix == 0, axis=1, kind="stable")[:, : max(count, 1)]
    weights = np.take_along_axis(matrix, order, 1)
    if count == 1 and (weights == 1).all():
        return writer.op("Gather", data, writer.constant(order[:, 0]), axis=number)
    column = (-1,) + (1,) * (rank - number - 1)
    if count <= _MOST_TAPS:
        result = ""
        for places, factors in zip(order.T, weights.T, strict=True):
            part = writer.op("Gather", data, writer.constant(places), axis=number)
            factor = writer.constant(factors.astype(kind).reshape(column))
            part = writer.op("Mul", part, factor)
            result = writer.op("Add", result, part) if result else part
    else:
        result = _product(writer, data, number, rank, matrix.astype(kind))
    if added.any():
        result = writer.op("Add", result, writer.constant(added.astype(kind).reshape(column)))
    return result


def _product(writer: NodeWriter, data: str, number: int, rank: int, matrix: Array) -> str:
    """A matrix ``[to, extent]`` times the data along an axis."""
    if number == rank - 2:
        return writer.op("MatMul", writer.constant(matrix), data)
    order = [*(it for it in range(rank) if it != number), number]
    moved = data if number == rank - 1 else writer.transpose(data, order)
    result = writer.op("MatMul", moved, writer.constant(np.ascontiguousarray(matrix.T)))
    back = [order.index(it) for it in range(rank)]
    return result if number == rank - 1 else writer.transpose(result, back)


class _Node:
    """Reads a node."""

    def __init__(self, node: Any, known: KnownTensors) -> None:
        from onnx import helper

        self._node = node
        self._known = known
        self._options = {it.name: helper.get_attribute_value(it) for it in node.attribute}
        self._has_sizes = node.op_type == "Resize" and known.opset >= _FIRST_WITH_SIZES

    def resize(self) -> _Resize | None:
        """What it does; None where that is known only when it runs.

        Raises:
            UnsupportedWorkload: it does what cannot be expressed.
        """
        from onnx import helper

        data = self._node.input[0]
        shape, element = self._known.types.get(data, ((), 0))
        how = self._interpolation()
        changes = self._changes(shape) if shape and all(shape) else None
        regions = self._regions(len(shape), how)
        if changes is None or regions is None:
            return None
        axes = {
            number: AxisResize(shape[number], to, scale, regions[number])
            for number, (to, scale) in changes.items()
            if (to, regions[number]) != (shape[number], (0.0, 1.0)) or not math.isclose(scale, 1)
        }
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(element))
        output = self._node.output[0]
        is_plain, has_sizes = self._is_plain(), self._has_sizes
        made = _Resize(data, output, kind, shape, axes, how, has_sizes, is_plain)
        if made.interpolates_integers and not made.is_known_to_tvm:
            raise self._refused(f"it interpolates elements of {kind}; cast them to float32 first")
        return made

    def _interpolation(self) -> Interpolation:
        mode = self._text("mode", "nearest")
        if not self._has_sizes:
            return Interpolation(self._one_of(mode, _MODES), "asymmetric", "floor")
        given = self._options
        coordinates = self._text("coordinate_transformation_mode", "half_pixel")
        rounding = self._text("nearest_mode", "round_prefer_floor")
        return Interpolation(
            self._one_of(mode, _MODES),
            self._one_of(coordinates, COORDINATES),
            self._one_of(rounding, ROUNDINGS),
            float(given.get("cubic_coeff_a", -0.75)),
            bool(given.get("antialias", 0)),
            bool(given.get("exclude_outside", 0)),
            float(given.get("extrapolation_value", 0.0)),
        )

    def _changes(self, shape: Sequence[int]) -> dict[int, tuple[int, float]] | None:
        """The new length and the scale of each axis that is named; None where unknown."""
        numbers = self._numbers(len(shape))
        sizes, scales = self._sizes(numbers), self._scales()
        if sizes is not None:
            ratios = [to / shape[at] for at, to in zip(numbers, sizes, strict=True)]
            policy = self._one_of(self._text("keep_aspect_ratio_policy", "stretch"), _POLICIES)
            if policy != "stretch":
                ratio = min(ratios) if policy == "not_larger" else max(ratios)
                ratios = [ratio] * len(ratios)
                sizes = [int(ratio * shape[at] + 0.5) for at in numbers]
            return dict(zip(numbers, zip(sizes, ratios, strict=True), strict=True))
        if scales is None:
            return None
        return {
            at: (int(scale * shape[at]), scale) for at, scale in zip(numbers, scales, strict=True)
        }

    def _sizes(self, numbers: Sequence[int]) -> list[int] | None:
        if not self._has_sizes or not self._input(3):
            return None
        known = self._constant(3)
        if known is not None:
            return [int(it) for it in known]
        # What is computed of the shapes of others is known as the shape of the result.
        shape, _ = self._known.types.get(self._node.output[0], ((), 0))
        is_known = shape and all(shape) and "keep_aspect_ratio_policy" not in self._options
        return [shape[at] for at in numbers] if is_known else None

    def _scales(self) -> list[float] | None:
        if "scales" in self._options:
            return [float(it) for it in self._options["scales"]]
        known = self._constant(2 if self._has_sizes else 1)
        return None if known is None or not known.size else [float(it) for it in known]

    def _regions(self, rank: int, how: Interpolation) -> list[tuple[float, float]] | None:
        """The part of each axis that is resized; None where unknown."""
        regions = [(0.0, 1.0)] * rank
        if how.coordinates != _CROPS:
            return regions
        given, numbers = self._constant(1), self._numbers(rank)
        if given is None or given.size != 2 * len(numbers):
            return None
        for at, (begin, end) in zip(numbers, given.reshape(2, -1).T, strict=True):
            regions[at] = (float(begin), float(end))
        return regions

    def _numbers(self, rank: int) -> list[int]:
        """Numbers of the axes that sizes, scales and regions are of."""
        return [int(at) % rank for at in self._options.get("axes", range(rank))]

    def _is_plain(self) -> bool:
        """Whether TVM reads the node as it is: one of scales and sizes, of all axes."""
        named = {"axes", "keep_aspect_ratio_policy"} & self._options.keys()
        empty = [known is not None and not known.size for known in map(self._constant, (2, 3))]
        return not named and not any(empty)

    def _text(self, name: str, default: str) -> str:
        value = self._options.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def _one_of(self, value: str, allowed: Sequence[str] | Mapping[str, Any]) -> str:
        if value not in allowed:
            raise self._refused(f"{value!r} is none of {', '.join(allowed)}")
        return value

    def _input(self, position: int) -> str:
        """The name of an optional input; "" where it is left out."""
        given = self._node.input
        return str(given[position]) if position < len(given) else ""

    def _constant(self, position: int) -> Array | None:
        return self._known.constants.get(self._input(position))

    def _refused(self, why: str) -> UnsupportedWorkload:
        name = self._node.name or self._node.output[0]
        return UnsupportedWorkload(f"node {name!r} ({self._node.op_type}): {why}")
