"""The backend: a candidate's loop nest, printed as CUDA C++ and compiled by NVRTC or nvcc."""

from __future__ import annotations

import hashlib

from autotune.backends.backend import (
    Backend,
    BuildRequest,
    Executable,
    ImportedProgram,
    InvalidSchedule,
    LoweredProgram,
)
from autotune.backends.cuda import measuring
from autotune.backends.cuda_compilers import (
    NoCudaCompiler,
    cubin_architecture,
    find_cuda_compiler,
)
from autotune.backends.cuda_program import (
    CudaExecutable,
    CudaProgram,
    DeviceBuffer,
    KernelLaunch,
    TensorMap,
)
from autotune.backends.native import candidate_of
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.lower.kernels import PrintedKernels, print_kernels
from autotune.sketches import STEP_TYPES
from autotune.sketches.limits import ScheduleLimits
from autotune.targets import Target, check_is_cuda

__all__ = ["CudaBackend"]

# A thread has at most 255 registers of 4 bytes; what is larger is never kept in them.
_THREAD_REGISTER_BYTES = 1020

# Of fully unrolled code: what NVRTC compiles within seconds.
_UNROLLED_STATEMENTS = 512

# What the printer has no kernels of: steps of CPUs, bounded loops, scans in parts.
_NOT_PRINTED = (
    *("bound_loop", "chunk_scan", "parallel", "interleave", "prepack", "prefetch"),
    *("software_pipeline", "stream", "tensorize"),
)


class CudaBackend(Backend):
    """Loop nests as CUDA C++; needs no compiler but NVRTC, or nvcc."""

    name = "cuda"
    version = "1"
    device_kinds = frozenset({"cuda"})

    def compiler_version(self) -> str:
        """The compiler of the source, and whether by fast math; "" where there is none."""
        try:
            return measuring.compiler_described()
        except NoCudaCompiler:
            return ""

    def check_target(self, target: Target) -> None:
        """Raises UnsupportedTarget unless ``target`` is a current CUDA device."""
        check_is_cuda(target, self.name)

    def check_measuring(self, target: Target, threads: int = 1) -> None:
        """Raises UnsupportedTarget unless such a device and a compiler for it are here."""
        self.check_target(target)
        measuring.check_cuda(target)

    def limits(self, target: Target) -> ScheduleLimits:
        """The limits of what is printed.

        Raises:
            UnsupportedTarget: the backend cannot compile for ``target``.
        """
        self.check_target(target)
        return ScheduleLimits(
            steps=frozenset(STEP_TYPES) - set(_NOT_PRINTED),
            stack_bytes=_THREAD_REGISTER_BYTES,
            unrolled_statements=_UNROLLED_STATEMENTS,
            source="backend cuda",
        )

    def worker_environment(self, threads: int) -> dict[str, str]:
        """Nothing: a worker only compiles."""
        return {}

    def warm_up(self) -> None:
        """Find the compiler."""
        find_cuda_compiler()

    def imports(self, program: object) -> bool:
        """No program is of this backend's own kind: workloads are what it prints."""
        return False

    def import_program(self, program: object) -> ImportedProgram:
        """Raises UnsupportedWorkload: programs are read by importers."""
        raise UnsupportedWorkload(
            f"backend 'cuda' prints workloads, and reads no {type(program).__name__}"
        )

    def lower(self, request: BuildRequest) -> LoweredProgram:
        """Print the candidate's loop nest.

        Raises:
            InvalidSchedule: its steps or values give no nest that can be printed.
            UnsupportedTarget: it is no current CUDA device.
        """
        self.check_target(request.target)
        try:
            kernels = print_kernels(candidate_of(request), request.target)
        except (InvalidValueError, UnsupportedWorkload) as error:
            raise InvalidSchedule(str(error)) from error
        digest = hashlib.sha256(f"{request.target.processor}\n{kernels.source}".encode())
        return LoweredProgram(request, kernels, digest.hexdigest())

    def compile(self, lowered: LoweredProgram) -> Executable:
        """Compile with NVRTC or nvcc.

        Raises:
            BuildFailed: the compiler rejected the program.
            NoCudaCompiler: there is none.
        """
        kernels: PrintedKernels = lowered.program
        architecture = cubin_architecture(lowered.request.target.processor)
        options = measuring.compiler_options()
        cubin = find_cuda_compiler().compile(kernels.source, architecture, options)
        return CudaExecutable(_program(kernels, cubin))

    def show(self, request: BuildRequest) -> str:
        """The program as CUDA C++.

        Raises:
            InvalidSchedule: it cannot be printed.
        """
        return str(self.lower(request).program.source)


def _program(kernels: PrintedKernels, cubin: bytes) -> CudaProgram:
    launches = tuple(
        KernelLaunch(
            *(it.name, it.grid, it.block, it.shared_bytes, it.arguments),
            maps=tuple(TensorMap(box.buffer, box.dtype, box.shape, box.box) for box in it.boxes),
        )
        for it in kernels.kernels
    )
    between = tuple(
        DeviceBuffer(it.name, it.bytes, element_type(it.dtype).is_float)
        for it in kernels.intermediates
    )
    return CudaProgram(cubin, launches, between, measuring.fast_math())
