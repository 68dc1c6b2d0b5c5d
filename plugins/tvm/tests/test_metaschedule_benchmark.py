"""The arrays that benchmarks give to MetaSchedule's runner."""

from __future__ import annotations

from typing import Any

import tvm
from benchmark_scripts import benchmark_scripts


def test_indices_are_below_their_bound() -> None:
    with benchmark_scripts("support.metaschedule") as (metaschedule,):
        allocated: Any = metaschedule.index_filler(dict([metaschedule.bound("1=5")]))
    specs = [("TENSOR", "float32", (5, 3)), ("TENSOR", "int32", (40, 7))]
    (arguments,) = allocated(tvm.cpu(), specs, 1)
    indices = arguments[1].numpy()
    assert indices.shape == (40, 7)
    assert set(indices.reshape(-1).tolist()) == set(range(5))
    assert arguments[0].numpy().shape == (5, 3)
