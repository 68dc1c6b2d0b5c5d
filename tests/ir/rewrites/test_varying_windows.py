"""Windows of different sizes become windows of one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import Binary, Constant, IndexValue, Load, ScalarExpr, Select, var
from autotune.ir.rewrites.reductions import Reduction, stages_of, window_of, within_windows
from autotune.ir.workloads import Axis, Tensor, Workload, reference_outputs


def ends(extent: int, count: int) -> tuple[ScalarExpr, ScalarExpr]:
    """The begin of each window, and its end by a selection, as programs round upwards."""
    o = var("o")
    last = (o + 1) * extent
    exact = Binary("eq", IndexValue(last % count), Constant(0, "int32"))
    quotient = IndexValue(last // count)
    more = Binary("add", quotient, Constant(1, "int32"))
    return IndexValue(o * extent // count), Select(exact, quotient, more)


@settings(max_examples=30, deadline=None)
@given(
    extent=st.integers(1, 13), count=st.integers(1, 9), combiner=st.sampled_from(("add", "max"))
)
def test_each_result_is_that_of_its_own_window(extent: int, count: int, combiner: str) -> None:
    begin, end = ends(extent, count)
    outer = [Axis("o", count)]
    window = window_of(Binary("sub", end, begin), outer)
    assert window.extent is None or isinstance(window.extent, IndexValue)
    assert isinstance(begin, IndexValue)
    x, y = Tensor("X", (extent,), "float32"), Tensor("Y", (count,), "float32")
    start = Constant(0.0 if combiner == "add" else float("-inf"), "float32")
    update = Binary(combiner, Load("Y", (var("o"),)), Load("X", (begin.index + var("k"),)))
    axes = (*outer, Axis("k", window.most, "reduce"))
    reduction = within_windows(Reduction((y,), axes, (update,), (start,)), {"k": window})
    workload = Workload("pool", (x,), stages_of(reduction, {"X": x}, str), ("Y",))
    numbers = np.random.default_rng(0).standard_normal(extent).astype(np.float32)
    (found,) = reference_outputs(workload, {"X": numbers}).values()
    combine = np.sum if combiner == "add" else np.max
    parts = [numbers[o * extent // count : -(-(o + 1) * extent // count)] for o in range(count)]
    np.testing.assert_allclose(found, [combine(part) for part in parts], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("extent", "reason"),
    [
        (IndexValue(var("o")), "a result has 0 elements"),
        (Load("N", (var("o"),)), "depends on data"),
        (IndexValue(var("o") + var("p") + 1), "at most 1048576 are computed"),
    ],
)
def test_other_windows_are_refused(extent: ScalarExpr, reason: str) -> None:
    with pytest.raises(UnsupportedWorkload, match=reason):
        window_of(extent, [Axis("o", 1 << 11), Axis("p", 1 << 11)])
