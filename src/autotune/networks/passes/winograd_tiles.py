"""Parts of Winograd's convolution: transforms of one axis, and of tiles of two.

``F(m, 3)`` computes m neighbouring outputs of a filter of three taps with ``m + 2``
multiplications instead of ``3 * m``: ``y = A^T ((G g) * (B^T d))`` for ``m + 2`` inputs ``d`` and
taps ``g``. Matrices are those of Lavin and Gray, "Fast Algorithms for Convolutional Neural
Networks", CVPR 2016; along both axes of a tile they are applied one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

__all__ = ["ALONG_AN_AXIS", "TAPS", "AxisTransform", "Tile", "along_both"]

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
