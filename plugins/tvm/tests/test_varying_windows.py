"""Adaptive pooling to lengths that do not divide: windows differ from result to result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm.backend import TVMBackend
from autotune_tvm.importer import import_module
from autotune_tvm.passes.statements import replaced
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te, tirx, topi
from tvm_ffi import structural_equal
from tvm_programs import check_imported

from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import reference_outputs
from autotune.spaces import SketchSpace
from autotune.targets import preset

POOLINGS = {"avg": np.mean, "max": np.max}


def pooled(shape: tuple[int, ...], size: tuple[int, int], kind: str, layout: str = "NCHW") -> Any:
    x = te.placeholder(shape, "float32", "X")
    return te.create_prim_func([x, topi.nn.adaptive_pool(x, size, kind, layout)])


def in_numpy(x: Any, size: tuple[int, int], kind: str, first: int = 2) -> Any:
    """The result by a loop over the output: windows are rounded outwards."""
    parts = [
        [slice(o * extent // count, -(-(o + 1) * extent // count)) for o in range(count)]
        for extent, count in zip(x.shape[first:], size, strict=False)
    ]
    before = (slice(None),) * first
    axes = (first, first + 1)
    rows = [
        np.stack([POOLINGS[kind](x[(*before, h, w)], axis=axes) for w in parts[1]], first)
        for h in parts[0]
    ]
    return np.stack(rows, first)


@settings(max_examples=25, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 13), st.integers(1, 13)),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kind=st.sampled_from(tuple(POOLINGS)),
)
def test_results_are_those_of_numpy(
    shape: tuple[int, ...], size: tuple[int, int], kind: str
) -> None:
    workload, _ = import_module(pooled(shape, size, kind))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (output,) = reference_outputs(workload, {"X": x}).values()
    np.testing.assert_allclose(output, in_numpy(x, size, kind), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", POOLINGS)
@pytest.mark.parametrize(
    ("shape", "size", "layout"),
    [((1, 3, 28, 30), (5, 5), "NCHW"), ((2, 7, 9, 32), (3, 4), "NHWC")],
)
def test_programs_are_right(
    shape: tuple[int, ...], size: tuple[int, int], layout: str, kind: str
) -> None:
    check_imported(pooled(shape, size, kind, layout), every=(kind, layout) == ("avg", "NCHW"))


@pytest.mark.parametrize("cores", [1, 4, 256])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_spaces_are_not_empty(backend: TVMBackend, layout: str, cores: int) -> None:
    workload, _ = import_module(pooled((1, 28, 28, 28), (5, 5), "avg", layout))
    machine = preset("skylake-avx512-4core").with_cores(cores)
    assert SketchSpace(workload, machine, backend.limits(machine)).count() > 1


def test_the_largest_window_bounds_all() -> None:
    """28 elements in 5 windows: those of 6 and 7 elements; 30 make windows of 6 alone."""
    workload, module = import_module(pooled((1, 3, 28, 30), (5, 5), "max"))
    (stage,) = workload.stages
    assert sorted(axis.extent for axis in stage.reduce_axes) == [6, 7]
    assert "30*" not in repr(stage.body)
    assert structural_equal(module["main"], pooled((1, 3, 28, 30), (5, 5), "max"))


def by_lengths() -> Any:
    """Sums of the first elements of rows, as many as an input says."""
    x, count = te.placeholder((6, 32), "float32", "X"), te.placeholder((6,), "int32", "N")

    def total(i: Any) -> Any:
        k = te.reduce_axis((0, count[i]), "k")
        return te.sum(x[i, k], axis=k)

    return te.create_prim_func([x, count, te.compute((6,), total, name="Y")])


def growing(smallest: int) -> Any:
    """Sums of the first elements of rows, one more in each row than in that before."""
    x = te.placeholder((6, 32), "float32", "X")

    def total(i: Any) -> Any:
        k = te.reduce_axis((0, i + smallest), "k")
        return te.sum(x[i, k], axis=k)

    return te.create_prim_func([x, te.compute((6,), total, name="Y")])


def test_triangles_are_reduced_too() -> None:
    workload = check_imported(growing(1), every=True)
    assert [axis.extent for axis in workload.stages[0].axes] == [6, 6]


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (growing(0), "block 'Y_l1': the window of a result has 0 elements"),
        (by_lengths(), "block 'Y_l1': the extent of its window depends on data"),
    ],
)
def test_others_are_refused(program: Any, reason: str) -> None:
    with pytest.raises(UnsupportedWorkload, match=reason):
        import_module(program)


def test_other_updates_are_refused() -> None:

    def halved(node: Any) -> Any:
        if isinstance(node, tirx.BufferStore) and isinstance(node.value, tirx.Max):
            return tirx.BufferStore(node.buffer, node.value * 0.5, node.indices)
        return None

    function = pooled((1, 3, 28, 28), (5, 5), "max")
    changed = replaced(function.body, halved)
    assert not changed.same_as(function.body)
    with pytest.raises(UnsupportedWorkload, match="its update is not output = output"):
        import_module(tvm.IRModule({"main": function.with_body(changed)}))
