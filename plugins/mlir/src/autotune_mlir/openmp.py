"""The OpenMP runtime that parallel programs call; MLIR's distributions have none."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from autotune.errors import AutotuneError, InvalidValueError

__all__ = [
    "ADVICE",
    "INSTALL",
    "VARIABLE",
    "OpenMPMissing",
    "find",
    "library",
    "worker_environment",
]

VARIABLE = "AUTOTUNE_OPENMP"
"""Environment variable with the path of the runtime's library."""

INSTALL = "`pip install intel-openmp`, or on Debian `apt install libomp5-19`"
"""Packages to install when there is none."""

ADVICE = (
    f"programs for several threads need LLVM's OpenMP runtime: {INSTALL}; "
    f"or set {VARIABLE} to the path of a libomp.so"
)
"""Advice where it is missing."""

# GNU's runtime is another one: it lacks the functions that LLVM's programs call.
_BLOCK_TIME = "200us"
_NAMES = ("libomp.so", "libomp.so.5", "libiomp5.so")
_LLVM_FOLDERS = Path("/usr/lib")
_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/local/lib", "/usr/lib64", "/usr/lib")


class OpenMPMissing(AutotuneError):
    """Error: there is no OpenMP runtime, which programs for several threads need."""


def library() -> str:
    """Path of the runtime.

    Raises:
        OpenMPMissing: there is none; says what to install.
        InvalidValueError: the environment names a file that does not exist.
    """
    found = find()
    if found is None:
        raise OpenMPMissing(ADVICE)
    return found


def worker_environment(threads: int) -> dict[str, str]:
    """The settings that the runtime reads when it is loaded."""
    return {
        "OMP_NUM_THREADS": str(threads),
        # Else it may use fewer threads than the program asks for.
        "OMP_DYNAMIC": "false",
        # By default threads watch for the next loop for a fifth of a second.
        "KMP_BLOCKTIME": _BLOCK_TIME,
        "KMP_WARNINGS": "0",
    }


def find() -> str | None:
    """Path of the runtime, or None.

    Raises:
        InvalidValueError: the environment names a file that does not exist.
    """
    said = os.environ.get(VARIABLE)
    if said:
        if not Path(said).is_file():
            raise InvalidValueError(f"{VARIABLE}={said}, but there is no such file")
        return said
    return _search()


@lru_cache(maxsize=1)
def _search() -> str | None:
    for path in (*_from_distribution(), *_from_system()):
        if path.is_file():
            return str(path)
    return None


def _from_distribution() -> list[Path]:
    try:
        files = metadata.files("intel-openmp") or []
    except metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())).resolve() for file in files if file.name in _NAMES]


def _from_system() -> list[Path]:
    folders = [Path(folder) for folder in _FOLDERS]
    # Debian keeps every release of LLVM in a folder of its own; the newest is tried first.
    folders += sorted(_LLVM_FOLDERS.glob("llvm-*/lib"), key=_release, reverse=True)
    return [folder / name for name in _NAMES for folder in folders]


def _release(folder: Path) -> int:
    number = folder.parent.name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0
