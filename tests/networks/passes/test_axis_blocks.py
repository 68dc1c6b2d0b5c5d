"""Workloads that read an input before it was reshaped."""

from __future__ import annotations

import numpy as np

from autotune.ir.expressions import Binary, Load, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.ir.workloads.reference import reference_outputs
from autotune.networks.passes.views import axis_groups, on_other_axes


def test_two_inputs_are_read_before_their_reshapes_one_after_the_other() -> None:
    """Axes of the second change have names that the first one's do not have."""
    sums = Stage(
        Tensor("C", (6, 4), "float32"),
        (Axis("i", 6), Axis("j", 4)),
        Binary("add", Load("A", (var("i"),)), Load("B", (var("j"),))),
    )
    inputs = Tensor("A", (6,), "float32"), Tensor("B", (4,), "float32")
    workload = Workload("sums", inputs, (sums,), ("C",))
    first = on_other_axes(workload, "A", (2, 3), axis_groups((2, 3), (6,)))
    assert first is not None
    second = on_other_axes(first.workload, "B", (2, 2), axis_groups((2, 2), (4,)))
    assert second is not None
    a, b = np.arange(6, dtype=np.float32), np.arange(4, dtype=np.float32) / 8
    given = {"A": a.reshape(2, 3), "B": b.reshape(2, 2)}
    (found,) = reference_outputs(second.workload, given).values()
    np.testing.assert_array_equal(found.reshape(6, 4), a[:, None] + b)
