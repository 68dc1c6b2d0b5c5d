"""Decompositions give what the operators give, for any sizes; no compiler is needed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from autotune_tvm.networks.sources.decompositions.gathering import gathering
from autotune_tvm.networks.sources.decompositions.resampling import resampling
from autotune_tvm.networks.sources.decompositions.scans import scans
from autotune_tvm.networks.sources.decompositions.windows import windows
from hypothesis import given, settings
from hypothesis import strategies as st

aten: Any = torch.ops.aten
extents = st.integers(1, 9)
once = settings(max_examples=40, deadline=None)


def numbers(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def equal(found: Any, wanted: Any) -> None:
    found, wanted = ((it,) if isinstance(it, torch.Tensor) else it for it in (found, wanted))
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@once
@given(extents, extents, extents, extents)
def test_nearest_neighbours(height: int, width: int, rows: int, columns: int) -> None:
    rule = resampling(aten)[aten.upsample_nearest2d.vec]
    image, size = numbers(1, 2, height, width), [rows, columns]
    found = rule(image, size, None)
    if found is NotImplemented:
        assert rows % height == columns % width == 0
    else:
        equal(found, aten.upsample_nearest2d.vec(image, size, None))


@once
@given(extents, extents, st.floats(0.4, 2.5), st.floats(0.4, 2.5))
def test_factors(height: int, width: int, by_rows: float, by_columns: float) -> None:
    image, factors = numbers(1, 2, height, width), [by_rows, by_columns]
    if int(height * by_rows) and int(width * by_columns):
        operator = aten.upsample_nearest2d.vec
        found = resampling(aten)[operator](image, None, factors)
        if found is not NotImplemented:
            equal(found, operator(image, None, factors))


# Torch reads images of one column in the wrong order of memory.
several = st.integers(2, 9)
SMOOTHED = [
    kind for kind in ("bilinear", "bicubic", "lanczos") if hasattr(aten, f"_upsample_{kind}2d_aa")
]


@once
@given(several, several, several, several, st.booleans(), st.sampled_from(SMOOTHED))
def test_smoothed(
    height: int, width: int, rows: int, columns: int, corners: bool, kind: str
) -> None:
    operator = getattr(aten, f"_upsample_{kind}2d_aa").default
    image, size = numbers(1, 2, height, width), [rows, columns]
    equal(resampling(aten)[operator](image, size, corners), operator(image, size, corners))


@once
@given(extents, extents, st.integers(1, 4), st.integers(1, 4))
def test_adaptive_cells(height: int, width: int, rows: int, columns: int) -> None:
    operator = aten.adaptive_max_pool2d.default
    image, size = numbers(2, 3, height, width), [rows, columns]
    equal(windows(aten)[operator](image, size), operator(image, size))


@once
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 4))
def test_windows(extent: int, size: int, step: int) -> None:
    if size <= extent:
        rule = windows(aten)[aten.unfold.default]
        equal(
            rule(numbers(2, extent, 3), 1, size, step), numbers(2, extent, 3).unfold(1, size, step)
        )


@once
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.sampled_from(["max", "min"]))
def test_running_extremes_are_the_last_of_equal_ones(values: list[int], which: str) -> None:
    operator = getattr(aten, f"cum{which}").default
    data = torch.tensor([values], dtype=torch.float32)
    equal(scans(aten)[operator](data, 1), operator(data, 1))


@once
@given(st.lists(st.sampled_from([-math.inf, -90.0, -1.0, 0.5, 90.0, math.inf]), min_size=1))
def test_running_logarithms(values: list[float]) -> None:
    rule = scans(aten)[aten.logcumsumexp.default]
    data = torch.tensor([values, values[::-1]])
    torch.testing.assert_close(rule(data, 1), torch.logcumsumexp(data, 1), equal_nan=True)


@once
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=5),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([-1, 0]),
)
def test_bags(lengths: list[int], mode: int, last: bool, padding: int) -> None:
    """Empty bags, too, and rows that count for nothing."""
    table, count = numbers(4, 3), sum(lengths)
    indices = torch.arange(count) % 4
    offsets = torch.tensor([sum(lengths[:i]) for i in range(len(lengths) + last)])
    rule = gathering(aten)[aten._embedding_bag_forward_only.default]
    found = rule(table, indices, offsets, False, mode, False, None, last, padding)
    wanted = aten._embedding_bag_forward_only.default(
        table, indices, offsets, False, mode, False, None, last, padding
    )
    equal(found[0], wanted[0])


@once
@given(
    st.sampled_from(["sum", "prod", "mean", "amax", "amin"]),
    st.booleans(),
    st.lists(st.integers(0, 4), max_size=6),
)
def test_scatters(reduce: str, include_self: bool, places: list[int]) -> None:
    operator = aten.scatter_reduce.two
    data, index = numbers(5), torch.tensor(places, dtype=torch.int64)
    found = gathering(aten)[operator](
        data, 0, index, numbers(len(places)), reduce, include_self=include_self
    )
    if found is not NotImplemented:
        source = numbers(len(places))
        equal(found, operator(data, 0, index, source, reduce, include_self=include_self))
