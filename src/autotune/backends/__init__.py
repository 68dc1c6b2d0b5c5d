"""Backends: the interface; implementations are plugins."""

from __future__ import annotations

from autotune.backends.arrays import (
    ALIGNMENT,
    aligned_copy,
    aligned_empty,
    bind_copies,
    check_arguments,
    host_array,
    poison_array,
)
from autotune.backends.backend import (
    Backend,
    BoundCall,
    BuildFailed,
    BuildRequest,
    Executable,
    ExportReport,
    ForeignSchedule,
    ForeignSchedules,
    ImportedProgram,
    InvalidSchedule,
    LoweredProgram,
    UnsupportedExport,
)
from autotune.backends.cuda_compilers import (
    COMPILER_VARIABLE,
    CudaCompiler,
    NoCudaCompiler,
    cubin_architecture,
    find_cuda_compiler,
    header_folders,
    run_nvcc,
)
from autotune.backends.cuda_program import (
    CudaExecutable,
    CudaProgram,
    DeviceBuffer,
    KernelLaunch,
    TensorMap,
)
from autotune.backends.native_bound_call import NativeBoundCall
from autotune.backends.native_call import (
    NativeCall,
    NativeCallFailed,
    sample_native_call,
    time_native_call,
)
from autotune.backends.packed_constants import PackedConstants
from autotune.backends.parking import park_threads
from autotune.backends.program_file import ProgramFile
from autotune.backends.serial_sums import LEAST_IN_SUM, SECONDS_PER_ADDITION, serial_seconds

__all__ = [
    "ALIGNMENT",
    "Backend",
    "BoundCall",
    "BuildFailed",
    "BuildRequest",
    "COMPILER_VARIABLE",
    "CudaCompiler",
    "CudaExecutable",
    "CudaProgram",
    "DeviceBuffer",
    "Executable",
    "ExportReport",
    "ForeignSchedule",
    "ForeignSchedules",
    "ImportedProgram",
    "InvalidSchedule",
    "KernelLaunch",
    "LEAST_IN_SUM",
    "LoweredProgram",
    "NativeBoundCall",
    "NativeCall",
    "NativeCallFailed",
    "NoCudaCompiler",
    "PackedConstants",
    "ProgramFile",
    "SECONDS_PER_ADDITION",
    "TensorMap",
    "UnsupportedExport",
    "aligned_copy",
    "aligned_empty",
    "bind_copies",
    "check_arguments",
    "cubin_architecture",
    "find_cuda_compiler",
    "header_folders",
    "host_array",
    "park_threads",
    "poison_array",
    "run_nvcc",
    "sample_native_call",
    "serial_seconds",
    "time_native_call",
]
