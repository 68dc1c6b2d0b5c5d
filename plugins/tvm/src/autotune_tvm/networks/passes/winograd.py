"""Convolutions with fewer multiplications: Winograd's, where they are expected to be faster."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from attrs import define, field, frozen
from tvm import relax, te, topi
from tvm.ir import IRModule

from autotune.networks.kept_speedups import KeptSpeedups
from autotune.networks.passes.winograd_tiles import TAPS, Tile, along_both
from autotune.targets import Target
from autotune_tvm.networks.graph import (
    ENTRY,
    Array,
    Graph,
    array_of,
    constant,
    dtype_of,
    operator_of,
    rewrite,
    shape_of,
)
from autotune_tvm.networks.passes.expected_costs import Costs, Programs, cost_key

__all__ = ["FUNCTIONS", "TILES", "choose_winograd", "with_tile"]

op = relax.op

FUNCTIONS = ("winograd_input", "winograd_products", "winograd_output")
"""Names of the compiled functions that take the place of a convolution."""
TILES = (Tile(2, 2), Tile(1, 4), Tile(4, 4))
"""Tiles to choose from, that of the least rounding error first."""
_GAIN_OVER_EXACTER = 1.1
"""A tile is taken before one of less error where it is expected to be so many times as fast."""
_GAIN = 1.3
"""Convolutions stay where less is expected: it was up to 1.4 times what was measured then."""
_LEAST_OPERATIONS = 1 << 24
"""Convolutions of fewer multiplications stay, unasked: transforms cost as much."""
_VERSION = 1
"""Grows when this module expects another speedup of some convolution."""


def choose_winograd(
    module: IRModule, machine: Target, kept: KeptSpeedups | None = None
) -> tuple[IRModule, str]:
    """Compute convolutions by Winograd's algorithm where that is expected to be faster.

    Those of float32 with constant weights of 3 x 3 taps, stride 1, one group, and channels last.
    Each becomes a transform of the input, a batch of products with transformed weights, and a
    transform of the output, in which what follows is computed. On CPUs only.

    Args:
        module: A network of operators.
        machine: What it runs on, with as many cores as it has threads.
        kept: What was expected of convolutions before; None to expect it anew.
    """
    if machine.kind != "cpu":
        return module, ""
    chooser = _Chooser(Costs(machine), kept)
    chosen: list[str] = []

    def replace(call: Any, graph: Graph) -> Any:
        convolution = _Convolution.of(call)
        tile = None if convolution is None else chooser.tile(convolution)
        if convolution is None or tile is None:
            return None
        chosen.append(str(tile))
        return convolution.emitted(tile, graph)

    changed = rewrite(module, replace)
    if not chosen:
        return module, ""
    counts = ", ".join(f"{chosen.count(name)} by {name}" for name in sorted(set(chosen)))
    return changed, f"{counts}; expected to be up to {chooser.most:.2f} times as fast"


def with_tile(module: IRModule, tile: Tile) -> IRModule:
    """The module with every convolution that can be computed so, whatever that is worth.

    Args:
        module: A network of operators.
        tile: Outputs that are computed together.
    """

    def replace(call: Any, graph: Graph) -> Any:
        convolution = _Convolution.of(call)
        return None if convolution is None else convolution.emitted(tile, graph)

    return rewrite(module, replace)


@frozen(eq=False)
class _Convolution:
    """A convolution that tiles can compute.

    Attributes:
        data: What it reads, [batch, height, width, channels].
        weights: [taps, taps, channels in, channels out].
        padding: Before height and width, then after them.
    """

    data: Any
    weights: Array
    padding: tuple[int, int, int, int]

    @classmethod
    def of(cls, call: Any) -> _Convolution | None:
        if operator_of(call) != "nn.conv2d" or dtype_of(call.args[0]) != "float32":
            return None
        attributes, weights = call.attrs, array_of(call.args[1])
        layouts = attributes.data_layout, attributes.kernel_layout, attributes.out_layout
        if tuple(map(str, layouts)) != ("NHWC", "HWIO", "NHWC") or int(attributes.groups) != 1:
            return None
        if str(attributes.out_dtype) not in ("None", "float32"):
            return None
        if any(int(it) != 1 for it in (*attributes.strides, *attributes.dilation)):
            return None
        if weights is None or shape_of(call.args[0]) is None or weights.shape[:2] != (TAPS,) * 2:
            return None
        top, left, bottom, right = map(int, attributes.padding)
        return cls(call.args[0], weights, (top, left, bottom, right))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the result."""
        batch, height, width, _ = shape_of(self.data) or ()
        top, left, bottom, right = self.padding
        lost = TAPS - 1
        rows, columns = height + top + bottom - lost, width + left + right - lost
        return batch, rows, columns, self.weights.shape[-1]

    @property
    def operations(self) -> int:
        """Multiplications when it is computed directly."""
        return int(np.prod(self.shape)) * int(np.prod(self.weights.shape[:3]))

    def operations_by(self, tile: Tile) -> int:
        """Multiplications of the transforms and the products when it is computed by a tile."""
        batch, height, width, features = self.shape
        rows, columns = tile.axes
        channels, positions = int(self.weights.shape[2]), len(rows.inputs) * len(columns.inputs)
        read = batch * rows.tiles(height) * columns.tiles(width) * channels
        made = batch * -(-height // rows.step) * -(-width // columns.step) * features
        summed = channels * rows.taps_left * columns.taps_left
        each = read * rows.window * columns.window + made * (summed + rows.step * columns.step)
        return positions * each

    def alone(self, tile: Tile | None) -> IRModule:
        """A network of this convolution alone; by a tile, or directly."""
        data = relax.Var("data", relax.TensorType(shape_of(self.data), "float32"))
        convolution = _Convolution(data, self.weights, self.padding)
        builder = relax.BlockBuilder()
        with builder.function(ENTRY, [data]):
            with builder.dataflow():
                graph = Graph(builder)
                made = convolution.direct() if tile is None else convolution.emitted(tile, graph)
                result = builder.emit_output(made)
            builder.emit_func_output(result)
        return builder.finalize()

    def direct(self) -> Any:
        """As one operator."""
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        return op.nn.conv2d(self.data, constant(self.weights), padding=self.padding, **layouts)

    def emitted(self, tile: Tile, graph: Graph) -> Any:
        """What computes it by a tile: an expression of the shape of the convolution's result."""
        rows, columns = tile.axes
        batch, height, width, channels = self.shape
        counts = rows.tiles(height), columns.tiles(width)

        def call(function: Any, *arguments: Any, name: str) -> Any:
            return graph.emit(graph.builder.call_te(function, *arguments, primfunc_name_hint=name))

        windows = along_both(rows.inputs, columns.inputs)
        read = partial(_input_tiles, tile=tile, counts=counts, padding=self.padding)
        data = call(read, self.data, _constant(windows, -1, *windows.shape[2:]), name=FUNCTIONS[0])
        weights = constant(_transformed_weights(self.weights, tile))
        if weights.ty.shape[1] == weights.ty.shape[2] == 1:
            products = _matrix_products(data, weights, graph)
        else:
            products = call(_products, data, weights, name=FUNCTIONS[1])
        results = along_both(rows.outputs, columns.outputs)
        matrix = _constant(results, *results.shape[:2], -1)
        whole = call(_output_tiles, products, matrix, name=FUNCTIONS[2])
        extents = [counts[0] - rows.taps_left + 1, counts[1] - columns.taps_left + 1]
        padded = [count * step for count, step in zip(extents, results.shape[:2], strict=True)]
        result = op.reshape(whole, (batch, *padded, channels))
        if padded == [height, width]:
            return result
        return op.strided_slice(graph.emit(result), [1, 2], [0, 0], [height, width])


@define(eq=False)
class _Chooser:
    """Which tile is expected to be the fastest; asked once for convolutions of one shape.

    Attributes:
        costs: Of programs on the machine.
        kept: What was expected before.
        most: The largest speedup that a chosen tile is expected to have.
        tiles: What was chosen, by shapes and padding.
    """

    costs: Costs
    kept: KeptSpeedups | None
    most: float = 1.0
    tiles: dict[Any, Tile | None] = field(factory=dict)

    def tile(self, convolution: _Convolution) -> Tile | None:
        """The tile that is worth it; None to compute the convolution directly."""
        if convolution.operations < _LEAST_OPERATIONS:
            return None
        key = shape_of(convolution.data), convolution.weights.shape, convolution.padding
        if key not in self.tiles:
            self.tiles[key] = self._best(convolution)
        return self.tiles[key]

    def _best(self, convolution: _Convolution) -> Tile | None:
        best, gain = None, _GAIN
        for tile in TILES:
            speedup = self._speedup(convolution, tile)
            if speedup >= gain:
                best, gain = tile, _GAIN_OVER_EXACTER * speedup
                self.most = max(self.most, speedup)
        return best

    def _speedup(self, convolution: _Convolution, tile: Tile) -> float:
        """How many times as fast a tile is expected to be; 0 where that is not worth asking."""
        if convolution.operations < _GAIN * convolution.operations_by(tile):
            return 0.0
        direct = convolution.alone(None)
        key = cost_key(f"winograd {_VERSION} by {tile}", direct, self.costs.machine)
        known = None if self.kept is None else self.kept.find(key)
        if known is not None:
            return known[0] or 0.0
        before, after = self._cost(direct), self._cost(convolution.alone(tile))
        speedup = before / after if np.isfinite(before) and np.isfinite(after) else None
        if self.kept is not None:
            self.kept.keep(key, speedup)
        return speedup or 0.0

    def _cost(self, module: IRModule) -> float:
        programs = Programs.of(module)
        if programs.refused:
            return np.inf
        digests = (*programs.reductions, *programs.moves.elements())
        return sum(self.costs.of(programs.workloads[digest]) for digest in digests)


def _constant(matrix: Array, *shape: int) -> Any:
    return constant(matrix.reshape(shape).astype(np.float32))


def _transformed_weights(weights: Array, tile: Tile) -> Array:
    """Weights at each position: [positions, taps left, taps left, channels in, channels out]."""
    rows, columns = tile.axes
    exact = weights.astype(np.float64)
    found: Array = np.einsum("pah,qbw,hwio->pqabio", rows.taps, columns.taps, exact, optimize=True)
    return found.reshape(-1, *found.shape[2:]).astype(np.float32)


def _input_tiles(
    data: te.Tensor,
    matrix: te.Tensor,
    tile: Tile,
    counts: tuple[int, int],
    padding: tuple[int, int, int, int],
) -> te.Tensor:
    """What the products read: [positions, batch, tiles, tiles, channels]."""
    rows, columns = tile.axes
    batch, height, width, channels = (int(extent) for extent in data.shape)
    top, left, _, _ = padding
    # The last tiles read beyond the padding of the convolution.
    below = (counts[0] - 1) * rows.step + rows.window - top - height
    beside = (counts[1] - 1) * columns.step + columns.window - left - width
    if any((top, left, below, beside)):
        data = topi.nn.pad(data, [0, top, left, 0], [0, below, beside, 0])
    i, j = te.reduce_axis((0, rows.window), "i"), te.reduce_axis((0, columns.window), "j")
    return te.compute(
        (matrix.shape[0], batch, *counts, channels),
        lambda s, b, p, q, c: te.sum(
            matrix[s, i, j] * data[b, p * rows.step + i, q * columns.step + j, c], [i, j]
        ),
        name="tiles",
    )


def _matrix_products(data: Any, weights: Any, graph: Graph) -> Any:
    """The products where no taps are left: all tiles are rows of one matrix a position."""
    positions, *space, channels = shape_of(data) or ()
    rows = graph.emit(op.reshape(data, (positions, int(np.prod(space)), channels)))
    kernel = array_of(weights)
    assert kernel is not None  # it is a constant
    matrices = constant(kernel.reshape(positions, *kernel.shape[3:]))
    product = graph.emit(op.matmul(rows, matrices))
    return graph.emit(op.reshape(product, (positions, *space, kernel.shape[-1])))


def _products(data: te.Tensor, weights: te.Tensor) -> te.Tensor:
    """Sums over channels and the taps that are left, at each position and tile."""
    positions, batch, rows, columns, channels = (int(extent) for extent in data.shape)
    _, high, wide, _, features = (int(extent) for extent in weights.shape)
    i, j = te.reduce_axis((0, high), "i"), te.reduce_axis((0, wide), "j")
    k = te.reduce_axis((0, channels), "k")
    return te.compute(
        (positions, batch, rows - high + 1, columns - wide + 1, features),
        lambda s, b, p, q, f: te.sum(
            data[s, b, p + i, q + j, k] * weights[s, i, j, k, f], [i, j, k]
        ),
        name="products",
    )


def _output_tiles(products: te.Tensor, matrix: te.Tensor) -> te.Tensor:
    """The outputs of the tiles: [batch, tiles, rows of a tile, tiles, columns, channels]."""
    positions, batch, rows, columns, channels = (int(extent) for extent in products.shape)
    high, wide, _ = (int(extent) for extent in matrix.shape)
    s = te.reduce_axis((0, positions), "s")
    return te.compute(
        (batch, rows, high, columns, wide, channels),
        lambda b, p, i, q, j, f: te.sum(matrix[i, j, s] * products[s, b, p, q, f], [s]),
        name="outputs",
    )
