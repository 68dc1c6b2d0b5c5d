"""Winograd's transforms: what they compute, and by how much errors grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.networks.passes.winograd import ALONG_AN_AXIS, TAPS, Tile


@pytest.mark.parametrize("step", [2, 4])
def test_a_transformed_axis_correlates(step: int) -> None:
    """``A^T ((G g) * (B^T d))`` is linear in both: basis vectors show all of it."""
    axis = ALONG_AN_AXIS[step]
    assert axis.window == step + TAPS - 1 and axis.step == step
    for data in np.eye(axis.window):
        for taps in np.eye(TAPS):
            found = axis.outputs @ ((axis.taps[:, 0] @ taps) * (axis.inputs @ data))
            np.testing.assert_allclose(found, np.correlate(data, taps), atol=1e-12)


@pytest.mark.parametrize(("tile", "growth"), [((1, 1), 1), ((1, 2), 8 / 3), ((4, 4), 256)])
def test_the_growth_of_the_error_is_the_documented_one(tile: Any, growth: float) -> None:
    assert Tile(*tile).growth == pytest.approx(growth)
