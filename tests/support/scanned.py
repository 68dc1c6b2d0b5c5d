"""Workloads that scan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotune.ir.expressions import Binary, Load, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, cumsum

__all__ = ["ACCUMULATED", "SCANS", "scan", "scanned_between"]

ACCUMULATED: Mapping[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
"""The functions of numpy that combine as combiners do."""


SCANS = (
    cumsum(m=12, n=40),
    cumsum(m=9, n=48, axis=0, exclusive=1),
    cumsum(m=8, n=37, axis=0),
)
"""Along rows, along columns, and along columns of which vectors leave a rest."""


def scan(
    shape: tuple[int, ...], along: int, combiner: str = "add", dtype: str = "float32"
) -> Workload:
    """A tensor ``X`` of any number of dimensions, accumulated along one of them."""
    x = Tensor("X", shape, dtype)
    stage = Stage(Tensor("Y", shape, dtype), _axes(shape, along), _at_own_point(shape), combiner)
    return Workload("scan", (x,), (stage,), ("Y",))


def scanned_between(shape: tuple[int, ...], along: int) -> Workload:
    """Running sums of the squares of a tensor, of which each is doubled."""
    square = Binary("mul", _at_own_point(shape), _at_own_point(shape))
    doubled = Binary("add", _at_own_point(shape, "Y"), _at_own_point(shape, "Y"))
    tensors = {name: Tensor(name, shape, "float32") for name in "XPYZ"}
    plain = _axes(shape, None)
    stages = (
        Stage(tensors["P"], plain, square),
        Stage(tensors["Y"], _axes(shape, along), _at_own_point(shape, "P"), "add"),
        Stage(tensors["Z"], plain, doubled),
    )
    return Workload("between", (tensors["X"],), stages, ("Z",))


def _axes(shape: tuple[int, ...], along: int | None) -> tuple[Axis, ...]:
    return tuple(
        Axis(f"a{place}", extent, "scan" if place == along else "spatial")
        for place, extent in enumerate(shape)
    )


def _at_own_point(shape: tuple[int, ...], tensor: str = "X") -> Load:
    return Load(tensor, tuple(var(f"a{place}") for place in range(len(shape))))
