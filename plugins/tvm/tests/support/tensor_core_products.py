"""TVM's source of products on tensor cores, and what it is assembled to."""

from __future__ import annotations

import subprocess
from pathlib import Path

from autotune_tvm.backend import TVMBackend
from autotune_tvm.nvcc import read_report

from autotune.backends import BuildRequest
from autotune.sketches import Candidate
from autotune.targets import Target

__all__ = ["assembled", "source_of"]

_WARPGROUPS = "sm_90a"


def source_of(candidate: Candidate, target: Target) -> str:
    """CUDA source of a candidate."""
    workload = candidate.sketch.workload
    return TVMBackend().cuda_source(BuildRequest(workload, None, candidate, target, threads=1))


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
