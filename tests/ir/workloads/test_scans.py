"""Stages whose results continue one another along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scanned import ACCUMULATED, scan

from autotune.errors import InvalidValueError
from autotune.ir.converter import from_json, to_json
from autotune.ir.expressions import Load, var
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    cumsum,
    random_inputs,
    reference_outputs,
)
from autotune.ir.workloads import reference as reference_module

Array = NDArray[Any]
SHAPES = st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple)


def result(workload: Workload, x: Array) -> Array:
    (found,) = reference_outputs(workload, {"X": x}).values()
    return found


@given(
    shape=SHAPES,
    axis=st.integers(0, 2),
    combiner=st.sampled_from(tuple(ACCUMULATED)),
    dtype=st.sampled_from(("float32", "float64", "int32", "int8")),
    seed=st.integers(0, 9),
)
def test_results_are_those_of_numpy(
    shape: tuple[int, ...], axis: int, combiner: str, dtype: str, seed: int
) -> None:
    along = axis % len(shape)
    workload = scan(shape, along, combiner, dtype)
    (x,) = random_inputs(workload, np.random.default_rng(seed)).values()
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    wanted = ACCUMULATED[combiner].accumulate(wide, axis=along, dtype=wide.dtype).astype(dtype)
    np.testing.assert_array_equal(result(workload, x), wanted)
    assert from_json(Workload, to_json(workload)) == workload


@pytest.mark.parametrize("axis", [0, 1])
def test_exclusive_sums_leave_an_element_itself_out(axis: int) -> None:
    x = np.arange(1.0, 13).reshape(3, 4).astype(np.float32)
    whole = result(cumsum(m=3, n=4, axis=axis), x)
    np.testing.assert_array_equal(result(cumsum(m=3, n=4, axis=axis, exclusive=1), x), whole - x)


@pytest.mark.parametrize("axis", [0, 1])
def test_halves_are_summed_in_single_precision(axis: int) -> None:
    workload = cumsum(m=40, n=50, axis=axis, dtype="float16")
    (x,) = random_inputs(workload, np.random.default_rng(0)).values()
    wanted = np.cumsum(x.astype(np.float64), axis=axis).astype(np.float16)
    np.testing.assert_array_equal(result(workload, x), wanted)


@pytest.mark.parametrize("axis", [0, 1])
def test_evaluating_in_parts_changes_nothing(axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = cumsum(m=9, n=11, axis=axis)
    (x,) = random_inputs(workload, np.random.default_rng(0)).values()
    whole = result(workload, x)
    monkeypatch.setattr(reference_module, "_CHUNK_POINTS", 20)
    np.testing.assert_array_equal(result(workload, x), whole)


def test_the_axis_and_the_order_are_part_of_the_digest() -> None:
    made = {cumsum(m=4, n=4, axis=a, exclusive=e).digest for a in (0, 1) for e in (0, 1)}
    assert len(made) == 4


@pytest.mark.parametrize(
    ("kinds", "combiner", "message"),
    [
        (("spatial", "scan"), None, "so do a scan axis"),
        (("scan", "scan"), "add", "one scan axis"),
        (("scan", "reduce"), "add", "no reduce axis beside it"),
        (("spatial", "scanned"), "add", "is of kind 'scanned'; allowed: spatial, reduce, scan"),
    ],
)
def test_a_scan_has_one_axis_and_a_combiner(
    kinds: tuple[str, str], combiner: str | None, message: str
) -> None:
    axes = tuple(Axis(name, 4, kind) for name, kind in zip("ij", kinds, strict=True))
    shape = tuple(axis.extent for axis in axes if axis.kind != "reduce")
    body = Load("X", (var("i"), var("j")))
    stage = Stage(Tensor("Y", shape, "float32"), axes, body, combiner)
    with pytest.raises(InvalidValueError, match=message):
        Workload("scan", (Tensor("X", (4, 4), "float32"),), (stage,), ("Y",))


def test_its_axis_indexes_the_output() -> None:
    (stage,) = cumsum(m=2, n=3).stages
    assert stage.spatial_axes == stage.axes and not stage.reduce_axes
    assert stage.scan_axis == Axis("j", 3, "scan")
    plain = tuple(evolve(axis, kind="spatial") for axis in stage.axes)
    assert evolve(stage, axes=plain, combiner=None).scan_axis is None
