"""Kernels of products on tensor cores, for threads of the machine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from autotune_tvm.backend import TVMBackend
from cuda_threads import Array, Program
from workload_names import named

from autotune.backends import BuildRequest
from autotune.ir.expressions import Binary, Cast, Load, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, reference_outputs
from autotune.measure.validation import error_bound, relative_bound
from autotune.sketches import Candidate
from autotune.targets import Target

__all__ = ["check", "source_of", "turned_gemm"]


def turned_gemm(dtype: str) -> Workload:
    """A product whose left factor lies [k, m], written after the right one."""
    axes = (Axis("i", 64), Axis("j", 32), Axis("k", 64, "reduce"))
    total = "int32" if dtype == "int8" else "float32"
    left, right = Load("A", (var("k"), var("i"))), Load("B", (var("j"), var("k")))
    body = Binary("mul", Cast(total, right), Cast(total, left))
    inputs = (Tensor("A", (64, 64), dtype), Tensor("B", (32, 64), dtype))
    stage = Stage(Tensor("C", (64, 32), total), axes, body, "add")
    return Workload("turned", inputs, (stage,), ("C",))


def source_of(candidate: Candidate, target: Target) -> str:
    """CUDA source of a candidate."""
    workload = candidate.sketch.workload
    return TVMBackend().cuda_source(BuildRequest(workload, None, candidate, target, threads=1))


def check(program: Program, found: Mapping[str, Array], target: Target) -> None:
    """Compare what a program computed with the reference, by the bounds of measuring."""
    expected = reference_outputs(program.workload, dict(program.inputs))
    for name, array in expected.items():
        element = program.workload.tensors[name].element
        wanted, got = element.numbers(array), element.numbers(found[name])
        bound = error_bound(wanted, relative_bound(program.workload, name, target))
        assert np.all(np.abs(got.astype(np.float64) - wanted) <= bound), named(program.workload)
