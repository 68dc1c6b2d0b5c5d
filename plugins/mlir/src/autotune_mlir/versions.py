"""Versions of the compiler, and how much LLVM optimises."""

from __future__ import annotations

import io
import os
import re

from autotune.errors import InvalidValueError
from autotune_mlir import bindings
from autotune_mlir.parsing import here, new_context

__all__ = ["OPT_LEVEL_VARIABLE", "compiler_version", "llvm_version", "opt_level"]

OPT_LEVEL_VARIABLE = "AUTOTUNE_MLIR_OPT_LEVEL"
"""Environment variable with the level, 0 to 3, at which LLVM optimises."""

_BEST_OPT_LEVEL = 3


def compiler_version() -> str:
    """Version of the compiler, such as ``"torch-mlir 20261001"``, without importing it.

    Programs that LLVM optimises less than it can are those of another compiler.

    Raises:
        BindingsMissing: none is installed.
        InvalidValueError: the environment asks for an optimisation level that does not exist.
    """
    level = opt_level()
    version = bindings.bindings_version()
    return version if level == _BEST_OPT_LEVEL else f"{version} -O{level}"


def llvm_version() -> str:
    """Release of LLVM, such as ``"24.0.0git"``: bytecode says who wrote it.

    Raises:
        BindingsMissing: the bindings cannot be imported.
    """
    written = io.BytesIO()
    with here(new_context()) as ir:
        ir.Module.parse("module {}").operation.write_bytecode(written)
    found = re.search(rb"MLIR([0-9][\w.]*)", written.getvalue())
    return found.group(1).decode() if found else "unknown"


def opt_level() -> int:
    """The level at which LLVM optimises: 3 unless the environment says otherwise.

    Raises:
        InvalidValueError: the environment asks for a level that does not exist.
    """
    said = os.environ.get(OPT_LEVEL_VARIABLE, str(_BEST_OPT_LEVEL))
    if said not in ("0", "1", "2", "3"):
        raise InvalidValueError(f"{OPT_LEVEL_VARIABLE} is from 0 to 3, not {said!r}")
    return int(said)
