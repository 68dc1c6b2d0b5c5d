"""Convolutions with fewer multiplications: Winograd's, where they are expected to be faster."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod

from attrs import define, field

from autotune.ir.workloads import Workload
from autotune.networks.graph import Graph, Node, Value, rewritten
from autotune.networks.kept_speedups import KeptSpeedups
from autotune.networks.passes.expected_costs import Costs, Passes, cost_key, programs
from autotune.networks.passes.winograd_convolutions import TiledConvolution
from autotune.networks.passes.winograd_tiles import Tile
from autotune.targets import Target

__all__ = ["TILES", "choose_winograd", "with_tile"]

TILES = (Tile(2, 2), Tile(1, 4), Tile(4, 4))
"""Tiles to choose from, that of the least rounding error first."""
_GAIN_OVER_EXACTER = 1.1
"""A tile is taken before one of less error where it is expected to be so many times as fast."""
_GAIN = 1.3
"""Convolutions stay where less is expected: it was up to 1.4 times what was measured then."""
_LEAST_OPERATIONS = 1 << 24
"""Convolutions of fewer multiplications stay, unasked: transforms cost as much."""
_MOST_TERMS = max(tile.axes[0].window * tile.axes[1].window for tile in TILES)
"""What transforms add up for an element: only products add up more."""
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
    """Which tile is expected to be the fastest; asked once for equal convolutions.

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
