"""Resource usage reported by nvcc: registers, shared memory, stack and spills of every kernel.

No device is needed: the source is compiled to a cubin, and the assembler that writes it reports
what every kernel takes.
"""

from __future__ import annotations

import shutil

from autotune.backends import BuildFailed, KernelResources, read_report, run_nvcc

__all__ = ["KernelResources", "find_nvcc", "kernel_resources", "read_report"]


def find_nvcc() -> str | None:
    """Path of nvcc, or None where there is none."""
    return shutil.which("nvcc")


def kernel_resources(source: str, architecture: str) -> tuple[KernelResources, ...]:
    """Compile ``source`` for ``architecture``, such as ``"sm_80"``, and say what kernels take.

    Takes half a second or more.

    Raises:
        BuildFailed: there is no nvcc, or it rejects the source or the architecture.
    """
    nvcc = find_nvcc()
    if nvcc is None:
        raise BuildFailed("nvcc is not on the PATH")
    _, report = run_nvcc(nvcc, source, architecture, ("-Xptxas", "-v"))
    return read_report(report)
