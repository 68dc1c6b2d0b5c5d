"""From LLVM's dialect to machine code in this process."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from attrs import field, frozen
from numpy.typing import NDArray

from autotune.backends import BuildFailed, NativeBoundCall, NativeCall
from autotune_mlir import bindings, openmp
from autotune_mlir.compiler import Lowered, needs_openmp
from autotune_mlir.entry import ADDRESS, ENTRY
from autotune_mlir.parsing import brief
from autotune_mlir.versions import opt_level

__all__ = ["Generated", "generate"]


@frozen(eq=False)
class Generated:
    """Machine code in this process.

    Attributes:
        addresses: Of its entries, ``int ENTRY(void **arrays)``, by name.
        digest: Of the machine code.
        engine: What owns it; the code lives as long as this does.
    """

    addresses: Mapping[str, int]
    digest: str
    engine: Any = field(repr=False)

    def address(self, name: str = ENTRY) -> int:
        """Address at which an entry begins."""
        return self.addresses[name]

    def run(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Call :data:`ENTRY` once, on its inputs and outputs in order."""
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        call = NativeCall(self.address(), (ctypes.addressof(pointers),))
        NativeBoundCall(call, ()).run()


def generate(lowered: Lowered) -> Generated:
    """Let LLVM make what runs in this process.

    Args:
        lowered: The program.

    Raises:
        BuildFailed: LLVM rejected it.
    """
    loaded = bindings.load()
    _find_conversions()
    libraries = [openmp.library()] if needs_openmp(lowered) else []
    try:
        engine = loaded.execution_engine.ExecutionEngine(
            lowered.module, opt_level=opt_level(), shared_libs=libraries, enable_pic=True
        )
        addresses = {name: _address(engine, name) for name in lowered.entries}
    except RuntimeError as error:
        raise BuildFailed(brief(error)) from error
    return Generated(addresses, _code_digest(engine), engine)


@lru_cache(maxsize=1)
def _find_conversions() -> None:
    """Let programs find the compiler's functions between double and half precision.

    Processors have no instruction for it, and other modules that need these load them for
    themselves alone.
    """
    with suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1", ctypes.RTLD_GLOBAL)


def _address(engine: Any, entry: str) -> int:
    """Address of an entry: its wrapper's is all that the engine tells by itself."""
    wrapper = engine.raw_lookup(f"{entry}{ADDRESS}")
    if not wrapper:
        raise RuntimeError("the program uses a function that this process does not have")
    result = ctypes.c_void_p()
    slots = (ctypes.c_void_p * 1)(ctypes.addressof(result))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(wrapper)(ctypes.addressof(slots))
    assert result.value is not None
    return result.value


def _code_digest(engine: Any) -> str:
    """Digest of the object file."""
    descriptor = os.memfd_create("object")
    try:
        engine.dump_to_object_file(f"/proc/self/fd/{descriptor}")
        size = os.lseek(descriptor, 0, os.SEEK_END)
        return hashlib.sha256(os.pread(descriptor, size, 0)).hexdigest()[:16]
    finally:
        os.close(descriptor)
