"""From LLVM IR to machine code, and to functions of this process."""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Collection
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

from attrs import field, frozen

from autotune.backends.backend import BuildFailed
from autotune.targets import Target
from autotune.targets.processors import PROCESSORS

__all__ = ["LoadedCode", "compile_text", "digest_of", "llvm", "load_object"]

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
        """Where a function begins."""
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
        module.triple, module.data_layout = _TRIPLE, str(machine.target_data)
        options = binding.create_pipeline_tuning_options(_OPTIMISATION)
        options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
        builder = binding.create_pass_builder(machine, options)
        _passes(builder, quick=quick).run(module, builder)
        found: bytes = machine.emit_object(module)
    except RuntimeError as error:
        raise BuildFailed(_brief(error)) from error
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


def _new_machine(cpu: str, features: tuple[str, ...]) -> Any:
    """What compiles for a processor."""
    made = (
        llvm()
        .Target.from_triple(_TRIPLE)
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
