"""Steps after which the results of a scan would not continue one another."""

from __future__ import annotations

from typing import Any

import pytest
from scanned import scanned_between

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const
from autotune.nest import derive_nest
from autotune.sketches import (
    Accumulate,
    FuseConsumer,
    FuseProducer,
    Inline,
    Order,
    PadExtent,
    Parallel,
    Sketch,
    Tile,
    Unroll,
    Vectorize,
)

TILED = Tile("Y", "a0", (const(4), const(4)))
REFUSED = {
    "inline": [Inline("Y")],
    "pad": [PadExtent("Y", "a0", const(20))],
    "accumulate": [Accumulate("Y", "a0.0", (const(1),))],
    "consumer": [FuseConsumer("Z", "Y", "a0.0", (const(1),))],
    "producer": [FuseProducer("Y", "Z", "a0.0", 1)],
    "parallel": [Parallel("Y", ("a0.0",))],
    "vectorize": [Order("Y", ("a1.0", "a0.0")), Vectorize("Y", "a0.0")],
    "order": [TILED, Order("Y", ("a0.1", "a1.0", "a0.0"))],
}


def derived(*steps: Any) -> None:
    derive_nest(Sketch("made", scanned_between((16, 8), 0), (), (), steps))


@pytest.mark.parametrize("steps", REFUSED.values(), ids=REFUSED)
def test_they_are_refused(steps: list[Any]) -> None:
    with pytest.raises(InvalidValueError, match="scan"):
        derived(*steps)


def test_its_axis_may_be_tiled_and_unrolled_in_order() -> None:
    derived(
        TILED,
        Order("Y", ("a1.0", "a0.0", "a0.1")),
        Parallel("Y", ("a1.0",)),
        Unroll("Y", ("a0.1",)),
    )
