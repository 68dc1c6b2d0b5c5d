"""Constants of CUDA's driver known by heart, compared with ``cuda.h`` where a toolkit has it."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from autotune.backends import header_folders
from autotune.measure.devices import worker
from autotune.runtime import device
from autotune.targets import cuda_driver, resolution
from autotune.targets.cuda_driver import CudaError

HEADERS = [folder for folder in header_folders() if Path(folder, "cuda.h").is_file()]
pytestmark = pytest.mark.needs("cuda.h")

# The header's own macros name other functions than ours: newer ones, which old drivers lack.
RENAMED = {"cuGraphInstantiateWithFlags": "cuGraphInstantiate"}
OLDER = {"cuEventElapsedTime": "cuEventElapsedTime_v2"}
ATTRIBUTES = {
    "max_threads_per_block": "MAX_THREADS_PER_BLOCK",
    "shared_memory_bytes": "MAX_SHARED_MEMORY_PER_BLOCK",
    "warp_size": "WARP_SIZE",
    "registers_per_block": "MAX_REGISTERS_PER_BLOCK",
    "clock_khz": "CLOCK_RATE",
    "multiprocessors": "MULTIPROCESSOR_COUNT",
    "compute_mode": "COMPUTE_MODE",
    "memory_clock_khz": "MEMORY_CLOCK_RATE",
    "bus_bits": "GLOBAL_MEMORY_BUS_WIDTH",
    "l2": "L2_CACHE_SIZE",
    "max_threads_per_multiprocessor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "major": "COMPUTE_CAPABILITY_MAJOR",
    "minor": "COMPUTE_CAPABILITY_MINOR",
    "shared_memory_per_multiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "registers_per_multiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "max_blocks_per_multiprocessor": "MAX_BLOCKS_PER_MULTIPROCESSOR",
}
CONSTANTS = {
    "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": cuda_driver._DYNAMIC_SHARED_BYTES,
    "CU_STREAM_NON_BLOCKING": cuda_driver._NON_BLOCKING,
    "CU_EVENT_DISABLE_TIMING": cuda_driver._UNTIMED,
    "CU_STREAM_CAPTURE_MODE_RELAXED": cuda_driver._CAPTURE_RELAXED,
    "sizeof(CUtensorMap)": cuda_driver._MAP_BYTES,
    "CU_TENSOR_MAP_DATA_TYPE_UINT8": cuda_driver._MAP_TYPES["int8"],
    "CU_TENSOR_MAP_DATA_TYPE_FLOAT16": cuda_driver._MAP_TYPES["float16"],
    "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16": cuda_driver._MAP_TYPES["bfloat16"],
    "CU_TENSOR_MAP_SWIZZLE_32B": cuda_driver._MAP_SWIZZLES[32],
    "CU_TENSOR_MAP_SWIZZLE_64B": cuda_driver._MAP_SWIZZLES[64],
    "CU_TENSOR_MAP_SWIZZLE_128B": cuda_driver._MAP_SWIZZLES[128],
    "CU_TENSOR_MAP_INTERLEAVE_NONE": cuda_driver._NO_INTERLEAVE,
    "CU_TENSOR_MAP_L2_PROMOTION_L2_128B": cuda_driver._L2_OF_128_BYTES,
    "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE": cuda_driver._ZEROS_BEYOND,
    "CU_COMPUTEMODE_PROHIBITED": resolution._PROHIBITED,
    "CUDA_ERROR_NO_DEVICE": cuda_driver._NO_DEVICE,
    "CUDA_ERROR_OUT_OF_MEMORY": device._OUT_OF_MEMORY,
    "CUDA_ERROR_DEVICE_UNAVAILABLE": device._UNAVAILABLE,
    **{
        f"CU_DEVICE_ATTRIBUTE_{name}": resolution._ATTRIBUTES[ours]
        for ours, name in ATTRIBUTES.items()
    },
}
REFUSED = (
    *("INVALID_VALUE", "OUT_OF_MEMORY", "NO_DEVICE", "INVALID_DEVICE", "INVALID_IMAGE"),
    *("NO_BINARY_FOR_GPU", "INVALID_PTX", "UNSUPPORTED_PTX_VERSION", "INVALID_SOURCE"),
    *("FILE_NOT_FOUND", "INVALID_HANDLE", "NOT_FOUND", "NOT_READY", "LAUNCH_OUT_OF_RESOURCES"),
    *("NOT_SUPPORTED", "STREAM_CAPTURE_UNSUPPORTED", "STREAM_CAPTURE_INVALIDATED"),
    *("STREAM_CAPTURE_MERGE", "STREAM_CAPTURE_UNMATCHED", "STREAM_CAPTURE_UNJOINED"),
    *("STREAM_CAPTURE_ISOLATION", "STREAM_CAPTURE_IMPLICIT", "CAPTURED_EVENT"),
    "STREAM_CAPTURE_WRONG_THREAD",
)
# "The context cannot be used", or "the process must be terminated", says the header.
LOST = (
    *("ILLEGAL_ADDRESS", "LAUNCH_TIMEOUT", "ASSERT", "HARDWARE_STACK_ERROR"),
    *("ILLEGAL_INSTRUCTION", "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC"),
    *("LAUNCH_FAILED", "ECC_UNCORRECTABLE", "NVLINK_UNCORRECTABLE", "CONTEXT_IS_DESTROYED"),
    *("TENSOR_MEMORY_LEAK", "CONTAINED"),
)
NO_BINARY = (
    *("INVALID_IMAGE", "NO_BINARY_FOR_GPU", "INVALID_PTX", "UNSUPPORTED_PTX_VERSION"),
    *("INVALID_SOURCE", "FILE_NOT_FOUND"),
)
# Prints what each parameter is: a number of so many bytes, or a pointer to such.
PROGRAM = r"""
#include <cuda.h>
#include <cstdio>
#include <type_traits>
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
template <class T> void show() {
  using P = std::remove_pointer_t<T>;
  if constexpr (!std::is_pointer_v<T>) {
    std::printf(" %c%zu", std::is_floating_point_v<T> ? 'f' : 'i', sizeof(T));
  } else if constexpr (requires { sizeof(P); } && !std::is_void_v<P>) {
    std::printf(" p%zu", sizeof(P));
  } else {
    std::printf(" p");
  }
}
template <class R, class... A> void function(const char* name, R (*)(A...)) {
  std::printf("%s", name);
  show<R>();
  (show<A>(), ...);
  std::puts("");
}
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Printed lines of the program: functions in the order of ours, then constants."""
    functions = "\n".join(
        f"  function(TEXT({base}), static_cast<decltype(&{base})>(nullptr));"
        for base in map(base_name, cuda_driver._SIGNATURES)
    )
    names = (*CONSTANTS, *(f"CUDA_ERROR_{name}" for name in (*REFUSED, *LOST, *NO_BINARY)))
    constants = "\n".join(
        f'  std::printf("{name} %d\\n", static_cast<int>({name}));' for name in names
    )
    folder = tmp_path_factory.mktemp("header")
    source, binary = folder / "show.cpp", folder / "show"
    source.write_text(f"{PROGRAM}int main() {{\n{functions}\n{constants}\n}}")
    command = ["g++", "-std=c++20", "-w", f"-I{HEADERS[0]}", "-o", str(binary), str(source)]
    subprocess.run(command, check=True)
    return subprocess.run([binary], capture_output=True, text=True, check=True).stdout.splitlines()


def base_name(symbol: str) -> str:
    """The name that a program writes, of which the header makes a symbol."""
    return RENAMED.get(symbol, re.sub(r"_v\d+$", "", symbol))


@pytest.fixture(scope="module")
def values(lines: list[str]) -> dict[str, int]:
    found = (line.rsplit(" ", 1) for line in lines[len(cuda_driver._SIGNATURES) :])
    return {name: int(value) for name, value in found}


def described(kind: Any) -> str:
    """A type of ctypes as the program prints those of C++; any pointer may be one to nothing."""
    if issubclass(kind, ctypes._Pointer):
        return f"p{ctypes.sizeof(kind._type_)}"
    if kind is ctypes.c_char_p:
        return "p1"
    if kind is ctypes.c_void_p:
        return "p"
    letter = "f" if kind in (ctypes.c_float, ctypes.c_double) else "i"
    return f"{letter}{ctypes.sizeof(kind)}"


def test_functions_are_those_of_the_header(lines: list[str]) -> None:
    for (symbol, types), line in zip(cuda_driver._SIGNATURES.items(), lines, strict=False):
        name, result, *parameters = line.split()
        assert name == OLDER.get(symbol, symbol)
        assert result == "i4"
        assert len(parameters) == len(types), symbol
        for wanted, kind in zip(parameters, types, strict=True):
            ours = described(kind)
            assert ours == wanted or (ours == "p" and wanted[0] == "p"), (symbol, wanted, ours)


def test_numbers_are_those_of_the_header(values: dict[str, int]) -> None:
    assert set(ATTRIBUTES) == set(resolution._ATTRIBUTES)
    assert {name: values[name] for name in CONSTANTS} == CONSTANTS


def test_errors_that_lose_the_context_are_told_from_others(values: dict[str, int]) -> None:
    refused = {values[f"CUDA_ERROR_{name}"] for name in REFUSED}
    assert refused == cuda_driver._HARMLESS | cuda_driver._OF_RECORDING
    assert {values[f"CUDA_ERROR_{name}"] for name in NO_BINARY} == worker._NO_BINARY
    for name in LOST:
        assert CudaError("cuCall", values[f"CUDA_ERROR_{name}"], name).loses_context, name
