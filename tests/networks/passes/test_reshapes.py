"""Reshapes of what is stored in another order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.networks.passes.channels_last import reshaped_order


@pytest.mark.parametrize(
    ("before", "after", "order", "wanted"),
    [
        # Channels are split where they are, and stay last.
        ((1, 6, 4, 5), (1, 2, 3, 4, 5), (0, 3, 1, 2), ((1, 4, 5, 2, 3), (0, 3, 4, 1, 2))),
        ((1, 6, 4, 5), (1, 6, 20), (0, 3, 1, 2), ((1, 20, 6), (0, 2, 1))),
        ((2, 6, 1, 1), (2, 6), (0, 3, 1, 2), ((2, 6), (0, 1))),
        ((1, 6, 4, 5), (1, 24, 5), (0, 3, 1, 2), None),
        ((2, 6, 4, 5), (12, 4, 5), (0, 3, 1, 2), None),
    ],
)
def test_reshapes_of_what_is_stored(before: Any, after: Any, order: Any, wanted: Any) -> None:
    found = reshaped_order(before, after, order)
    assert found == wanted
    if found is not None:
        stored = np.arange(np.prod(before)).reshape([before[order.index(i)] for i in range(4)])
        shape, order_after = found
        np.testing.assert_array_equal(
            stored.transpose(order).reshape(after), stored.reshape(shape).transpose(order_after)
        )
