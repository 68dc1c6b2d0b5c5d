"""Workloads that scan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from written import written

from autotune.ir.workloads import Workload, cumsum

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
    at, axes, extents = _axes(shape, along)
    combine = {"add": "+", "mul": "*"}.get(combiner, combiner)
    stage = f"Y[{axes}]: {dtype} {combine}= X[{at}]"
    return written(f"X[{at}]: {dtype}", stage, name="scan", **extents)


def scanned_between(shape: tuple[int, ...], along: int) -> Workload:
    """Running sums of the squares of a tensor, of which each is doubled."""
    at, axes, extents = _axes(shape, along)
    square, doubled = f"P[{at}] = X[{at}] * X[{at}]", f"Z[{at}] = Y[{at}] + Y[{at}]"
    return written(f"X[{at}]", square, f"Y[{axes}] += P[{at}]", doubled, name="between", **extents)


def _axes(shape: tuple[int, ...], along: int) -> tuple[str, str, dict[str, int]]:
    """Indices of a point, axes of which one is scanned, and their extents."""
    extents = {f"a{place}": extent for place, extent in enumerate(shape)}
    marked = (f"~{name}" if place == along else name for place, name in enumerate(extents))
    return ", ".join(extents), ", ".join(marked), extents
