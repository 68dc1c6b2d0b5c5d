"""Programs of truth values: LLVM and nvcc take them, and kernels compute the reference."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from autotune_tvm.importer import import_module
from autotune_tvm.nvcc import kernel_resources
from autotune_tvm.passes.booleans import (
    compare_booleans,
    compares_booleans,
    narrow_boolean_vectors,
)
from autotune_tvm.replay import schedule
from cuda_threads import run_all
from kernel_programs import program_of, source_of
from tvm import te, tirx
from written import written

from autotune.ir.workloads import Workload, reference_outputs
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.targets import preset

TARGET = preset("a100")


def pointwise(body: str, result: str, **inputs: str) -> Workload:
    tensors = ", ".join(f"{name}[32, 128]: {dtype}" for name, dtype in inputs.items())
    return written(tensors, f"Y[i:32, j:128]: {result} = {body}", name="pointwise")


A, B = "A[i, j]", "B[i, j]"
# With the widest vectors that are left of each.
WORKLOADS = {
    "copied": (pointwise(A, "bool", A="bool"), 1),
    "negated": (pointwise(f"not {A}", "bool", A="bool"), 1),
    "mask": (pointwise(f"{B} if {A} else 0.0", "float32", A="bool", B="float32"), 1),
    "stored": (pointwise(f"{A} > {B}", "bool", A="int32", B="int32"), 1),
    "compared": (pointwise(f"{A} if {A} > {B} else {B}", "int8", A="int8", B="int8"), 4),
}


def in_widest_vectors(workload: Workload) -> Candidate:
    space = SketchSpace(workload, TARGET, TVMBackend().limits(TARGET))
    found = space.sample(200, np.random.default_rng(0))
    return max(found, key=lambda it: it.config["Y.j.2"])


def vectors_of(module: Any) -> set[int]:
    text = narrow_boolean_vectors(module).script()
    return set(map(int, re.findall(r"T\.vectorized\((\d+)\)", text)))


@pytest.mark.parametrize("kind", WORKLOADS)
def test_vectors_are_as_wide_as_cuda_has_them(kind: str) -> None:
    workload, lanes = WORKLOADS[kind]
    candidate = in_widest_vectors(workload)
    assert candidate.config["Y.j.2"] > lanes
    scheduled = schedule(module_for(workload), candidate, workload).mod
    assert vectors_of(scheduled) == ({lanes} if lanes > 1 else set())


def test_other_vectors_stay_as_they_are() -> None:
    largest = pointwise(f"max({A}, {B})", "int8", A="int8", B="int8")
    module = schedule(module_for(largest), in_widest_vectors(largest), largest).mod
    assert narrow_boolean_vectors(module).functions == module.functions


def test_kernels_compute_the_reference(tmp_path: Path) -> None:
    programs = [program_of(in_widest_vectors(it), TARGET) for it, _ in WORKLOADS.values()]
    whole = [it for it in programs if it is not None]
    assert len(whole) == len(WORKLOADS)
    for program, found in zip(whole, run_all(whole, tmp_path), strict=True):
        wanted = reference_outputs(program.workload, dict(program.inputs))
        np.testing.assert_array_equal(found["Y"], wanted["Y"])


@pytest.mark.slow
@pytest.mark.needs("nvcc")
@pytest.mark.parametrize("kind", ["negated", "mask"])
def test_nvcc_takes_them(kind: str) -> None:
    workload, _ = WORKLOADS[kind]
    assert kernel_resources(source_of(in_widest_vectors(workload), TARGET), "sm_80")


def compared(kind: Any, left: Any, right: Any, i: Any, j: Any) -> Any:
    return kind(left[i, j], right[i, j])


def test_only_comparisons_of_truth_values_change() -> None:
    shape = (5, 6)
    left, right = (te.placeholder(shape, "bool", name) for name in "AB")
    number = te.placeholder(shape, "float32", "X")
    other = te.compute(shape, lambda i, j: tirx.Not(number[i, j] > 0.0), "Z")
    for kind, sign in ((tirx.EQ, "=="), (tirx.NE, "!="), (tirx.LT, "<")):
        same = te.compute(shape, partial(compared, kind, left, right), "Y")
        workload, module = import_module(te.create_prim_func([left, right, number, same, other]))
        assert compares_booleans(workload)
        text = compare_booleans(module).script()
        line = 'Y[v_i, v_j] = T.Cast("int32", A[v_i, v_j]) {} T.Cast("int32", B[v_i, v_j])'
        assert line.format(sign) in text
        assert "Z[v_i, v_j] = X[v_i, v_j] <= T.float32(0.0)" in text


def test_other_programs_stay_as_they_are() -> None:
    number = te.placeholder((4,), "float32", "X")
    positive = te.compute((4,), lambda i: number[i] > 0.0, "Y")
    workload, module = import_module(te.create_prim_func([number, positive]))
    assert not compares_booleans(workload)
    assert compare_booleans(module).same_as(module)
