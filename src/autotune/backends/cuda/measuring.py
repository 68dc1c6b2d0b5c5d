"""Needs of measuring on a CUDA device: the device, its driver, and a compiler that fits both."""

from __future__ import annotations

import os
from collections.abc import Sequence

from autotune.backends.cuda_compilers import CudaCompiler, find_cuda_compiler
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.targets import Target, load_driver, matching_device, version_text

__all__ = [
    "FAST_MATH_VARIABLE",
    "check_cuda",
    "check_versions",
    "compiler_described",
    "compiler_options",
    "fast_math",
]

FAST_MATH_VARIABLE = "AUTOTUNE_CUDA_FAST_MATH"
"""Environment variable that, set to 1, compiles with ``--use_fast_math``; records say so."""


def fast_math() -> bool:
    """Return whether approximate functions of the device are asked for.

    Raises:
        InvalidValueError: the environment says neither 0 nor 1.
    """
    said = os.environ.get(FAST_MATH_VARIABLE, "0")
    if said not in ("0", "1"):
        raise InvalidValueError(f"{FAST_MATH_VARIABLE} is 0 or 1, not {said!r}")
    return said == "1"


def compiler_options() -> Sequence[str]:
    """Options of NVRTC and nvcc that change what kernels compute."""
    return ("--use_fast_math",) if fast_math() else ()


def compiler_described() -> str:
    """The compiler of machine code with what changes results: part of every record's key.

    Raises:
        NoCudaCompiler: there is none.
    """
    math = ", fast math" if fast_math() else ""
    return f"{find_cuda_compiler().described}{math}"


def check_cuda(target: Target) -> None:
    """Refuse to measure where there is no such device or nothing to compile for it.

    Raises:
        UnsupportedTarget: there is no driver, or no device that is as the target says, or the
            driver is older than the compiler.
        NoCudaCompiler: there is no compiler.
    """
    driver = load_driver()
    matching_device(target, driver)
    check_versions(find_cuda_compiler(), driver.version())


def check_versions(compiler: CudaCompiler, driver: int) -> None:
    """Refuse a compiler whose machine code a driver does not load.

    Drivers load what compilers of their own major version make, and of earlier ones.

    Args:
        compiler: The compiler.
        driver: The driver's CUDA version, as it counts.

    Raises:
        UnsupportedTarget: the compiler is too new.
    """
    if compiler.version[0] > driver // 1000:
        raise UnsupportedTarget(
            f"the CUDA driver is too old for {compiler.described}: it is for CUDA "
            f"{version_text(driver)}; a newer driver is needed, or an older compiler (such as "
            f"nvidia-cuda-nvrtc-cu{driver // 1000})"
        )
