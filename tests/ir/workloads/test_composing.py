"""Workloads made of others."""

from __future__ import annotations

import numpy as np

from autotune.ir.workloads import Workload, dense, elementwise, gemm, reference_outputs
from autotune.ir.workloads.composing import Part, composed, computed_where_read


def _chain() -> Workload:
    first = Part(gemm(m=4, n=6, k=3), ("a", "b"), "c", frozenset({"b"}))
    second = Part(elementwise(m=4, n=6), ("c", "z"), "y")
    workload, keys = composed("gemm+elementwise", [first, second])
    assert keys == ("a", "b", "z")
    return workload


def test_what_one_computes_is_read_by_the_next() -> None:
    workload = _chain()
    assert [it.name for it in workload.stages] == ["C", "T", "R", "Y"]
    assert [it.constant for it in workload.inputs] == [False, True, False]
    rng = np.random.default_rng(0)
    arrays = {it.name: rng.standard_normal(it.shape).astype("float32") for it in workload.inputs}
    product = arrays["x0"] @ arrays["x1"]
    (found,) = reference_outputs(workload, arrays).values()
    expected = np.maximum(product * arrays["x2"] + product, 0) * 0.5
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_names_are_made_unique_and_what_two_read_is_one_input() -> None:
    part = elementwise(m=4, n=6)
    workload, keys = composed(
        "twice", [Part(part, ("x", "z"), "once"), Part(part, ("once", "z"), "twice")]
    )
    assert keys == ("x", "z") and [it.name for it in workload.inputs] == ["x0", "x1"]
    assert [it.name for it in workload.stages] == ["T", "R", "Y", "T1", "R1", "Y1"]


def test_a_part_alone_is_the_same_computation() -> None:
    part = dense(m=4, n=6, k=3)
    workload, _ = composed("dense", [Part(part, ("x", "w", "b"), "y")])
    assert workload.digest == part.digest


def test_stages_are_computed_where_they_are_read() -> None:
    workload = _chain()
    fewer = computed_where_read(workload, ["T", "R"])
    assert [it.name for it in fewer.stages] == ["C", "Y"]
    assert fewer.stages[1].reads == ("C", "x2")
    rng = np.random.default_rng(0)
    arrays = {it.name: rng.standard_normal(it.shape).astype("float32") for it in workload.inputs}
    found, expected = (reference_outputs(it, arrays)["Y"] for it in (fewer, workload))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert computed_where_read(workload, []) is workload
