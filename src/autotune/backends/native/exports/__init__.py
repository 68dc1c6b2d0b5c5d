"""Kernels as files for other programs: C, objects, shared libraries, libraries of TVM-FFI."""

from autotune.backends.native.exports.features import (
    Machine,
    is_triple,
    machine_of,
    machine_of_triple,
)
from autotune.backends.native.exports.files import (
    FORMATS,
    Entry,
    Taken,
    check_header,
    combined_object,
    export_kernel,
    ffi_file,
    ffi_network,
    find_compiler,
    link_library,
    object_of,
    shared_library,
    with_prefix,
    write_data_object,
)
from autotune.backends.native.exports.kernel import Kernel, kernel_of

__all__ = [
    "FORMATS",
    "Entry",
    "Kernel",
    "Machine",
    "Taken",
    "check_header",
    "combined_object",
    "export_kernel",
    "ffi_file",
    "ffi_network",
    "find_compiler",
    "is_triple",
    "kernel_of",
    "link_library",
    "machine_of",
    "machine_of_triple",
    "object_of",
    "shared_library",
    "with_prefix",
    "write_data_object",
]
