"""CUDA programs as data, and the compilers that make their machine code."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from autotune.backends import (
    COMPILER_VARIABLE,
    BuildFailed,
    CudaExecutable,
    CudaProgram,
    DeviceBuffer,
    KernelLaunch,
    NoCudaCompiler,
    TensorMap,
    cubin_architecture,
    find_cuda_compiler,
)
from autotune.backends import cuda_compilers as compilers
from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedTarget
from autotune.measure.devices.worker import CHECK_SOURCE

PROGRAM = CudaProgram(
    b"\x7fELF code",
    (KernelLaunch("main_kernel", (16, 1, 1), (128, 2, 1), 73728, ("A", "B", "C")),),
    (DeviceBuffer("S", 256, True),),
)


@given(
    st.binary(),
    st.lists(st.tuples(st.integers(1, 2**31 - 1), st.integers(1, 1024), st.integers(0, 2**20))),
    st.booleans(),
)
def test_a_program_survives_json(
    code: bytes, launched: list[tuple[int, int, int]], fast: bool
) -> None:
    launches = tuple(
        KernelLaunch(f"k{n}", (grid, 1, 1), (block, 1, 1), shared, ("A", "S"))
        for n, (grid, block, shared) in enumerate(launched)
    )
    program = CudaProgram(code, launches, PROGRAM.intermediates, fast)
    back = CudaProgram.from_json(json.loads(json.dumps(program.to_json())))
    assert back == program
    assert back.digest == program.digest


def test_the_digest_is_of_code_and_launches() -> None:
    more = evolve(PROGRAM.launches[0], shared_bytes=0)
    others = [
        evolve(PROGRAM, cubin=b"\x7fELF other"),
        evolve(PROGRAM, launches=(more,)),
        evolve(PROGRAM, fast_math=True),
    ]
    assert len({PROGRAM.digest, *(other.digest for other in others)}) == 4


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"cubin": "no base 64!"}, "no program"),
        ({"launches": [{"kernel": "k"}]}, "grid"),
        ({"intermediates": [{"name": "S", "bytes": 0, "is_float": True}]}, "0 is no whole number"),
        ({"launches": 3}, "not iterable"),
    ],
)
def test_what_is_no_program_is_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        CudaProgram.from_json({**PROGRAM.to_json(), **changed})


@pytest.mark.parametrize(
    "block",
    [
        *([2048, 1, 1], [0, 1, 1], [1, 1], [True, 1, 1], ["1", 1, 1]),
        *([1, 1, 65], [33, 32, 1], [1024, 1, 2]),
    ],
)
def test_launches_out_of_range_are_refused(block: list[Any]) -> None:
    data = PROGRAM.to_json()
    data["launches"][0]["block"] = block
    with pytest.raises(InvalidValueError, match="no program of CUDA kernels"):
        CudaProgram.from_json(data)


@pytest.mark.parametrize("grid", [[2**31, 1, 1], [1, 65536, 1], [1, 1, 65536]])
def test_grids_that_no_device_launches_are_refused(grid: list[int]) -> None:
    data = PROGRAM.to_json()
    data["launches"][0]["grid"] = grid
    with pytest.raises(InvalidValueError, match="no whole number from 1 to"):
        CudaProgram.from_json(data)


MAPPED = evolve(
    PROGRAM,
    launches=(
        evolve(PROGRAM.launches[0], maps=(TensorMap("A", "float16", (512, 256), (128, 64)),)),
    ),
)


def test_descriptors_of_tensors_travel_with_launches() -> None:
    back = CudaProgram.from_json(json.loads(json.dumps(MAPPED.to_json())))
    assert back == MAPPED
    assert back.digest == MAPPED.digest != PROGRAM.digest
    assert "maps" not in json.dumps(PROGRAM.to_json())


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"shape": [512]}, "a box of 2 dimensions of 1"),
        ({"box": [512, 64]}, "512 is no whole number from 1 to 256"),
        ({"box": [128, 8]}, "a box with rows of 8 elements of float16"),
        ({"dtype": "float32"}, "a box with rows of 64 elements of float32"),
    ],
)
def test_descriptors_that_the_copy_engine_does_not_take_are_refused(
    changed: dict[str, Any], why: str
) -> None:
    data = MAPPED.to_json()
    data["launches"][0]["maps"][0].update(changed)
    with pytest.raises(InvalidValueError, match=why):
        CudaProgram.from_json(data)


def test_arrays_of_the_host_are_not_bound() -> None:
    executable = CudaExecutable(PROGRAM)
    assert executable.digest == PROGRAM.digest
    with pytest.raises(UnsupportedTarget, match="device process"):
        executable.bind([], [])


def test_a_compiler_that_there_is_not_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv(COMPILER_VARIABLE, "nvcc")
    with pytest.raises(NoCudaCompiler, match=r"looked for nvcc\): pip install nvidia-cuda-nvrtc"):
        find_cuda_compiler()
    monkeypatch.setenv(COMPILER_VARIABLE, "nvc")
    with pytest.raises(UnknownNameError, match="nvcc"):
        find_cuda_compiler()


def test_code_for_an_architecture_has_all_of_its_instructions() -> None:
    """Warpgroups need ``sm_90a``; other targets are compiled for as they are called."""
    found = [cubin_architecture(name) for name in ("sm_80", "sm_90", "sm_90a", "sm_100")]
    assert found == ["sm_80", "sm_90a", "sm_90a", "sm_100"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("nvrtc", "nvcc")]
)
def test_compilers_make_machine_code_or_say_why_not(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COMPILER_VARIABLE, name)
    compiler = find_cuda_compiler()
    assert compiler.described.startswith(name)
    # The kernels that check results on a device: all that may run there but candidates.
    assert compiler.compile(CHECK_SOURCE, "sm_90", ()).startswith(b"\x7fELF")
    with pytest.raises(BuildFailed, match=f"{name} for sm_90: .*error"):
        compiler.compile('extern "C" __global__ void k() { wrong }', "sm_90", ())
    with pytest.raises(BuildFailed, match="sm_12345"):
        compiler.compile('extern "C" __global__ void k() {}', "sm_12345", ())


@pytest.mark.needs("nvrtc")
def test_headers_that_a_wheel_lacks_are_given_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPILER_VARIABLE, "nvrtc")
    compiler = find_cuda_compiler()
    includes = "".join(f"#include <{header}>\n" for header in compilers._HEADERS)
    source = includes + (
        "using namespace cuda::std;\n"
        "static_assert(sizeof(uint64_t) == 8 && sizeof(int16_t) == 2);\n"
        "static_assert(is_integral<int64_t>::value && !is_integral<float>::value);\n"
        "static_assert(is_signed<float>::value && is_unsigned<uint8_t>::value);\n"
        "static_assert(is_same_v<conditional<false, int, char>::type, char>);\n"
        'extern "C" __global__ void k(enable_if<true, uint8_t>::type* p, double* q) '
        "{ *p = 1; *q = CUDART_INF + CUDART_NAN + CUDART_INF_F + CUDART_NAN_F; }"
    )
    assert compiler.compile(source, "sm_80", ()).startswith(b"\x7fELF")
