"""A backend some of whose programs do on a device what no program should."""

from __future__ import annotations

import json
import os
from types import MappingProxyType

from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.cuda_code import cuda_source

from autotune.backends import (
    CudaExecutable,
    Executable,
    KernelLaunch,
    LoweredProgram,
    cubin_architecture,
    find_cuda_compiler,
)

__all__ = ["FAULTS", "FAULTY_BACKEND", "VARIABLE", "FaultyBackend"]

FAULTY_BACKEND = "device_faults:FaultyBackend"
VARIABLE = "AUTOTUNE_TEST_DEVICE_FAULTS"
"""Environment variable with a JSON object: faults by digest of the candidate that has one."""

FAULTS = MappingProxyType(
    {
        "illegal": "*(volatile int*)16 = 1;",
        "misaligned": "*(volatile int*)((char*)input + 1) = 1;",
        "trap": "__trap();",
        "endless": "while (*(volatile int*)input != 0x12345678) __nanosleep(1000);",
        "beside": "((volatile char*)output)[BYTES] = 0;",
        "input": "((volatile char*)input)[0] ^= 1;",
        "too much shared memory": "",
        "nothing": "",
    }
)
"""Faults of a kernel that follows those of the program, with the first input and the output."""

_KERNEL = """
extern "C" __global__ void fault_kernel(void* input, void* output) { BODY }
"""
_TOO_MUCH = 300 << 10


class FaultyBackend(TVMBackend):
    """TVM's, with a fault in some programs."""

    def compile(self, lowered: LoweredProgram) -> Executable:
        """Compile with TVM; a candidate that has a fault gets a kernel more, or none."""
        request = lowered.request
        faults = json.loads(os.environ.get(VARIABLE, "{}"))
        if request.candidate is None or request.candidate.digest not in faults:
            return super().compile(lowered)
        fault, workload = faults[request.candidate.digest], request.workload
        (output,), source = workload.outputs, cuda_source(lowered.program, request.target)
        body = FAULTS[fault].replace("BYTES", str(workload.tensors[output].bytes))
        cubin = find_cuda_compiler().compile(
            source + _KERNEL.replace("BODY", body),
            cubin_architecture(request.target.processor),
            (),
        )
        program = lowered.program.program(cubin, fast_math=False)
        shared = _TOO_MUCH if fault.startswith("too much") else 0
        arguments = workload.inputs[0].name, output
        more = KernelLaunch("fault_kernel", (1, 1, 1), (1, 1, 1), shared, arguments)
        kept = () if fault == "nothing" else program.launches
        return CudaExecutable(evolve(program, launches=(*kept, more)))
