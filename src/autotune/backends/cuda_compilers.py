"""Cubins from CUDA source: by NVRTC in this process, or by nvcc. No device is needed."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from functools import lru_cache
from pathlib import Path

from attrs import frozen

from autotune.backends.backend import BuildFailed
from autotune.errors import AutotuneError, UnknownNameError
from autotune.targets.cuda_driver import DRIVER_VARIABLE, driver_version

__all__ = [
    "COMPILER_VARIABLE",
    "CudaCompiler",
    "KernelResources",
    "NoCudaCompiler",
    "cubin_architecture",
    "find_cuda_compiler",
    "header_folders",
    "read_report",
    "run_nvcc",
    "with_registers",
]

COMPILER_VARIABLE = "AUTOTUNE_CUDA_COMPILER"
"""Environment variable that chooses ``nvrtc`` or ``nvcc``; otherwise NVRTC where there is one."""

_NAMES = ("nvrtc", "nvcc")
_SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
_DISTRIBUTIONS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")
_SECONDS = 300
_SHOWN_CHARACTERS = 400
# Of what the assembler reports.
_ENTRY = re.compile(r"Compiling entry function '(\S+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


# Asked for of the assembler, to know what it has spilled.
_REPORTING = "--ptxas-options=-v"
_BLOCK_REGISTERS, _MOST_REGISTERS = 1 << 16, 255
# Registers are given to a thread in pieces of so many.
_REGISTER_STEP = 8


# What generated source needs of the headers of CUDA and of libcu++ that it includes: NVRTC's wheel
# has none. That of constants is included where there are infinities.
_HEADERS = {
    "math_constants.h": """#pragma once
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_INF __longlong_as_double(0x7ff0000000000000LL)
#define CUDART_NAN __longlong_as_double(0x7ff8000000000000LL)
""",
    "cuda/std/cstdint": """#pragma once
namespace cuda { namespace std {
typedef signed char int8_t; typedef unsigned char uint8_t;
typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t;
typedef long int64_t; typedef unsigned long uint64_t;
} }
""",
    "cuda/std/type_traits": """#pragma once
namespace cuda { namespace std {
template <bool Value> struct bool_constant { static constexpr bool value = Value; };
template <class A, class B> struct is_same : bool_constant<false> {};
template <class A> struct is_same<A, A> : bool_constant<true> {};
template <class A, class B> constexpr bool is_same_v = is_same<A, B>::value;
template <class A> struct is_floating_point : bool_constant<false> {};
template <> struct is_floating_point<float> : bool_constant<true> {};
template <> struct is_floating_point<double> : bool_constant<true> {};
template <class A> struct is_integral : bool_constant<false> {};
template <class A> struct is_unsigned : bool_constant<false> {};
#define INTEGER(type, positive) \\
  template <> struct is_integral<type> : bool_constant<true> {}; \\
  template <> struct is_unsigned<type> : bool_constant<positive> {};
INTEGER(bool, true) INTEGER(char, false) INTEGER(signed char, false) INTEGER(unsigned char, true)
INTEGER(short, false) INTEGER(unsigned short, true) INTEGER(int, false)
INTEGER(unsigned int, true) INTEGER(long, false) INTEGER(unsigned long, true)
INTEGER(long long, false) INTEGER(unsigned long long, true)
#undef INTEGER
template <class A> struct is_signed : bool_constant<
    is_floating_point<A>::value || (is_integral<A>::value && !is_unsigned<A>::value)> {};
template <bool Value, class A = void> struct enable_if {};
template <class A> struct enable_if<true, A> { typedef A type; };
template <bool Value, class A, class B> struct conditional { typedef A type; };
template <class A, class B> struct conditional<false, A, B> { typedef B type; };
} }
""",
}


class NoCudaCompiler(AutotuneError):
    """Neither NVRTC nor nvcc is installed."""


@frozen(eq=False)
class CudaCompiler:
    """A compiler that makes cubins.

    Attributes:
        name: ``nvrtc`` or ``nvcc``.
        version: Its CUDA version, such as ``(13, 0)``.
        compile: From source, architecture (``sm_90``) and further options to a cubin; raises
            BuildFailed with the first errors where the source is rejected.
        explain: From source and architecture to PTX and what the assembler reports of kernels
            (:func:`read_report`); raises as ``compile``. None: it is not asked for that.
    """

    name: str
    version: tuple[int, int]
    compile: Callable[[str, str, Sequence[str]], bytes]
    explain: Callable[[str, str], tuple[str, str]] | None = None

    @property
    def described(self) -> str:
        """Name and version, for records and people."""
        return f"{self.name} {self.version[0]}.{self.version[1]}"


def cubin_architecture(processor: str) -> str:
    """The architecture that code for a processor is compiled for, to have all of its instructions.

    Those of warpgroups belong to ``sm_90a``, whose code runs on devices of compute capability 9.0
    only. So does that for ``sm_90``: there is no 9.x beside it.
    """
    return "sm_90a" if processor == "sm_90" else processor


def find_cuda_compiler() -> CudaCompiler:
    """The compiler that is installed, NVRTC before nvcc.

    Of several NVRTCs it is one that makes what the driver loads, where there is a driver.

    Raises:
        NoCudaCompiler: there is none, or not the one that the environment asks for.
        UnknownNameError: the environment asks for something else.
    """
    asked = os.environ.get(COMPILER_VARIABLE, "")
    if asked and asked not in _NAMES:
        raise UnknownNameError(f"compiler in {COMPILER_VARIABLE}", asked, _NAMES)
    return _find(asked, os.environ.get("PATH", ""), os.environ.get(DRIVER_VARIABLE, ""))


@lru_cache(maxsize=4)
def _find(asked: str, _path: str, _driver: str) -> CudaCompiler:
    found = _nvrtc() if asked != "nvcc" else None
    if found is None and asked != "nvrtc":
        found = _nvcc()
    if found is None:
        raise NoCudaCompiler(
            f"no compiler for CUDA source is installed (looked for {asked or ' and '.join(_NAMES)}"
            "): pip install nvidia-cuda-nvrtc, or put nvcc on the PATH"
        )
    return found


# What a library may lack that makes cubins all the same.
_EXPLAINING = {
    "nvrtcGetPTXSize": (c_void_p, POINTER(c_size_t)),
    "nvrtcGetPTX": (c_void_p, c_char_p),
}


class _Nvrtc:
    """NVRTC's library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        signatures = {
            "nvrtcVersion": (POINTER(c_int), POINTER(c_int)),
            "nvrtcCreateProgram": (
                *(POINTER(c_void_p), c_char_p, c_char_p, c_int),
                *(POINTER(c_char_p), POINTER(c_char_p)),
            ),
            "nvrtcDestroyProgram": (POINTER(c_void_p),),
            "nvrtcCompileProgram": (c_void_p, c_int, POINTER(c_char_p)),
            "nvrtcGetCUBINSize": (c_void_p, POINTER(c_size_t)),
            "nvrtcGetCUBIN": (c_void_p, c_char_p),
            "nvrtcGetProgramLogSize": (c_void_p, POINTER(c_size_t)),
            "nvrtcGetProgramLog": (c_void_p, c_char_p),
        }
        for name, types in signatures.items():
            getattr(library, name).argtypes = types
            getattr(library, name).restype = c_int

    def version(self) -> tuple[int, int]:
        major, minor = c_int(), c_int()
        self._check("nvrtcVersion", byref(major), byref(minor))
        return major.value, minor.value

    def compile(self, source: str, architecture: str, options: Sequence[str]) -> bytes:
        with self._compiled(source, architecture, options) as program:
            return self._text(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")

    def explain(self, source: str, architecture: str) -> tuple[str, str]:
        for name, types in _EXPLAINING.items():
            getattr(self._library, name).argtypes = types
        with self._compiled(source, architecture, ()) as program:
            ptx = self._text(program, "nvrtcGetPTXSize", "nvrtcGetPTX")
            return ptx.decode(), self._log(program)

    @contextmanager
    def _compiled(
        self, source: str, architecture: str, options: Sequence[str]
    ) -> Iterator[c_void_p]:
        program = c_void_p()
        code = source.encode()
        texts = (c_char_p * len(_HEADERS))(*(text.encode() for text in _HEADERS.values()))
        names = (c_char_p * len(_HEADERS))(*(name.encode() for name in _HEADERS))
        self._check(
            "nvrtcCreateProgram",
            *(byref(program), code, b"kernels.cu", len(_HEADERS), texts, names),
        )
        try:
            flags = [f"--gpu-architecture={architecture}", "--std=c++17", "-w", _REPORTING]
            flags += options
            flags += [f"-I{folder}" for folder in header_folders()]
            given = (c_char_p * len(flags))(*(text.encode() for text in flags))
            if self._library.nvrtcCompileProgram(program, len(flags), given) != 0:
                raise BuildFailed(f"nvrtc for {architecture}: {_errors_in(self._log(program))}")
            if (again := with_registers(source, self._log(program))) != source:
                with self._compiled(again, architecture, options) as found:
                    yield found
            else:
                yield program
        finally:
            self._library.nvrtcDestroyProgram(byref(program))

    def _log(self, program: c_void_p) -> str:
        return self._text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").decode()

    def _text(self, program: c_void_p, size_of: str, get: str) -> bytes:
        size = c_size_t()
        self._check(size_of, program, byref(size))
        buffer = ctypes.create_string_buffer(max(1, size.value))
        self._check(get, program, buffer)
        return buffer.raw[: size.value]

    def _check(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            raise BuildFailed(f"{name} failed with NVRTC's error {code}")


def _nvrtc() -> CudaCompiler | None:
    """The first NVRTC that the driver is new enough for; else the first."""
    driver = driver_version()
    found: CudaCompiler | None = None
    for path in (*_wheel_libraries(), *_SONAMES):
        try:
            _load_builtins(path)
            library = _Nvrtc(ctypes.CDLL(path))
        except (OSError, AttributeError):  # it is not there, or too old for cubins
            continue
        compiler = CudaCompiler("nvrtc", library.version(), library.compile, library.explain)
        if driver is None or compiler.version[0] <= driver // 1000:
            return compiler
        found = found or compiler
    return found


def _load_builtins(path: str) -> None:
    """Load what NVRTC opens by its name alone when it compiles, where it lies beside NVRTC.

    The wheel of CUDA 13.0, which torch asks for, does not say that it is to be looked for there.
    """
    if os.path.isabs(path):
        for found in Path(path).parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(found))


def _wheel_libraries() -> list[str]:
    """NVRTC in wheels of PyPI, which lie beside other packages and not on the loader's path."""
    from importlib import metadata

    found = []
    for name in _DISTRIBUTIONS:
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            continue
        found += [str(it.locate()) for it in files if re.search(r"libnvrtc\.so\.\d+$", str(it))]
    return found


def header_folders() -> list[str]:
    """Folders with the headers of halves, which NVRTC's own wheel lacks, if there are any."""
    from importlib import metadata

    roots = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    for name in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"):
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            continue
        roots += [
            str(Path(str(it.locate())).parents[1]) for it in files if it.name == "cuda_fp16.h"
        ]
    roots.append("/usr/local/cuda")
    folders = [Path(root, "include") for root in roots if root]
    return [str(folder) for folder in folders if (folder / "cuda_fp16.h").is_file()][:1]


def _nvcc() -> CudaCompiler | None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return None
    try:
        said = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"release (\d+)\.(\d+)", said)
    if version is None:
        return None

    def run(source: str, architecture: str, options: Sequence[str]) -> tuple[bytes, str]:
        flags = ("-std=c++17", _REPORTING, *options)
        cubin, report = run_nvcc(nvcc, source, architecture, flags)
        again = with_registers(source, report)
        return (cubin, report) if again == source else run(again, architecture, options)

    def compiled(source: str, architecture: str, options: Sequence[str]) -> bytes:
        return run(source, architecture, options)[0]

    def explained(source: str, architecture: str) -> tuple[str, str]:
        with tempfile.TemporaryDirectory(prefix="autotune-cuda-") as folder:
            _, report = run(source, architecture, ("--keep", f"--keep-dir={folder}"))
            return Path(folder, "kernels.ptx").read_text(), report

    known = (int(version.group(1)), int(version.group(2)))
    return CudaCompiler("nvcc", known, compiled, explained)


def run_nvcc(
    nvcc: str, source: str, architecture: str, options: Sequence[str]
) -> tuple[bytes, str]:
    """Compile CUDA source with nvcc; no device is needed.

    Args:
        nvcc: Path of nvcc.
        source: CUDA C++.
        architecture: Such as ``sm_90``.
        options: Further ones; warnings are off.

    Returns:
        The cubin, and what nvcc wrote to its standard error.

    Raises:
        BuildFailed: it rejects the source or the architecture, takes too long, or does not run.
    """
    with tempfile.TemporaryDirectory(prefix="autotune-cuda-") as folder:
        code, cubin = Path(folder, "kernels.cu"), Path(folder, "kernels.cubin")
        code.write_text(source)
        command = [nvcc, "-cubin", f"-arch={architecture}", "-w", *options]
        try:
            done = subprocess.run(
                [*command, "-o", str(cubin), str(code)],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildFailed(f"nvcc: {error}") from error
        if done.returncode != 0:
            raise BuildFailed(f"nvcc for {architecture}: {_errors_in(done.stderr)}")
        return cubin.read_bytes(), done.stderr


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


def with_registers(source: str, report: str) -> str:
    """The source with ``__launch_bounds__(threads)`` -> ``__launch_bounds__(threads, 1)``.

    Of kernels whose registers are spilled although a thread may have more: the assembler makes
    room for further blocks on a multiprocessor, unless the bounds ask for one.

    Args:
        source: CUDA C++.
        report: The assembler's, on the kernels of this source.
    """
    for it in read_report(report):
        bounds = re.search(rf"__launch_bounds__\((\d+)\) {it.kernel}\(", source)
        if it.spill_stores and bounds is not None:
            threads = int(bounds.group(1))
            most = min(_MOST_REGISTERS, _BLOCK_REGISTERS // threads)
            if it.registers <= most - _REGISTER_STEP:
                wanted = f"__launch_bounds__({threads}, 1) {it.kernel}("
                source = source.replace(bounds.group(), wanted)
    return source


def _errors_in(log: str) -> str:
    said = [line.strip() for line in log.splitlines() if re.search("error|fatal", line)]
    return " ".join(said or log.split())[:_SHOWN_CHARACTERS]
