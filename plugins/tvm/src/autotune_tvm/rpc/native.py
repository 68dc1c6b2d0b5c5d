"""The core's own backend for programs that run on RPC servers: as functions of TVM-FFI."""

from __future__ import annotations

from typing import Any

from autotune.backends import BuildRequest, Executable, LoweredProgram
from autotune.backends.native import NativeBackend, candidate_of
from autotune.backends.native.exports import (
    Entry,
    Kernel,
    ffi_file,
    kernel_of,
    machine_of,
    object_of,
)
from autotune.backends.native.machine_code import digest_of
from autotune_tvm import artefact
from autotune_tvm.executable import PackedArray, PackedOperand, packer_name
from autotune_tvm.rpc.backend import Linkable, ServedBackend

__all__ = ["NativeRPCBackend"]

_NAME = "kernel"


class NativeRPCBackend(ServedBackend, NativeBackend):
    """The backend ``native`` of worker processes that the runner ``rpc`` starts."""

    def __init__(self, context: Any = None) -> None:
        NativeBackend.__init__(self)
        ServedBackend.__init__(self)

    def compile(self, lowered: LoweredProgram) -> Executable:
        """Generate code, for :meth:`Executable.export`.

        Raises:
            BuildFailed: LLVM rejected the program.
        """
        request = lowered.request
        kernel = _kernel(request)
        whole = object_of(kernel)
        stored = _stored(kernel, request, digest_of(whole))
        *packers, run = kernel.calls
        names = (packer_name(operand.position) for operand in stored.packed)
        entries = [Entry.of(kernel, *it) for it in zip(packers, names, strict=True)]
        entries.append(Entry.of(kernel, run, "main"))
        parts = {"kernel.o": whole, "functions.c": ffi_file([kernel], entries).encode()}
        return Linkable(parts, stored, self._toolchain.link_parts, stored.digest)


def _kernel(request: BuildRequest) -> Kernel:
    candidate = candidate_of(request)
    choice = candidate, request.target, machine_of(request.target)
    return kernel_of(_NAME, [choice], request.threads)


def _stored(kernel: Kernel, request: BuildRequest, digest: str) -> artefact.StoredProgram:
    """Its arguments: inputs, outputs, and what is packed, which has the names of constants."""
    workload = request.workload
    names = [*(it.name for it in workload.inputs), *workload.outputs]
    *packers, _ = kernel.calls
    packed = []
    for call in packers:
        names.append(workload.inputs[call.positions[0]].name)
        arrays = (PackedArray(memory.shape, "uint8") for memory in call.arguments[1:])
        packed.append(PackedOperand(len(names) - 1, tuple(arrays)))
    return artefact.StoredProgram(tuple(names), digest, tuple(packed))
