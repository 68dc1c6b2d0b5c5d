"""Packages, tools and facts of a machine that tests need, and which of them are here.

A test says what it needs by importing it at the top of its module, or by a mark,
``@pytest.mark.needs("torch", "2 CPUs")``; `needs_plugin` skips it where that is missing.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest
from attrs import frozen

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = [ROOT / "tests" / "support", *ROOT.glob("plugins/*/tests/support")]
_IMPORT = re.compile(r"^(?:from|import)\s+([\w.]+)", re.MULTILINE)
_QUOTED = re.compile(r'"([\w .+-]+)"')
_MARK = re.compile(r"\bmark\.(\w+)")
# Programs in strings import what they like.
_STRING = re.compile(r'"""(?:.|\n)*?"""')

# Roots of the imports of which each makes a test need the package; the first stands for all.
_IMPORTS: Mapping[str, tuple[str, ...]] = {
    "expecttest": ("expecttest",),
    "felix": ("autotune_felix",),
    "hatchling": ("hatchling",),
    "helion": ("helion",),
    "heron": ("autotune_heron",),
    "kernel_tuner": ("kernel_tuner",),
    "mlir": ("autotune_mlir", "torch_mlir"),
    "ml_dtypes": ("ml_dtypes",),
    "mpmath": ("mpmath",),
    "numba": ("numba",),
    "onnx": ("onnx",),
    "onnxruntime": ("onnxruntime",),
    "openvino": ("openvino",),
    "ortools": ("ortools",),
    "pandas": ("pandas",),
    "perf": ("autotune_perf",),
    "pruner": ("autotune_pruner",),
    "ray": ("ray",),
    "rpc": ("cloudpickle", "tornado"),
    "report": ("matplotlib", "jinja2"),
    "torch": ("torch",),
    "triton": ("triton",),
    "tvm": ("autotune_tvm", "tvm", "tvm_ffi"),
    "zoo": ("autotune_zoo",),
}
_NEED_OF = {root: need for need, roots in _IMPORTS.items() for root in roots}


def _has_modules(roots: Iterable[str]) -> bool:
    return all(find_spec(root) is not None for root in roots)


def _has_openmp() -> bool:
    if find_spec("autotune_mlir") is None:
        return False
    from autotune_mlir import openmp

    return openmp.find() is not None


def _has_nvrtc() -> bool:
    from autotune.backends.cuda_compilers import (
        COMPILER_VARIABLE,
        NoCudaCompiler,
        find_cuda_compiler,
    )

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(COMPILER_VARIABLE, "nvrtc")
        try:
            find_cuda_compiler()
        except NoCudaCompiler:
            return False
    return True


def _has_torch_of_cuda() -> bool:
    found = find_spec("torch")
    if found is None or found.origin is None:
        return False
    version = Path(found.origin).with_name("version.py").read_text(encoding="utf-8")
    return re.search(r"^cuda\b.*= *['\"]", version, re.MULTILINE) is not None


def _has_gpu() -> bool:
    from autotune.errors import UnsupportedTarget
    from autotune.targets import detect_cuda

    try:
        detect_cuda()
    except UnsupportedTarget:
        return False
    return True


def browser() -> str:
    """A headless browser on this machine; "" for none."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return os.environ.get("AUTOTUNE_CHROMIUM", "") or next(
        (found for name in names if (found := shutil.which(name))), ""
    )


PACKAGES: Mapping[str, Callable[[], bool]] = {
    **{need: partial(_has_modules, roots) for need, roots in _IMPORTS.items()},
    "nvcc": lambda: shutil.which("nvcc") is not None,
    "nvrtc": _has_nvrtc,
    "openmp": _has_openmp,
    "torch of CUDA": _has_torch_of_cuda,
}
"""Packages that an environment of tox has or has not, as it says by ``--has``."""

MACHINE: Mapping[str, tuple[Callable[[], bool], str]] = {
    **{
        tool: (lambda tool=tool: shutil.which(tool) is not None, f"there is no {tool}")
        for tool in ("gcc", "clang", "aarch64-linux-gnu-gcc", "qemu-aarch64")
    },
    "2 CPUs": (lambda: len(os.sched_getaffinity(0)) > 1, "there is one CPU"),
    "Python 3.11": (lambda: sys.version_info >= (3, 11), "this Python is older than 3.11"),
    "chromium": (
        lambda: bool(browser()),
        "there is no Chromium: install Debian's, or set AUTOTUNE_CHROMIUM",
    ),
    "cuda.h": (lambda: _has_cuda_header(), "there is no cuda.h"),
    "LLVM bindings": (
        lambda: find_spec("mlir") is not None,
        "MLIR's own bindings are not installed: LLVM's index has them",
    ),
    "gpu": (_has_gpu, "there is no CUDA device"),
    "mlir-opt": (
        lambda: shutil.which("mlir-opt-22") is not None,
        "there is no mlir-opt-22: apt install mlir-22-tools, or scripts/fetch_mlir_opt.sh",
    ),
    "no root": (lambda: os.getuid() != 0, "root may read everything"),
    "root": (lambda: os.getuid() == 0, "only root can become somebody else"),
}
"""Facts of a machine, whatever environments install, and what is said of the latter."""


def _has_cuda_header() -> bool:
    from autotune.backends import header_folders

    return any(Path(folder, "cuda.h").is_file() for folder in header_folders())


@cache
def is_here(need: str) -> bool:
    """True where a package, or a fact of the machine, is found."""
    return PACKAGES[need]() if need in PACKAGES else MACHINE[need][0]()


@frozen
class _File:
    """A file of tests or of their support: its imports, needs that it names, and all its marks."""

    imports: tuple[str, ...]
    names: frozenset[str]
    marks: frozenset[str]


_NAMES = frozenset((*PACKAGES, *MACHINE))


@cache
def _read(path: Path) -> _File:
    text = path.read_text(encoding="utf-8")
    names = _NAMES.intersection(_QUOTED.findall(text))
    marks = frozenset(_MARK.findall(text))
    return _File(tuple(_IMPORT.findall(_STRING.sub("", text))), names, marks)


@cache
def _closure(path: Path) -> frozenset[_File]:
    """A file of tests, the ``conftest.py`` above it, and the support modules that they import."""
    found: dict[Path, _File] = {}
    folders = [folder for folder in path.parents if ROOT in folder.parents]
    left = [path, *filter(Path.is_file, (folder / "conftest.py" for folder in folders))]
    while left:
        file = left.pop()
        if file not in found:
            found[file] = _read(file)
            left += (it for name in found[file].imports for it in _support().get(name, ()))
    return frozenset(found.values())


@cache
def _support() -> Mapping[str, list[Path]]:
    """The files of support, by the names that they are imported under."""
    found = defaultdict[str, list[Path]](list)
    for folder in _FOLDERS:
        for file in folder.rglob("*.py"):
            found[".".join(file.relative_to(folder).with_suffix("").parts)].append(file)
    return found


@cache
def needs_of_file(path: Path) -> frozenset[str]:
    """Needs without which a file of tests cannot be imported."""
    roots = {name.partition(".")[0] for file in _closure(path) for name in file.imports}
    return frozenset(_NEED_OF[root] for root in roots & _NEED_OF.keys())


@cache
def named_in_file(path: Path) -> frozenset[str]:
    """Possible needs of tests in a file, by an import or by the name in a mark."""
    return needs_of_file(path).union(*(file.names for file in _closure(path)))


@cache
def marks_in_file(path: Path) -> frozenset[str]:
    """Marks that tests in a file can have."""
    return frozenset[str]().union(*(file.marks for file in _closure(path)))


def skip_here(what: str) -> NoReturn:
    """Skips the test that runs, since this machine lacks something that only running it shows.

    Args:
        what: Such as an instruction of the processor, a counter or a permission; never a package.
    """
    pytest.skip(f"this machine: {what}")  # noqa: TID251
