"""Kernels in files: what is written, and the C compiler that links it."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from autotune.backends.backend import BuildFailed
from autotune.backends.native.exports.c_interface import c_file, header
from autotune.backends.native.exports.kernel import Kernel
from autotune.backends.native.exports.llvm_interface import exported_names, interface
from autotune.backends.native.exports.machines import Machine
from autotune.backends.native.exports.tvm_ffi import Entry, ffi_file
from autotune.backends.native.machine_code import compile_library
from autotune.errors import InvalidValueError, UnknownNameError, one_line
from autotune.store.jsonl import replacing

__all__ = [
    "FORMATS",
    "check_header",
    "combined_object",
    "export_kernel",
    "find_compiler",
    "link_library",
    "object_of",
    "shared_library",
]

_MARK = b"tuned by autotune"
_HEAD_BYTES = 1 << 10
_MESSAGE_LIMIT = 400
_FOR_LIBRARIES = ("-O2", "-fPIC", "-fvisibility=hidden")

Files = Mapping[str, bytes]


def export_kernel(kernel: Kernel, format_name: str, path: Path) -> tuple[Path, ...]:
    """Write a kernel for other programs.

    Args:
        kernel: What is written.
        format_name: One of :data:`FORMATS`.
        path: The file, with the ending of its kind; a header goes beside it, with the ending
            ``.h``.

    Returns:
        The files.

    Raises:
        UnknownNameError: there is no such format.
        InvalidValueError: the format is for one target, the file has another ending or cannot be
            written, or the header would replace one that was written by hand.
        UnsupportedWorkload: the kernel has instructions that are not printed as C.
        BuildFailed: LLVM or the C compiler rejects it, or there is no such compiler.
    """
    if format_name not in FORMATS:
        raise UnknownNameError("export format", format_name, FORMATS)
    _, make = FORMATS[format_name]
    header_path = path.with_suffix(".h")
    files = make(kernel, path.stem)
    ending = next(iter(files))
    if path.suffix != ending:
        raise InvalidValueError(
            f"a file of format {format_name} ends in {ending}, and {str(path)!r} does not"
        )
    written = [header_path if suffix == ".h" else path for suffix in files]
    if header_path in written:
        check_header(header_path)
    for target, data in zip(written, files.values(), strict=True):
        with replacing(target) as stream:
            stream.write(data)
    return tuple(written)


def check_header(path: Path) -> None:
    """Check that there is no header that somebody has written by hand.

    Raises:
        InvalidValueError: there is one.
    """
    if not path.exists():
        return
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    if head and _MARK not in head:
        raise InvalidValueError(
            f"{str(path)!r} exists and is no header of an export: it is kept; export to a file of "
            "another name"
        )


def _as_c(kernel: Kernel, stem: str) -> Files:
    if len(kernel.variants) > 1:
        names = ", ".join(variant.machine.name for variant in kernel.variants)
        raise InvalidValueError(f"format c is for one target, not for several ({names})")
    return {".c": c_file(kernel, f"{stem}.h").encode(), ".h": header(kernel).encode()}


def _as_object(kernel: Kernel, _: str) -> Files:
    return {".o": object_of(kernel), ".h": header(kernel).encode()}


def _as_shared(kernel: Kernel, _: str) -> Files:
    return {".so": _linked(kernel, "shared"), ".h": header(kernel).encode()}


def _as_tvm_ffi(kernel: Kernel, _: str) -> Files:
    entries = [Entry.of(kernel, call) for call in kernel.calls]
    entries.append(Entry.of(kernel, kernel.calls[-1], "main"))
    sizes = [size for size in kernel.sizes if size.each is None]
    return {".so": _linked(kernel, "tvm-ffi", ffi_file([kernel], entries, sizes))}


FORMATS: Mapping[str, tuple[str, Callable[[Kernel, str], Files]]] = MappingProxyType(
    {
        "c": ("a source file of C and its header", _as_c),
        "object": ("an object file and its header", _as_object),
        "shared": ("a shared library and its header", _as_shared),
        "tvm-ffi": ("a shared library that TVM-FFI loads", _as_tvm_ffi),
    }
)
"""What a kernel can be written as: descriptions, and what makes the files."""


def object_of(kernel: Kernel) -> bytes:
    """The object file of a kernel.

    Raises:
        BuildFailed: LLVM rejects it.
    """
    machine = kernel.variants[0].machine
    texts = [interface(kernel), *(variant.text for variant in kernel.variants)]
    processor = "x86-64" if machine.is_x86 else machine.tuned_for
    return compile_library(texts, machine.triple, processor, exported_names(kernel))


def combined_object(kernels: Sequence[Kernel], source: str, purpose: str) -> bytes:
    """An object file of several kernels and of a source file of C that calls them.

    Args:
        kernels: Kernels for one kind of machine.
        source: The text of that file.
        purpose: What it is for, in messages.

    Raises:
        BuildFailed: LLVM or the C compiler rejects it, or there is no such compiler.
    """
    compiler = find_compiler(kernels[0].variants[0].machine, purpose)
    with tempfile.TemporaryDirectory() as folder:
        result, added = Path(folder, "combined.o"), Path(folder, "added.c")
        added.write_text(source, encoding="utf-8")
        parts = [Path(folder, f"kernel{number}.o") for number in range(len(kernels))]
        for part, kernel in zip(parts, kernels, strict=True):
            part.write_bytes(object_of(kernel))
        options = [*_FOR_LIBRARIES, "-r", "-nostdlib", "-o", str(result)]
        _run([*compiler, *options, str(added), *map(str, parts)])
        return result.read_bytes()


def shared_library(whole: bytes, machine: Machine, purpose: str) -> bytes:
    """A shared library of an object file.

    Args:
        whole: The object file.
        machine: What it is for.
        purpose: What it is for, in messages.

    Raises:
        BuildFailed: the C compiler cannot link it, or there is none.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder, "whole.o"), Path(folder, "library.so")
        given.write_bytes(whole)
        link_library([given], machine, purpose, result)
        return result.read_bytes()


def link_library(parts: Sequence[Path], machine: Machine, purpose: str, result: Path) -> None:
    """Write a shared library.

    Args:
        parts: Object files, and source files of C.
        machine: What it is for.
        purpose: What it is for, in messages.
        result: The library.

    Raises:
        BuildFailed: the C compiler cannot link it, or there is none.
    """
    compiler = find_compiler(machine, purpose)
    options = [*_FOR_LIBRARIES, "-std=gnu11", "-ffp-contract=off", "-pthread", "-shared"]
    # What is not found is an error here, and not where the library is loaded.
    linked = ["-Wl,-z,defs", "-Wl,--as-needed", "-lm", "-ldl"]
    _run([*compiler, *options, "-o", str(result), *map(str, parts), *linked])


def _linked(kernel: Kernel, format_name: str, source: str = "") -> bytes:
    """A shared library of a kernel and what a source file adds to it."""
    purpose = f"format {format_name}"
    whole = combined_object([kernel], source, purpose) if source else object_of(kernel)
    return shared_library(whole, kernel.variants[0].machine, purpose)


def find_compiler(machine: Machine, purpose: str) -> Sequence[str]:
    """The command of a C compiler that links for a machine.

    Args:
        machine: The machine.
        purpose: What it is for, in messages.

    Raises:
        BuildFailed: there is none.
    """
    arch, _, system = machine.triple.split("-", 2)
    here = platform.machine() == machine.architecture and system == "linux-gnu"
    names = ("cc", "gcc", "clang") if here else (f"{arch}-{system}-gcc",)
    command = shlex.split(os.environ.get("CC", "")) or [
        next(filter(shutil.which, names), names[0])
    ]
    if shutil.which(command[0]) is None:
        raise BuildFailed(
            f"{purpose} is linked by a C compiler, and there is no {command[0]!r}: install it, or "
            "name another one by CC"
        )
    return command


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        said = one_line(done.stderr or done.stdout, _MESSAGE_LIMIT)
        raise BuildFailed(f"{command[0]} failed with status {done.returncode}: {said}")
