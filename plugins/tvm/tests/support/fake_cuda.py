"""A CUDA device that is none: a driver's library and a compiler, found as real ones are."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import cuda_threads
import fake_nvcc
import numpy as np
import pytest
from attrs import frozen
from autotune_tvm.backend import TVMBackend

from autotune.backends import BuildRequest
from autotune.ir.workloads import Workload
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.targets import Target, preset

HERE = Path(__file__).parent
THREADS = Path(cuda_threads.__file__).parent


@frozen
class FakeCuda:
    """The folder of a fake driver.

    Attributes:
        folder: Where it is, with the faults of modules.
        patch: Changes the environment.
    """

    folder: Path
    patch: pytest.MonkeyPatch

    def set(self, **settings: str) -> None:
        """Change what the driver finds: ``DEVICES``, ``VERSION``, ``MEMORY``, ``USED``, ...."""
        for name, value in settings.items():
            self.patch.setenv(f"FAKE_CUDA_{name}", value)

    def fail(self, ordinal: int, fault: str) -> None:
        """Give a fault to the module of a candidate that is loaded as the ``ordinal``-th one.

        Faults: ``error CODE`` loses the context, ``hang``, ``nothing`` (no kernel runs),
        ``beside`` (a guard zone is written to), ``input`` (the first argument is changed); after
        ``later`` each from the second launch on.
        """
        with (self.folder / "faults").open("a") as file:
            file.write(f"{ordinal} {fault}\n")

    @property
    def processes(self) -> list[int]:
        """Process ids that loaded modules of candidates, in order."""
        path = self.folder / "modules"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


def library_in(folder: Path) -> Path:
    """The fake driver in a folder that several processes share: the first compiles it."""
    folder.mkdir(exist_ok=True)
    library = folder / "libcuda.so.1"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # What is written last.
        if not (folder / "nvcc").exists():
            _build(library)
    return library


def _build(library: Path) -> None:
    folder = library.parent
    command = ["g++", "-std=c++20", "-O0", "-w", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([*command, str(HERE / "fake_cuda.cpp"), "-ldl"], check=True, timeout=600)
    # Most of a compiler's time goes into the standard library's headers.
    header = folder / "cuda_threads.hpp"
    for name in (header.name, "cuda_fibers.hpp", fake_nvcc.WARPS):
        shutil.copy(THREADS / name, folder / name)
    command = ["g++", *fake_nvcc.FLAGS, "-x", "c++-header", str(header)]
    subprocess.run(command, check=True, timeout=600)
    compiler = folder / "nvcc"
    compiler.write_text(
        f'#!/bin/sh\nexec {sys.executable} -S {HERE / "fake_nvcc.py"} {folder} "$@"\n'
    )
    compiler.chmod(0o755)


def has_compiler() -> bool:
    """Whether the fake driver can be built."""
    return shutil.which("g++") is not None


def install(library: Path, folder: Path, patch: pytest.MonkeyPatch) -> FakeCuda:
    """Have this process and its children find the fake driver and compiler."""
    import os

    patch.setenv("FAKE_CUDA", str(folder))
    patch.setenv("AUTOTUNE_LIBCUDA", str(library))
    patch.setenv("AUTOTUNE_CUDA_COMPILER", "nvcc")
    patch.setenv("PATH", f"{library.parent}{os.pathsep}{os.environ['PATH']}")
    return FakeCuda(folder, patch)


def candidates_of(workload: Workload, count: int) -> list[Candidate]:
    """Candidates of few threads a block."""
    target = preset("h100")
    space = SketchSpace(workload, target, TVMBackend().limits(target))
    rows = list(space.sample(4 * count, np.random.default_rng(5)))
    return sorted(rows, key=lambda row: _threads(row, target))[:count]


def _threads(candidate: Candidate, target: Target) -> int:
    request = BuildRequest(candidate.sketch.workload, None, candidate, target, 1)
    launches = TVMBackend().lower(request).program.launches
    return max(int(np.prod(launch.block)) for launch in launches)
