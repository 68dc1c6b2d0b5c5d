"""From LLVM IR to machine code, and to functions of this process."""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import field, frozen

from autotune.backends.backend import BuildFailed
from autotune.backends.native.object_cache import object_cache
from autotune.targets import Target
from autotune.targets.processors import PROCESSORS

__all__ = [
    "LoadedCode",
    "compile_library",
    "compile_text",
    "digest_of",
    "llvm",
    "load_object",
    "object_of",
]

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
