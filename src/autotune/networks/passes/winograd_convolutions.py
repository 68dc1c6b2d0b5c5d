"""Convolutions computed by Winograd's tiles: three workloads in the place of one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from autotune.ir.expressions import Binary, Load, var
from autotune.ir.rewrites.permuted import Order, inverse, permuted
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.networks.graph import (
    Graph,
    Node,
    Value,
    constant,
    input_value,
    matmul,
    reshape,
    slice_axes,
)
from autotune.networks.graph.graph import results_of
from autotune.networks.graph.making import compute, program
from autotune.networks.graph.movement import padded
from autotune.networks.passes.convolutions import Convolution
from autotune.networks.passes.winograd_tiles import TAPS, Tile, along_both

__all__ = ["WORKLOADS", "TiledConvolution"]

WORKLOADS = ("winograd_input", "winograd_products", "winograd_output")
"""Names of the workloads that take the place of a convolution."""

_BLOCK = 2048
"""Weights of an element that are transformed together."""


@frozen(eq=False)
class TiledConvolution:
    """A convolution that tiles can compute, whatever the order of its axes is.

    Attributes:
        node: What computes it directly.
        data: The image.
        weights: The weights, a constant.
        data_order: Dimensions of the image: batch, height, width, channels.
        weights_order: Dimensions of the weights: height, width, channels, features.
        result_order: Dimensions of the result: batch, height, width, features.
        shape: Batch, height, width and features of the result.
        margin: Widths of the margins before height and width.
    """

    node: Node
    data: Value
    weights: Value
    data_order: Order
    weights_order: Order
    result_order: Order
    shape: tuple[int, int, int, int]
    margin: tuple[int, int]

    @staticmethod
    def of(node: Node, operands: Sequence[Value]) -> TiledConvolution | None:
        """Recognise the convolution of a node on these operands, if tiles can compute it."""
        found = Convolution.of(node, operands)
        if found is None or len(found.dimensions) != 4 or len(found.windows) != 2:
            return None
        types = {found.data.dtype, found.weights.dtype, found.stage.output.dtype, found.dtype}
        stage, (height, width) = found.stage, found.windows
        taps = [(stage.extents[it.tap], it.stride, it.dilation) for it in found.windows]
        if types != {"float32"} or taps != [(TAPS, 1, 1)] * 2 or found.is_grouped:
            return None
        results = [axis.name for axis in stage.spatial_axes]
        reduced = {axis.name for axis in stage.reduce_axes} - {height.tap, width.tap}
        features = [it for it in results if it in found.taken]
        if (len(results), len(reduced), len(features)) != (4, 1, 1):
            return None
        (channel,), (feature,) = reduced, features
        (batch,) = {*results} - {height.place, width.place, feature}
        data_order = (
            found.dimensions.index("batch"),
            *(found.dimensions.index(it) for it in found.windows),
            found.dimensions.index("channel"),
        )
        named = (batch, height.place, width.place, feature)
        top, left = (found.low[at] for at in data_order[1:3])
        return TiledConvolution(
            evolve(node, operands=tuple(operands)),
            found.data,
            found.weights,
            data_order,
            tuple(map(found.taken.index, (height.tap, width.tap, channel, feature))),
            tuple(map(results.index, named)),
            (
                stage.extents[batch],
                stage.extents[height.place],
                stage.extents[width.place],
                stage.extents[feature],
            ),
            (top, left),
        )

    @property
    def channels(self) -> int:
        """Channels of the image."""
        return self.data.shape[self.data_order[3]]

    @property
    def operations(self) -> int:
        """Multiplications when it is computed directly."""
        return prod(self.shape) * TAPS * TAPS * self.channels

    def alone(self, tile: Tile | None) -> Graph:
        """A network of nothing else, by a tile or directly, with weights that hold zeros."""
        data = input_value("data", self.data.shape, self.data.dtype)
        weights = _zeros(self.weights.shape)
        new = {self.data.key: data, self.weights.key: weights}
        operands = tuple(new[it.key] for it in self.node.operands)
        if tile is None:
            (result,) = results_of(evolve(self.node, operands=operands))
        else:
            changed = evolve(self, data=data, weights=weights)
            result = changed._tiled(tile, _zeros(self._tiled_shape(tile)))
        return Graph((data,), {"result": result})

    def operations_by(self, tile: Tile) -> int:
        """Multiplications of the transforms and the products when it is computed by a tile."""
        batch, height, width, features = self.shape
        rows, columns = tile.axes
        channels, positions = self.channels, len(rows.inputs) * len(columns.inputs)
        read = batch * rows.tiles(height) * columns.tiles(width) * channels
        made = batch * -(-height // rows.step) * -(-width // columns.step) * features
        summed = channels * rows.taps_left * columns.taps_left
        each = read * rows.window * columns.window + made * (summed + rows.step * columns.step)
        return positions * each

    def by(self, tile: Tile) -> Value:
        """Compute it by a tile."""
        return self._tiled(tile, constant(self._transformed_weights(tile)))

    def _tiled(self, tile: Tile, weights: Value) -> Value:
        data = self._input_tiles(tile)
        if weights.shape[1:3] != (1, 1):
            return self._result(_products(data, weights), tile)
        # All tiles are rows of one matrix a position.
        positions, *space, channels = data.shape
        matrices = reshape(data, (positions, prod(space), channels))
        products = matmul(matrices, reshape(weights, (positions, channels, -1)))
        return self._result(reshape(products, (positions, *space, -1)), tile)

    def _tiled_shape(self, tile: Tile) -> tuple[int, ...]:
        rows, columns = tile.axes
        return len(rows.taps) * len(columns.taps), *_left(tile), self.channels, self.shape[3]

    def _transformed_weights(self, tile: Tile) -> NDArray[np.float32]:
        """Weights at each position: [positions, taps left, taps left, channels, features]."""
        rows, columns = tile.axes
        assert self.weights.constant is not None  # :class:`Convolution` says so
        given = self.weights.constant.transpose(self.weights_order).reshape(TAPS, TAPS, -1)
        shape = (*rows.taps.shape[:2], *columns.taps.shape[:2])
        found = np.empty((shape[0], shape[2], shape[1], shape[3], given.shape[2]), "f4")
        # As products of matrices: taps along an axis, and all else.
        first, second = rows.taps.reshape(-1, TAPS), columns.taps.reshape(-1, TAPS)
        for begin in range(0, given.shape[2], _BLOCK):
            # In float64, in parts that stay in the caches, axis by axis.
            part = slice(begin, begin + _BLOCK)
            weights = given[..., part].astype(np.float64)
            wide = (first @ weights.reshape(TAPS, -1)).reshape(len(first), TAPS, -1)
            both = (second @ wide).reshape(*shape, -1)
            found[..., part] = both.transpose(0, 2, 1, 3, 4)
        return found.reshape(self._tiled_shape(tile))

    def _input_tiles(self, tile: Tile) -> Value:
        """Tiles that the products read: [positions, batch, tiles, tiles, channels]."""
        rows, columns = tile.axes
        batch, height, width, channels = (self.data.shape[at] for at in self.data_order)
        counts = rows.tiles(self.shape[1]), columns.tiles(self.shape[2])
        (top, left), transform = self.margin, along_both(rows.inputs, columns.inputs)
        # The last tiles read beyond the margins of the convolution.
        below = (counts[0] - 1) * rows.step + rows.window - top - height
        beside = (counts[1] - 1) * columns.step + columns.window - left - width
        data = Tensor("x", (batch, height, width, channels), "float32")
        margins = [padded(data, (0, top, left, 0), (0, below, beside, 0), 0, "p")]
        source = "p" if any((top, left, below, beside)) else "x"
        matrix = transform.reshape(-1, *transform.shape[2:])
        places = var("p") * rows.step + var("i"), var("q") * columns.step + var("j")
        body = Binary(
            "mul",
            Load("m", (var("s"), var("i"), var("j"))),
            Load(source, (var("b"), *places, var("c"))),
        )
        shape = (len(matrix), batch, *counts, channels)
        axes = [Axis(name, extent) for name, extent in zip("sbpqc", shape, strict=True)]
        axes += [Axis("i", rows.window, "reduce"), Axis("j", columns.window, "reduce")]
        stage = Stage(Tensor("y", shape, "float32"), tuple(axes), body, "add")
        stages = (*(margins if source == "p" else []), stage)
        orders = {"x": self.data_order, **({"p": self.data_order} if source == "p" else {})}
        return _computed(WORKLOADS[0], data, matrix, stages, self.data, orders)

    def _result(self, products: Value, tile: Tile) -> Value:
        """The outputs of the tiles, put together and cut to size."""
        rows, columns = tile.axes
        transform = along_both(rows.outputs, columns.outputs)
        matrix = transform.reshape(*transform.shape[:2], -1)
        batch, height, width, features = self.shape
        counts = -(-height // rows.step), -(-width // columns.step)
        shape = (batch, counts[0], rows.step, counts[1], columns.step, features)
        body = Binary(
            "mul",
            Load("m", (var("i"), var("j"), var("s"))),
            Load("x", tuple(map(var, "sbpqf"))),
        )
        axes = [Axis(name, extent) for name, extent in zip("bpiqjf", shape, strict=True)]
        axes.append(Axis("s", matrix.shape[2], "reduce"))
        stage = Stage(Tensor("y", shape, "float32"), tuple(axes), body, "add")
        # The tiles of an axis, and the outputs of a tile along it, lie together.
        batch_at, height_at, width_at, feature_at = self.result_order
        keys = [batch_at, height_at, height_at, width_at, width_at, feature_at]
        order = inverse(sorted(range(6), key=lambda at: keys[at]))
        data = Tensor("x", products.shape, "float32")
        whole = _computed(WORKLOADS[2], data, matrix, [stage], products, {"y": order})
        extents = [batch, counts[0] * rows.step, counts[1] * columns.step, features]
        places = inverse(self.result_order)
        together = reshape(whole, [extents[at] for at in places])
        wanted = [self.shape[at] for at in places]
        return slice_axes(together, [0] * 4, wanted, [1] * 4)


def _left(tile: Tile) -> tuple[int, int]:
    """Taps that the products add up along each axis."""
    rows, columns = tile.axes
    return rows.taps_left, columns.taps_left


def _zeros(shape: Sequence[int]) -> Value:
    """A constant that takes no memory."""
    return constant(np.broadcast_to(np.float32(0), shape))


def _products(data: Value, weights: Value) -> Value:
    """Sums over channels and the taps that are left, at each position and tile."""
    positions, batch, rows, columns, channels = data.shape
    _, high, wide, _, features = weights.shape
    shape = (positions, batch, rows - high + 1, columns - wide + 1, features)
    axes = [Axis(name, extent) for name, extent in zip("sbpqf", shape, strict=True)]
    inner = zip("ijk", (high, wide, channels), strict=True)
    axes += [Axis(name, extent, "reduce") for name, extent in inner]
    places = var("p") + var("i"), var("q") + var("j")

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        body = Binary(
            "mul",
            Load(given[0].name, (var("s"), var("b"), *places, var("k"))),
            Load(given[1].name, tuple(map(var, "sijkf"))),
        )
        return [Stage(Tensor("y", shape, "float32"), tuple(axes), body, "add")]

    return program(WORKLOADS[1], [data, weights], stages)


def _computed(
    name: str,
    data: Tensor,
    matrix: NDArray[np.float64],
    stages: Sequence[Stage],
    value: Value,
    orders: dict[str, Order],
) -> Value:
    """The result of stages over a value and a constant matrix, stored in some orders."""
    taken = constant(matrix.astype(np.float32))
    inputs = data, Tensor("m", taken.shape, "float32", constant=True)
    workload = permuted(Workload(name, inputs, tuple(stages), (stages[-1].name,)), orders)
    output = workload.stages[-1].output
    return compute(workload, [value, taken], [(output.shape, output.dtype)])[0]
