"""Needs of MetaSchedule on a CUDA device beyond TVM, found before it tunes: a compiler of CUDA
source, a linker of what it exports, and the library that TVM's CUDA runtime is linked to."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

COMPILER_VARIABLE = "TVM_CUDA_COMPILE_MODE"
CUDART = "libcudart.so.13"
_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13")


def prepare() -> None:
    """Set what TVM 0.27 and its workers look for; TVM must not have been imported yet.

    TVM compiles by NVRTC through cuda-bindings unless its variable says ``nvcc``; where that
    package is missing every candidate would fail. So would it without a linker: candidates travel
    from builders to the runner as objects.

    Raises:
        SystemExit: something is missing; says what in one line.
    """
    if COMPILER_VARIABLE not in os.environ:
        os.environ[COMPILER_VARIABLE] = _compiler()
    if shutil.which(os.environ.get("CXX") or "g++") is None:
        raise SystemExit("TVM links candidates with g++, which is not on the PATH")
    _load_runtime()


def check_device(tvm: Any) -> None:
    """Make sure that TVM's own runtime finds the device: where it does not, it does not say why.

    Raises:
        SystemExit: it finds none.
    """
    if not tvm.cuda(0).exist:
        raise SystemExit("TVM's CUDA runtime finds no device; autotune doctor may say why")


def _compiler() -> str:
    if _has_bindings():
        return "nvrtc"
    if shutil.which("nvcc") is not None:
        return "nvcc"
    raise SystemExit(
        "TVM has no compiler for CUDA source: pip install cuda-bindings, or put nvcc on the PATH"
    )


def _has_bindings() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    except ModuleNotFoundError:
        return False


def _load_runtime() -> None:
    """Load ``libcudart``; one in a wheel is put on the path of the loader for TVM's workers.

    A library that is loaded is what others of this process that need it by its name are given.
    """
    try:
        ctypes.CDLL(CUDART, ctypes.RTLD_GLOBAL)
        return
    except OSError as error:
        why = str(error)
    for path in _in_wheels():
        try:
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
        except OSError as error:
            why = str(error)
            continue
        folders = [str(path.parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(folders)
        return
    raise SystemExit(f"TVM's CUDA runtime needs {CUDART}: pip install nvidia-cuda-runtime ({why})")


def _in_wheels() -> list[Path]:
    found = []
    for name in _RUNTIMES:
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            continue
        found += [Path(str(it.locate())) for it in files if re.search(rf"{CUDART}$", str(it))]
    return found
