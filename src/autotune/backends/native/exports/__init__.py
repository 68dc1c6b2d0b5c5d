"""Kernels as files for other programs: C, objects, shared libraries, libraries of TVM-FFI."""

from autotune.backends.native.exports.files import (
    FORMATS,
    combined_object,
    export_kernel,
    object_of,
    shared_library,
)
from autotune.backends.native.exports.kernel import Kernel, kernel_of
from autotune.backends.native.exports.machines import (
    Machine,
    is_triple,
    machine_of,
    machine_of_triple,
)
from autotune.backends.native.exports.tvm_ffi import Entry, Taken, ffi_file

__all__ = [
    "FORMATS",
    "Entry",
    "Kernel",
    "Machine",
    "Taken",
    "combined_object",
    "export_kernel",
    "ffi_file",
    "is_triple",
    "kernel_of",
    "machine_of",
    "machine_of_triple",
    "object_of",
    "shared_library",
]
