"""The figures of `sampling`, by hand; and its samplers on a small sketch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import benchmark_scripts

from autotune.spaces.feasible import build_feasible_set


@pytest.fixture(scope="module")
def sampling() -> Iterator[Any]:
    """The script as a module."""
    with benchmark_scripts("sampling") as (module,):
        yield module


def test_bias_is_the_distance_from_uniform(sampling: Any) -> None:
    each_once = np.arange(8, dtype=np.int64).reshape(4, 2)
    assert sampling.bias(each_once, 4)[0] == 0
    assert sampling.bias(each_once[[0, 0, 0, 0]], 4)[0] == pytest.approx(3 / 4)
    assert sampling.bias(each_once[[0, 0, 1, 1]], 4)[0] == pytest.approx(1 / 2)


def test_children_and_rejected_points_are_feasible(sampling: Any) -> None:
    sketch = dict(sampling.sketches())["gemm 64 CPU"]
    feasible = build_feasible_set(sketch)
    assert feasible.contains(sampling.child(feasible, 3)).all()
    rows, _ = sampling.by_rejection(sketch, 500)
    assert 0 < len(rows) < 500
    assert feasible.contains(rows).all()
