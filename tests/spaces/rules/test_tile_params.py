from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from autotune.spaces.rules.access import largest_divisor, round_up
from autotune.spaces.rules.tile_params import padded_extents


@given(
    st.integers(1, 5000),
    st.lists(st.integers(1, 96), min_size=1, max_size=8).map(tuple),
    st.integers(0, 16),
)
def test_padded_extents_waste_little(extent: int, multiples: tuple[int, ...], slack: int) -> None:
    extents = padded_extents(extent, multiples, slack)
    assert extents[0] == extent and list(extents) == sorted(set(extents))
    limit = max(math.floor(0.03 * extent), slack)
    for padded in extents[1:]:
        assert padded - extent <= limit
        assert any(padded == round_up(extent, multiple) for multiple in multiples)
    for multiple in multiples:
        if round_up(extent, multiple) - extent <= limit:
            assert round_up(extent, multiple) in extents


def test_padded_extents_by_example() -> None:
    rows, vectors = tuple(range(2, 17)), (16, 32, 48, 64, 96)
    assert padded_extents(512, rows, 1) == (512, 513, 515, 516, 517, 518, 520, 525)
    assert padded_extents(37, rows, 1) == (37, 38)
    assert padded_extents(53, vectors, 16) == (53, 64)
    assert padded_extents(7, vectors, 16) == (7, 16)
    assert padded_extents(1000, vectors, 16) == (1000, 1008, 1024)


@given(st.integers(1, 400), st.integers(1, 64))
def test_largest_divisor(extent: int, limit: int) -> None:
    divisor = largest_divisor(extent, limit)
    assert extent % divisor == 0 and 1 <= divisor <= limit
    assert not any(extent % d == 0 for d in range(divisor + 1, min(extent, limit) + 1))


def test_round_up() -> None:
    assert [round_up(value, 8) for value in (0, 1, 8, 9)] == [0, 8, 8, 16]
