"""Resource usage reported by nvcc: registers, shared memory, stack and spills of every kernel.

No device is needed: the source is compiled to a cubin, and the assembler that writes it reports
what every kernel takes.
"""

from __future__ import annotations

import re
import shutil

from attrs import frozen

from autotune.backends import BuildFailed, run_nvcc

__all__ = ["KernelResources", "find_nvcc", "kernel_resources", "read_report"]

_ENTRY = re.compile(r"Compiling entry function '(\S+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@frozen
class KernelResources:
    """Resource usage of one kernel.

    Attributes:
        kernel: Its name.
        registers: 32-bit registers of a thread.
        shared_bytes: Shared memory of a block, alignment between buffers included; without what
            the system reserves.
        stack_bytes: Stack of a thread: spilled registers, and arrays that got no registers.
        spill_stores: Bytes that stores of spilled registers write, per thread, each instruction
            counted once.
        spill_loads: Bytes that loads of them read.
    """

    kernel: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_stores: int
    spill_loads: int


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


def read_report(text: str) -> tuple[KernelResources, ...]:
    """Kernels of the report that ``ptxas -v`` writes, by name.

    Raises:
        BuildFailed: its output lacks a kernel's registers or stack.
    """
    found = []
    _, *pieces = _ENTRY.split(text)
    for kernel, about in zip(pieces[::2], pieces[1::2], strict=True):
        frame, registers = _FRAME.search(about), _REGISTERS.search(about)
        shared = _SHARED.search(about)
        if frame is None or registers is None:
            raise BuildFailed(f"the assembler's report on {kernel} is not understood: {about!r}")
        stack, stores, loads = map(int, frame.groups())
        memory = int(shared.group(1)) if shared else 0
        found.append(
            KernelResources(kernel, int(registers.group(1)), memory, stack, stores, loads)
        )
    return tuple(sorted(found, key=lambda resources: resources.kernel))
