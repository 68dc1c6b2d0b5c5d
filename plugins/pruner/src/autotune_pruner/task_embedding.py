"""Ten columns that describe a task, the same for all its programs (reference: section 2.2).

Published are substring tests on a printed graph, among them names of operators. Here the
computation itself is looked at, so that it makes no difference who built it and how it is called.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import AffineForm, Binary, Unary
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Workload
from autotune.ir.workloads.workload import Stage

__all__ = ["TASK_COLUMNS", "TASK_VERSION", "task_embedding"]

TASK_VERSION = "task-1"
"""Meaning of the columns; a model trained with another one is not to be used."""

TASK_COLUMNS = (
    "maximum",
    "minimum",
    "addition",
    "convolution",
    "winograd",
    "depthwise",
    "matrix_product",
    "softmax",
    "batched_product",
    "unused",
)
"""``winograd`` is 0: no workload is written that way; the last column is 0 as published."""


def task_embedding(workload: Workload) -> NDArray[np.float32]:
    """The columns ``[10]`` of a workload, each 0 or 1."""
    operations = {
        node.op
        for stage in workload.stages
        for node in walk(stage.body)
        if isinstance(node, (Unary, Binary))
    }
    combiners = {stage.combiner for stage in workload.stages}
    products = [found for stage in workload.stages if (found := _product(stage)) is not None]
    columns: Mapping[str, bool] = {
        "maximum": "max" in operations | combiners,
        "minimum": "min" in operations | combiners,
        "addition": "add" in operations | combiners,
        "convolution": any(p.window and not p.shared for p in products),
        "depthwise": any(p.window and p.shared for p in products),
        "matrix_product": any(not p.window and not p.shared for p in products),
        "softmax": "exp" in operations and {"max", "add"} <= combiners,
        "batched_product": any(not p.window and p.shared for p in products),
    }
    return np.array([columns.get(name, False) for name in TASK_COLUMNS], dtype=np.float32)


@frozen
class _Product:
    """A sum of products of two tensors.

    Attributes:
        window: Whether one is read at sums of a spatial and a reduced axis.
        shared: Whether a spatial axis indexes both, as channels or a batch do.
    """

    window: bool
    shared: bool


def _product(stage: Stage) -> _Product | None:
    multiplies = any(isinstance(node, Binary) and node.op == "mul" for node in walk(stage.body))
    if stage.combiner != "add" or not multiplies or len(stage.loads) != 2:
        return None
    try:
        left, right = (stage.access_map(load) for load in stage.loads)
    except UnsupportedWorkload:
        return None
    spatial = {axis.name for axis in stage.spatial_axes}
    window = any(
        axes & spatial and axes - spatial
        for axes in (set(form.coefficients) for form in (*left, *right))
    )
    return _Product(window, bool(spatial & _axes(left) & _axes(right)))


def _axes(forms: tuple[AffineForm, ...]) -> set[str]:
    return {axis for form in forms for axis in form.coefficients}
