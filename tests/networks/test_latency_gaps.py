"""A network that does not take as long as its tasks says which of them are why."""

from __future__ import annotations

import pytest

from autotune.networks.model_result import OUTSIDE, LatencyGap, largest_gaps

SLOWED = LatencyGap("slowed", 0.1, 2.4)
SLOWER = LatencyGap("slower", 1.0, 1.8)
SAME = LatencyGap("same", 2.0, 2.0)
FASTER = LatencyGap("faster", 3.0, 2.0)


@pytest.mark.parametrize(
    ("tasks", "estimated", "measured", "parts"),
    [
        ((SAME, SLOWED), 10.0, 11.0, []),  # off by a tenth
        ((SAME, SLOWED), 2.1, 4.5, ["slowed"]),
        # Half of the difference is not most of it.
        ((SAME, SLOWER, SLOWED), 3.1, 7.7, ["slowed", OUTSIDE]),
        ((SAME, FASTER), 5.0, 4.0, ["faster"]),
        ((SLOWED, FASTER), 3.1, 4.5, ["slowed"]),
        ((SAME,), 2.0, 3.0, [OUTSIDE]),
        # What instrumented calls take longer than the median is no time outside.
        ((SAME, SLOWED), 2.1, 4.0, ["slowed"]),
        ((), 0.0, 1.0, [OUTSIDE]),
        ((SAME,), 2.0, 1.5, []),
    ],
)
def test_most_of_the_difference_is_explained(
    tasks: tuple[LatencyGap, ...], estimated: float, measured: float, parts: list[str]
) -> None:
    found = largest_gaps(tasks, estimated, measured)
    assert [gap.part for gap in found] == parts
