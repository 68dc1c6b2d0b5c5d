"""From LLVM IR to machine code, and to functions of this process.

Machine code that was made before, in the user's own cache folder.

A file is named by a digest of all that its content was made from, and begins with a digest of
name and content: what was damaged, cut short or exchanged is not found, and made again. Nothing
but this module names files here; records and databases have no part in it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import stat
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import field, frozen

from autotune.backends.backend import BuildFailed
from autotune.process.cache_folder import user_cache_folder
from autotune.targets import Target
from autotune.targets.processors import PROCESSORS

__all__ = [
    "VARIABLE",
    "LoadedCode",
    "ObjectCache",
    "compile_library",
    "compile_text",
    "digest_of",
    "llvm",
    "load_object",
    "object_cache",
    "object_cache_findings",
    "object_of",
]

VARIABLE = "AUTOTUNE_OBJECT_CACHE"
"""Environment variable: the folder to use instead, or ``off``."""

_MOST_BYTES = 64 << 20
# A sweep follows one of so many new files; a network has some fifty.
_NEW_FILES_PER_SWEEP = 64
_NAME = re.compile(r"[0-9a-f]{64}(\.[0-9]+)?")
_MAGIC = b"autotune object 1\n"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@frozen
class ObjectCache:
    """A folder of object files, of bounded size.

    Attributes:
        folder: Where they are; made on first use, for this user alone.
        most_bytes: Of all files together, about. What was used longest ago is deleted first.
    """

    folder: Path
    most_bytes: int = _MOST_BYTES

    def find(self, name: str) -> bytes | None:
        """The object file of this name; None where there is none that can be trusted."""
        path = self.folder / name
        with suppress(OSError):
            if self.problem() is not None:
                return None
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                if not _is_own(os.fstat(file.fileno()), stat.S_ISREG):
                    return None
                data = file.read()
            code = data[len(_MAGIC) + hashlib.sha256().digest_size :]
            if data == _sealed(name, code):
                os.utime(path)
                return code
        return None

    def keep(self, name: str, code: bytes) -> None:
        """Keep an object file; where that is not possible, there is none."""
        new = self.folder / f"{name}.{os.getpid()}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.problem() is not None:
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(new, flags, mode=0o600), "wb") as file:
                file.write(_sealed(name, code))
            os.replace(new, self.folder / name)
            if int(name[:8], 16) % _NEW_FILES_PER_SWEEP == 0:
                self.sweep()
        except OSError:
            with suppress(OSError):
                new.unlink()

    def sweep(self) -> None:
        """Delete what was used longest ago, until a fourth of the size is free."""
        files = sorted(self._files(), key=lambda it: it[1].st_mtime, reverse=True)
        total = 0
        for path, found in files:
            total += found.st_size
            if total > self.most_bytes * 3 // 4:
                with suppress(OSError):
                    path.unlink()

    def problem(self) -> str | None:
        """Say why the folder cannot be used; None where it can, or is not there yet."""
        try:
            found = os.stat(self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"{self.folder} cannot be read: {error.strerror}"
        if not _is_own(found, stat.S_ISDIR):
            return f"{self.folder} is no folder that only this user may write to"
        if not os.access(self.folder, os.R_OK | os.W_OK | os.X_OK):
            return f"{self.folder} cannot be written to"
        return None

    def contents(self) -> tuple[int, int]:
        """Number of files, and bytes of all of them."""
        sizes = [found.st_size for _, found in self._files()]
        return len(sizes), sum(sizes)

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        """The files of this cache, whatever else is in the folder."""
        found = []
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(OSError):  # another process may have deleted it
                    if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        found.append((Path(entry.path), entry.stat(follow_symlinks=False)))
        return found


def object_cache() -> ObjectCache | None:
    """The cache that the environment names; None where it is off, or there is no home."""
    given = os.environ.get(VARIABLE, "")
    if given == "off":
        return None
    if given:
        return ObjectCache(Path(given).absolute())
    folder = user_cache_folder()
    return None if folder is None else ObjectCache(folder / "objects")


def object_cache_findings() -> list[tuple[str, str, str]]:
    """The place where machine code is kept, for `autotune doctor`: label, status and message."""
    cache = object_cache()
    if cache is None:
        return [("object cache", "ok", "off: programs are compiled again in every process")]
    problem = cache.problem()
    if problem is not None:
        return [("object cache", "warning", f"not used: {problem}; see {VARIABLE}")]
    count, size = cache.contents()
    return [("object cache", "ok", f"{cache.folder}: {count} files, {size / 1e6:.1f} MB")]


def _sealed(name: str, code: bytes) -> bytes:
    """The content of a file."""
    return _MAGIC + hashlib.sha256(name.encode() + code).digest() + code


def _is_own(found: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    """Tell whether it is of a kind, and only this user may change it."""
    own = found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE
    return own and is_kind(found.st_mode)


_TRIPLE = "x86_64-unknown-linux-gnu"
_OPTIMISATION = 2
_MESSAGE_LIMIT = 400


@lru_cache(maxsize=1)
def llvm() -> ModuleType:
    """The bindings of LLVM, ready to compile; imported on first use."""
    binding = import_module("llvmlite.binding")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    # Conversions of half precision, where the processor has no instruction for them.
    with suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1", ctypes.RTLD_GLOBAL)
    return binding


@frozen(eq=False)
class LoadedCode:
    """Machine code in this process.

    Attributes:
        object: The object file.
        engine: What owns the code, which lives as long as this does.
    """

    object: bytes = field(repr=False)
    engine: Any = field(repr=False)

    @property
    def digest(self) -> str:
        """Of the object file."""
        return digest_of(self.object)

    def address(self, name: str) -> int:
        """The address of a function."""
        return int(self.engine.get_function_address(name))


def digest_of(data: bytes) -> str:
    """Of text or machine code."""
    return hashlib.sha256(data).hexdigest()[:16]


# Registers out of memory, common subexpressions, dead stores, and loops that test at their end.
_QUICK_PASSES = (
    "sroa",
    "instruction_combine",
    "new_gvn",
    "dead_store_elimination",
    "simplify_cfg",
    "loop_rotate",
    "jump_threading",
    "instruction_combine",
    "simplify_cfg",
)


def compile_text(text: str, target: Target, *, quick: bool = False) -> bytes:
    """An object file of LLVM IR.

    Vectors and unrolled loops are in the text: LLVM is asked for neither. A quick one has passed
    a few passes of LLVM's pipeline, which take a third of the time of all of them.

    Raises:
        BuildFailed: LLVM rejected the text.
    """
    binding, machine = llvm(), _machine(_cpu(target), tuple(sorted(target.features)))
    try:
        module = binding.parse_assembly(text)
        module.verify()
        return _emitted(module, machine, _TRIPLE, quick=quick)
    except RuntimeError as error:
        raise BuildFailed(_brief(error)) from error


def object_of(text: str, target: Target, *, quick: bool = False) -> bytes:
    """An object file of LLVM IR, compiled now or before.

    Kept are those that have passed all of LLVM's passes: quick ones are wanted once.

    Raises:
        BuildFailed: LLVM rejected the text.
    """
    cache = None if quick else object_cache()
    if cache is None:
        return compile_text(text, target, quick=quick)
    made_by = (_this_compiler(), _cpu(target), *sorted(target.features))
    name = hashlib.sha256("\n".join((*made_by, text)).encode()).hexdigest()
    found = cache.find(name)
    if found is None:
        found = compile_text(text, target)
        cache.keep(name, found)
    return found


@lru_cache(maxsize=1)
def _this_compiler() -> str:
    """The compiler and its ways: LLVM's version, and this module."""
    own = digest_of(Path(__file__).read_bytes())
    return f"{metadata.version('llvmlite')} {llvm().llvm_version_info} {own}"


def compile_library(
    texts: Sequence[str], triple: str, processor: str, exported: Collection[str]
) -> bytes:
    """An object file of several texts of LLVM IR, for other programs.

    Args:
        texts: The texts; functions of one may be declared in others.
        triple: The architecture and system.
        processor: By LLVM's name; functions may ask for more by attributes.
        exported: Names of the functions that others call.

    Raises:
        BuildFailed: LLVM rejected a text.
    """
    binding = llvm()
    binding.initialize_native_asmparser()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    try:
        module, *others = (binding.parse_assembly(text) for text in texts)
        for other in others:
            module.link_in(other)
        module.verify()
        for function in module.functions:
            if not function.is_declaration and function.name not in exported:
                function.linkage = "internal"
        return _emitted(module, _new_machine(processor, (), triple), triple, quick=False)
    except RuntimeError as error:
        raise BuildFailed(_brief(error)) from error


def _emitted(module: Any, machine: Any, triple: str, *, quick: bool) -> bytes:
    """An object file of a module, which has passed LLVM's passes."""
    binding = llvm()
    module.triple, module.data_layout = triple, str(machine.target_data)
    options = binding.create_pipeline_tuning_options(_OPTIMISATION)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = binding.create_pass_builder(machine, options)
    _passes(builder, quick=quick).run(module, builder)
    found: bytes = machine.emit_object(module)
    return found


def _passes(builder: Any, *, quick: bool) -> Any:
    if not quick:
        return builder.getModulePassManager()
    passes = llvm().create_new_module_pass_manager()
    for name in _QUICK_PASSES:
        getattr(passes, f"add_{name}_pass")()
    return passes


def load_object(code: bytes, names: Collection[str]) -> LoadedCode:
    """Functions of an object file, in this process.

    Raises:
        BuildFailed: it is no object file for this machine, or lacks one of the functions.
    """
    binding = llvm()
    try:
        # The engine owns the machine that it is given.
        engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _new_machine("", ()))
        engine.add_object_file(binding.ObjectFileRef.from_data(code))
        engine.finalize_object()
    except RuntimeError as error:
        raise BuildFailed(_brief(error)) from error
    loaded = LoadedCode(code, engine)
    for name in names:
        if not loaded.address(name):
            raise BuildFailed(f"the object file has no function {name!r}")
    return loaded


def _cpu(target: Target) -> str:
    """LLVM's name of the processor."""
    known = any(processor.name == target.processor for processor in PROCESSORS)
    return target.processor if known else "x86-64"


@lru_cache(maxsize=8)
def _machine(cpu: str, features: tuple[str, ...]) -> Any:
    return _new_machine(cpu, features)


def _new_machine(cpu: str, features: tuple[str, ...], triple: str = _TRIPLE) -> Any:
    """The code generator for a processor."""
    made = (
        llvm()
        .Target.from_triple(triple)
        .create_target_machine(
            cpu=cpu,
            features=",".join(f"+{feature}" for feature in features),
            opt=_OPTIMISATION,
            reloc="pic",
            codemodel="default",
        )
    )
    return made


def _brief(error: BaseException) -> str:
    return re.sub(r"\s+", " ", f"LLVM: {error}").strip()[:_MESSAGE_LIMIT]
