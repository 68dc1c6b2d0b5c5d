"""Kernels of products on tensor cores, for threads of the machine."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.nvcc import read_report
from cuda_threads import Array, Program
from workload_names import named

from autotune.backends import BuildRequest
from autotune.ir.expressions import Binary, Cast, Load, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, reference_outputs
from autotune.measure.validation import error_bound, relative_bound
from autotune.sketches import Candidate
from autotune.targets import Target

__all__ = [
    "ONE_OR_MORE",
    "RIGHT",
    "WRONG",
    "assembled",
    "check",
    "outcome_of",
    "source_of",
    "turned_gemm",
]

ONE_OR_MORE = [
    pytest.param(1, marks=pytest.mark.slow, id="one"),
    pytest.param(3, marks=pytest.mark.long, id="more"),
]
"""How many programs of a workload are compiled and run at most."""

RIGHT, WRONG = "right", "wrong"
_WARPGROUPS = "sm_90a"


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


def outcome_of(program: Program, result: Mapping[str, Array] | int, target: Target) -> int | str:
    """The code that a program ended with, or whether its results are right."""
    if isinstance(result, int):
        return result
    try:
        check(program, result, target)
    except AssertionError:
        return WRONG
    return RIGHT


def assembled(candidate: Candidate, target: Target, folder: Path) -> str:
    """The PTX of a candidate for warpgroups: nothing is spilled, no products are serialised."""
    code, assembly = folder / "kernel.cu", folder / "kernel.ptx"
    code.write_text(source_of(candidate, target))
    command = ["nvcc", "-ptx", f"-arch={_WARPGROUPS}", "-w", "-o", str(assembly), str(code)]
    subprocess.run(command, check=True, capture_output=True)
    text = assembly.read_text()
    assert ".local" not in text
    cubin = folder / "kernel.cubin"
    reporting = ["nvcc", "-cubin", f"-arch={_WARPGROUPS}", "-Xptxas", "-v"]
    command = [*reporting, "-o", str(cubin), str(assembly)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    report = done.stderr + done.stdout
    assert "GMMA" not in report.upper()
    kernels = read_report(report)
    assert kernels
    for kernel in kernels:
        assert kernel.stack_bytes == kernel.spill_loads == 0
    return text
