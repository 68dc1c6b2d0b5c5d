"""A network on a CUDA device as a shared library for Relax's virtual machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tvm import relax
from tvm.ir import IRModule
from tvm.ir.transform import Sequential
from tvm.relax.backend.gpu_generic import pipeline

from autotune.backends import BuildFailed, find_cuda_compiler
from autotune.errors import InvalidValueError
from autotune.targets import Target
from autotune_tvm import compiler, cuda_measuring
from autotune_tvm.cuda_code import compiling_with
from autotune_tvm.networks.native_messages import without_messages

__all__ = ["build_cuda_executable", "write_cuda_library"]

_NEEDED = (
    "it runs in TVM's virtual machine on device 'cuda', whose runtime needs the driver and "
    "libcudart: VirtualMachine(tvm.runtime.load_module(PATH), tvm.cuda(0))"
)


def build_cuda_executable(module: IRModule, target: Target) -> Any:
    """Let TVM compile a network whose functions are scheduled; needs no device.

    Machine code is made by NVRTC or nvcc for ``target``, by the compiler that measures programs.

    Returns:
        An executable of Relax's virtual machine.

    Raises:
        BuildFailed: TVM or the compiler of CUDA source rejected it.
        NoCudaCompiler: there is no such compiler.
    """
    described = compiler.described_target(target, 1)
    lowering = [*pipeline.dataflow_lower_passes(described), *pipeline.finalize_passes(described)]
    cuda, options = find_cuda_compiler(), cuda_measuring.compiler_options()

    def cubin(source: str) -> bytes:
        return cuda.compile(source, target.processor, options)

    try:
        with described, without_messages(), compiling_with(cubin):
            return relax.build(
                module, described, relax_pipeline=Sequential(lowering), tir_pipeline="default"
            )
    except Exception as error:  # TVM raises whatever its passes raise
        raise BuildFailed(compiler.brief(error)) from error


def write_cuda_library(module: IRModule, target: Target, path: Path) -> tuple[str, ...]:
    """Write a shared library with kernels and weights in it.

    Returns:
        What it needs where it runs.

    Raises:
        BuildFailed: as of :func:`build_cuda_executable`.
        InvalidValueError: the file cannot be written.
    """
    executable = build_cuda_executable(module, target)
    try:
        with without_messages():
            executable.export_library(str(path))
    except Exception as error:  # the linker's failure is a RuntimeError, and others
        why = compiler.brief(error)
        raise InvalidValueError(f"{str(path)!r} cannot be written: {why}") from error
    return (_NEEDED,)
