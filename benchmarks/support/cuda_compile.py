"""Compiling of candidates of GPU sketches, without a device, and its rates.

Each candidate becomes CUDA source, and that a cubin for every architecture asked for, by nvcc
where it is on the PATH, or else by NVRTC, a library of PyPI's packages.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from cuda_candidates import TARGET, layer_norm

from autotune.backends import BuildFailed, BuildRequest
from autotune.ir.workloads import Workload, builders
from autotune.plugins.parts import create_part
from autotune.sketches import Candidate, Sketch, WarpTensorize
from autotune.sketches.intrinsics import find_intrinsic
from autotune.spaces import SketchSpace
from support.bars import Bar

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100")
QUICK_ARCHITECTURES = ("sm_90a",)
CANDIDATES, QUICK_CANDIDATES = 48, 3
# A second and core of a server: half of what was seen on one of an EPYC, where nvcc runs singly.
SOURCES, CUBINS = 4.0, 0.4
# NVRTC, and the headers that TVM's source includes.
PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-cccl", "nvidia-cuda-runtime")
NO_COMPILER = f"neither nvcc on the PATH nor NVRTC: pip install {' '.join(PACKAGES)}"

WORKLOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemm1024": ("gemm", {"m": 1024, "n": 1024, "k": 1024}),
    "gemm4096": ("gemm", {"m": 4096, "n": 4096, "k": 1024}),
    "dense128": ("dense", {"m": 128, "n": 768, "k": 3072, "bias": 1, "relu": 1}),
    "gemv4096": ("gemm", {"m": 1, "n": 4096, "k": 4096}),
    "bmm": ("batch_matmul", {"b": 12, "m": 128, "n": 128, "k": 64}),
    "conv14": ("conv2d", {"h": 14, "w": 14, "ci": 256, "co": 256, "pad": 1}),
    "conv56": ("conv2d", {"h": 56, "w": 56, "ci": 64, "co": 64, "pad": 1}),
    "dw112": ("depthwise_conv2d", {"h": 112, "w": 112, "c": 32, "pad": 1}),
    "softmax512x4096": ("softmax", {"m": 512, "n": 4096}),
    "softmax4096x1024": ("softmax", {"m": 4096, "n": 1024}),
    "elementwise4096": ("elementwise", {"m": 4096, "n": 4096}),
    "gemm1024-half": ("gemm", {"m": 1024, "n": 1024, "k": 1024, "dtype": "float16"}),
    "dense128-half": ("dense", {"m": 128, "n": 768, "k": 3072, "dtype": "bfloat16"}),
    "gemm1000-half": ("gemm", {"m": 1000, "n": 1000, "k": 1000, "dtype": "float16"}),
    "gemm100-int8": ("gemm", {"m": 100, "n": 100, "k": 100, "dtype": "int8"}),
    "conv14-half": (
        "conv2d",
        {"h": 14, "w": 14, "ci": 256, "co": 256, "pad": 1, "dtype": "float16"},
    ),
    "conv112-half": (
        "conv2d",
        {"h": 224, "w": 224, "ci": 3, "co": 64, "kh": 7, "kw": 7, "stride": 2, "pad": 3}
        | {"bias": 1, "relu": 1, "dtype": "bfloat16"},
    ),
    "bmm-int8": ("batch_matmul", {"b": 12, "m": 128, "n": 128, "k": 64, "dtype": "int8"}),
}


@dataclass(frozen=True)
class Job:
    """A candidate to compile.

    Attributes:
        case: Its workload's name here.
        candidate: The candidate.
        architectures: What to compile its source for.
    """

    case: str
    candidate: Candidate
    architectures: tuple[str, ...]

    @property
    def sketch(self) -> str:
        """``gemm1024 shared``."""
        return f"{self.case} {self.candidate.sketch.name}"


@dataclass(frozen=True)
class Compiled:
    """Outcome of a job; seconds are those of the processor.

    Attributes:
        sketch: Of the candidate.
        source_seconds: What its source took.
        cubin_seconds: What each cubin took.
        failures: Why there is no source, or none for an architecture.
    """

    sketch: str
    source_seconds: float
    cubin_seconds: tuple[float, ...]
    failures: tuple[str, ...]


def find_compiler() -> str | None:
    """``"nvcc"`` or ``"nvrtc"``, whichever is there; None where neither is."""
    from autotune_tvm.nvcc import find_nvcc

    if find_nvcc() is not None:
        return "nvcc"
    return None if nvrtc() is None else "nvrtc"


def compile_all(quick: bool, processes: int | None = None) -> list[Compiled]:
    """Compile the jobs of all workloads in processes, and print each sketch as it is done."""
    jobs = jobs_of(
        QUICK_CANDIDATES if quick else CANDIDATES, QUICK_ARCHITECTURES if quick else ARCHITECTURES
    )
    cores = processes or len(os.sched_getaffinity(0))
    found: list[Compiled] = []
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        for done in pool.map(compiled, jobs):
            if found and done.sketch != found[-1].sketch:
                print_sketch([it for it in found if it.sketch == found[-1].sketch])
            found.append(done)
    print_sketch([it for it in found if it.sketch == found[-1].sketch])
    return found


def jobs_of(count: int, architectures: tuple[str, ...]) -> list[Job]:
    """``count`` candidates of every sketch, drawn uniformly, or as many as it has."""
    jobs = []
    for case, workload in workloads():
        space = SketchSpace(workload, TARGET, create_part("backend", "tvm").limits(TARGET))
        for sketch in space.sketches():
            rows = space.feasible_set(sketch).uniform(4 * count, 1)
            for row in np.unique(rows, axis=0)[np.random.default_rng(0).permutation(count)]:
                candidate = Candidate(sketch, tuple(int(value) for value in row))
                jobs.append(Job(case, candidate, architectures_of(sketch, architectures)))
    return jobs


def architectures_of(sketch: Sketch, architectures: tuple[str, ...]) -> tuple[str, ...]:
    """Architectures that have the matrix instructions of a sketch."""
    steps = [step for step in sketch.core_steps if isinstance(step, WarpTensorize)]
    calls = [find_intrinsic(step.intrinsic) for step in steps]
    return tuple(it for it in architectures if all(call.belongs_to(it) for call in calls))


def workloads() -> Iterator[tuple[str, Workload]]:
    """The workloads by name."""
    for name, (builder, parameters) in WORKLOADS.items():
        yield name, getattr(builders, builder)(**parameters)
    backend = create_part("backend", "tvm")
    for name, centred in (("layernorm4096x1024", True), ("layernorm2_4096x1024", False)):
        yield name, backend.import_program(layer_norm(centred)).workload


def compiled(job: Job) -> Compiled:
    """Compile one candidate; runs in a process of its own kind."""
    backend = tvm_backend()
    began = processor_seconds()
    try:
        workload = job.candidate.sketch.workload
        source = backend.cuda_source(
            BuildRequest(workload, None, job.candidate, TARGET, threads=1)
        )
    except BuildFailed as error:
        return Compiled(job.sketch, processor_seconds() - began, (), (f"no source: {error}",))
    source_seconds = processor_seconds() - began
    seconds, failures = [], []
    for architecture in job.architectures:
        began = processor_seconds()
        try:
            make_cubin(source, architecture)
        except BuildFailed as error:
            failures.append(f"{architecture}: {error}")
        else:
            seconds.append(processor_seconds() - began)
    return Compiled(job.sketch, source_seconds, tuple(seconds), tuple(failures))


@lru_cache(maxsize=1)
def tvm_backend() -> Any:
    """The backend; what TVM takes to begin is no part of a candidate's seconds."""
    backend = create_part("backend", "tvm")
    workload = builders.gemm(m=32, n=32, k=32)
    candidate = next(
        iter(
            SketchSpace(workload, TARGET, backend.limits(TARGET)).sample(
                1, np.random.default_rng(0)
            )
        )
    )
    backend.cuda_source(BuildRequest(workload, None, candidate, TARGET, threads=1))
    return backend


def processor_seconds() -> float:
    """Of this process and of its children that ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def make_cubin(source: str, architecture: str) -> None:
    """Compile source by what :func:`find_compiler` finds.

    Raises:
        BuildFailed: it is rejected, or there is no compiler.
    """
    from autotune_tvm.nvcc import find_nvcc, kernel_resources

    if find_nvcc() is not None:
        kernel_resources(source, architecture)
        return
    library = nvrtc()
    if library is None:
        raise BuildFailed(NO_COMPILER)
    nvrtc_cubin(library, source, architecture)


@lru_cache(maxsize=1)
def nvrtc() -> Any | None:
    """NVRTC of PyPI's package, or of the loader's path; None where there is none."""
    places = ["libnvrtc.so.13", "libnvrtc.so.12"]
    places[:0] = [str(it) for it in package_files("libnvrtc.so")]
    for place in places:
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    return None


def package_files(start: str) -> list[Path]:
    """Files of PyPI's packages of NVRTC and headers, by the beginning of their names."""
    found = []
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            files = importlib.metadata.files(package) or []
            found += [Path(str(it.locate())) for it in files if it.name.startswith(start)]
    return found


@lru_cache(maxsize=1)
def include_options() -> tuple[bytes, ...]:
    """Folders of headers: those of the packages, or of a toolkit beside ``CUDA_PATH``."""
    folders = [it.parent for it in package_files("cuda_runtime.h")]
    folders.append(Path(os.environ.get("CUDA_PATH", "/usr/local/cuda"), "include"))
    return tuple(f"-I{it}{below}".encode() for it in folders for below in ("", "/cccl"))


def nvrtc_cubin(library: Any, source: str, architecture: str) -> bytes:
    """A cubin made by NVRTC.

    Raises:
        BuildFailed: it rejects the source or the architecture; the message is the end of its log.
    """
    program = ctypes.c_void_p()
    library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(name: str, *arguments: Any) -> None:
        status = getattr(library, name)(*arguments)
        if status != 0:
            raise BuildFailed(f"{name}: {library.nvrtcGetErrorString(status).decode()}")

    call(
        "nvrtcCreateProgram",
        *(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None),
    )
    try:
        given = (f"-arch={architecture}".encode(), b"-w", *include_options())
        options = (ctypes.c_char_p * len(given))(*given)
        size = ctypes.c_size_t()
        if library.nvrtcCompileProgram(program, len(given), options) != 0:
            call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            call("nvrtcGetProgramLog", program, log)
            raise BuildFailed(f"nvrtc: {' '.join(log.value.decode().split())[:400]}")
        call("nvrtcGetCUBINSize", program, ctypes.byref(size))
        cubin = ctypes.create_string_buffer(size.value)
        call("nvrtcGetCUBIN", program, cubin)
        return cubin.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def print_sketch(done: Sequence[Compiled]) -> None:
    """A line for a sketch, and one for each kind of failure of it."""
    failures = [failure for it in done for failure in it.failures]
    failed = sum(bool(it.failures) for it in done)
    told = f"{failed} failed" if failed else "all compile"
    print(f"{done[0].sketch:38} {len(done):3} candidates, {told}", flush=True)
    for failure in dict.fromkeys(failures):
        print(f"    {failures.count(failure)} times {failure}"[:400], flush=True)


def rates_of(found: Sequence[Compiled]) -> dict[str, float | None]:
    """Sources and cubins a second and core, by the median of what one took."""
    sources = [it.source_seconds for it in found]
    cubins = [seconds for it in found for seconds in it.cubin_seconds]
    return {
        "sources": 1 / statistics.median(sources) if sources else None,
        "cubins": 1 / statistics.median(cubins) if cubins else None,
    }


def compile_bars(found: Sequence[Compiled], compiler: str | None) -> list[Bar]:
    """Promises of candidates without a device."""
    rates = rates_of(found)
    note = compiler or NO_COMPILER
    failed = float(sum(bool(it.failures) for it in found)) if found else None
    return [
        Bar("candidates of GPU sketches that do not compile", failed, 0, at_most=True, note=note),
        Bar("CUDA sources a second and core", rates["sources"], SOURCES),
        Bar("cubins a second and core", rates["cubins"], CUBINS, note=note),
    ]


if __name__ == "__main__":
    sys.exit("this is a part of cuda.py")
