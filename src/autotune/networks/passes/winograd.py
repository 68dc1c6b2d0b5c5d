"""Convolutions with fewer multiplications: Winograd's, where they are expected to be faster.

``F(m, 3)`` computes m neighbouring outputs of a filter of three taps with ``m + 2``
multiplications instead of ``3 * m``: ``y = A^T ((G g) * (B^T d))`` for ``m + 2`` inputs ``d`` and
taps ``g``. Matrices are those of Lavin and Gray, "Fast Algorithms for Convolutional Neural
Networks", CVPR 2016; along both axes of a tile they are applied one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, prod
from types import MappingProxyType

import numpy as np
from attrs import define, evolve, field, frozen
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
    rewritten,
    slice_axes,
)
from autotune.networks.graph.graph import results_of
from autotune.networks.graph.making import compute, program
from autotune.networks.graph.movement import padded
from autotune.networks.passes.expected_costs import Costs, KeptSpeedups, Passes, cost_key, programs
from autotune.networks.passes.workload_forms import Convolution
from autotune.targets import Target

__all__ = [
    "ALONG_AN_AXIS",
    "TAPS",
    "TILES",
    "Tile",
    "WORKLOADS",
    "choose_winograd",
    "with_tile",
]


Matrix = NDArray[np.float64]

TAPS = 3
"""Of the filter along a transformed axis."""


@frozen(eq=False)
class AxisTransform:
    """Computation of outputs along one axis.

    Attributes:
        inputs: ``B^T`` of shape [positions, window].
        taps: ``G`` of shape [positions, taps that are left, taps]: what is multiplied at each
            position; one tap is left where the axis is transformed, else all of them.
        outputs: ``A^T`` of shape [outputs, positions].
    """

    inputs: Matrix
    taps: Matrix
    outputs: Matrix

    @property
    def step(self) -> int:
        """Outputs of one tile."""
        return len(self.outputs)

    @property
    def window(self) -> int:
        """Inputs of one tile."""
        return int(self.inputs.shape[1])

    @property
    def taps_left(self) -> int:
        """Taps that the products add up along this axis."""
        return int(self.taps.shape[1])

    @property
    def growth(self) -> float:
        """Bound on the terms of an output, in multiples of the direct sum's, in magnitude."""
        factors = np.abs(self.taps).sum((1, 2)) * np.abs(self.inputs).sum(1)
        return float((np.abs(self.outputs) @ factors).max()) / TAPS

    def tiles(self, outputs: int) -> int:
        """Tiles of the transformed input for so many outputs, the last one padded."""
        return -(-outputs // self.step) + self.taps_left - 1


def _minimal_filter(
    inputs: list[list[float]], taps: Matrix, outputs: list[list[int]]
) -> AxisTransform:
    return AxisTransform(np.array(inputs, float), taps[:, None, :], np.array(outputs, float))


ALONG_AN_AXIS: Mapping[int, AxisTransform] = MappingProxyType(
    {
        1: AxisTransform(np.ones((1, 1)), np.eye(TAPS)[None], np.ones((1, 1))),
        2: _minimal_filter(
            [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
            np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]]) / 2,
            [[1, 1, 1, 0], [0, 1, -1, -1]],
        ),
        4: _minimal_filter(
            [
                [4, 0, -5, 0, 1, 0],
                [0, -4, -4, 1, 1, 0],
                [0, 4, -4, -1, 1, 0],
                [0, -2, -1, 2, 1, 0],
                [0, 2, -1, -2, 1, 0],
                [0, 4, 0, -5, 0, 1],
            ],
            np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]])
            / 24,
            [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
        ),
    }
)
"""By outputs of a tile; of one output, nothing is transformed."""


@frozen
class Tile:
    """Outputs that are computed together: a key of :data:`ALONG_AN_AXIS` for each axis.

    Attributes:
        height, width: Outputs along each axis.
    """

    height: int
    width: int

    @property
    def axes(self) -> tuple[AxisTransform, AxisTransform]:
        """Computations of outputs along each axis."""
        return ALONG_AN_AXIS[self.height], ALONG_AN_AXIS[self.width]

    @property
    def growth(self) -> float:
        """Bound on the rounding error, in multiples of the direct convolution's.

        All magnitudes that are added up for an output are together at most so many times
        ``9 * channels * max(|inputs|) * max(|taps|)``, those of the direct sum. The bound is that
        sum times the number of additions that follow one another and half of float32's ``eps``.
        """
        rows, columns = self.axes
        return rows.growth * columns.growth

    def __str__(self) -> str:
        return f"F({self.height}x{self.width}, {TAPS}x{TAPS})"


def along_both(rows: NDArray[np.float64], columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix of a tile: ``result[i, j, k, l] == rows[i, k] * columns[j, l]``.

    Args:
        rows: Matrix of the first axis.
        columns: Matrix of the second axis.
    """
    return rows[:, None, :, None] * columns[:, None, :]


TILES = (Tile(2, 2), Tile(1, 4), Tile(4, 4))
"""Tiles to choose from, that of the least rounding error first."""
_GAIN_OVER_EXACTER = 1.1
"""A tile is taken before one of less error where it is expected to be so many times as fast."""
_GAIN = 1.3
"""Convolutions stay where less is expected: it was up to 1.4 times what was measured then."""
_LEAST_OPERATIONS = 1 << 24
"""Convolutions of fewer multiplications stay, unasked: transforms cost as much."""
_MOST_TERMS = max(tile.axes[0].window * tile.axes[1].window for tile in TILES)
"""Most terms that transforms add up for an element: only products add up more."""
_VERSION = 2
"""Grows when this module expects another speedup of some convolution."""


def choose_winograd(
    graph: Graph,
    machine: Target,
    kept: KeptSpeedups | None = None,
    afterwards: Passes = (),
) -> tuple[Graph, str]:
    """Compute convolutions by Winograd's algorithm where that is expected to be faster.

    Those of float32 with constant weights of 3 x 3 taps, stride 1 and one group. Each becomes a
    transform of the input, a batch of products with transformed weights, and a transform of the
    output, in which what follows is computed. On CPUs only.

    Args:
        graph: A network of operators.
        machine: What it runs on, with as many cores as it has threads.
        kept: What was expected of convolutions before; None to expect it anew.
        afterwards: The passes that cut a network into programs.
    """
    if machine.kind != "cpu":
        return graph, ""
    chooser = _Chooser(Costs(machine), kept, afterwards)
    chosen: list[str] = []

    def change(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        convolution = TiledConvolution.of(node, operands)
        tile = None if convolution is None else chooser.tile(node, convolution)
        if convolution is None or tile is None:
            return None
        chosen.append(str(tile))
        return [convolution.by(tile)]

    changed = rewritten(graph, change)
    if not chosen:
        return graph, ""
    counts = ", ".join(f"{chosen.count(name)} by {name}" for name in sorted(set(chosen)))
    return changed, f"{counts}; expected to be up to {chooser.most:.2f} times as fast"


def with_tile(graph: Graph, tile: Tile) -> Graph:
    """The graph with every convolution that can be computed so, whatever that is worth.

    Args:
        graph: A network of operators.
        tile: Outputs that are computed together.
    """

    def change(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        convolution = TiledConvolution.of(node, operands)
        return None if convolution is None else [convolution.by(tile)]

    return rewritten(graph, change)


@define(eq=False)
class _Chooser:
    """Choice of the tile that is expected to be the fastest; made once for equal convolutions.

    Attributes:
        costs: Of programs on the machine.
        kept: What was expected before.
        afterwards: The passes that cut a network into programs.
        most: The largest speedup that a chosen tile is expected to have.
        tiles: What was chosen, by workload.
        rates: Costs of an element of transforms that were scored.
    """

    costs: Costs
    kept: KeptSpeedups | None
    afterwards: Passes
    most: float = 1.0
    tiles: dict[object, Tile | None] = field(factory=dict)
    rates: dict[object, float] = field(factory=dict)

    def tile(self, node: Node, convolution: TiledConvolution) -> Tile | None:
        """The tile that is worth it; None to compute the convolution directly."""
        if convolution.operations < _LEAST_OPERATIONS:
            return None
        if node.operation not in self.tiles:
            self.tiles[node.operation] = self._best(convolution)
        return self.tiles[node.operation]

    def _best(self, convolution: TiledConvolution) -> Tile | None:
        best, gain = None, _GAIN
        for tile in TILES:
            # Products are no faster than the convolution, multiplication by multiplication.
            if convolution.operations < gain * convolution.operations_by(tile):
                continue
            speedup = self._speedup(convolution, tile)
            if speedup >= gain:
                best, gain = tile, _GAIN_OVER_EXACTER * speedup
                self.most = max(self.most, speedup)
        return best

    def _speedup(self, convolution: TiledConvolution, tile: Tile) -> float:
        """Expected speed of a convolution by a tile, relative to the direct one."""
        alone = convolution.alone(None)
        key = cost_key(f"winograd {_VERSION} by {tile}", alone, self.costs.machine)
        known = None if self.kept is None else self.kept.find(key)
        if known is not None:
            return known[0] or 0.0
        before = sum(map(self.costs.of, self._programs(alone)))
        after = sum(self._cost(it, tile) for it in self._programs(convolution.alone(tile)))
        speedup = before / after if isfinite(before) and isfinite(after) else None
        if self.kept is not None:
            self.kept.keep(key, speedup)
        return speedup or 0.0

    def _programs(self, graph: Graph) -> list[Workload]:
        return [*programs(graph, self.costs.machine, self.afterwards).elements()]

    def _cost(self, workload: Workload, tile: Tile) -> float:
        """The cost of a program; transforms of a tile take as long as they have elements."""
        sums = tuple(tuple(axis.extent for axis in stage.reduce_axes) for stage in workload.stages)
        if max(map(prod, sums)) > _MOST_TERMS:
            return self.costs.of(workload)
        points = sum(stage.points for stage in workload.stages)
        key = str(tile), workload.name, sums
        if key not in self.rates:
            self.rates[key] = self.costs.of(workload) / points
        return self.rates[key] * points


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
