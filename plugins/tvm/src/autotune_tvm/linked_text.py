"""Functions in LLVM's text form that a program brings with it, for what TVM cannot express."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import IRModule

__all__ = ["linked", "with_functions", "with_linked"]

_IMPORT = "pragma_import_llvm"


def with_functions(module: IRModule, changed: Callable[[Any], Any]) -> IRModule:
    """A module with changed functions of TIR; others stay as they are."""
    functions = {
        name: changed(function) if isinstance(function, tirx.PrimFunc) else function
        for name, function in module.functions.items()
    }
    return IRModule(functions, attrs=module.attrs)


def with_linked(function: Any, definitions: Sequence[str]) -> Any:
    """A function with definitions that TVM links to it and LLVM puts in where they are called."""
    return function.with_body(linked(function.body, definitions))


def linked(body: Any, definitions: Sequence[str]) -> Any:
    """A statement that brings definitions with it to the function that it is in."""
    text = tvm.ir.StringImm("\n".join(definitions))
    return tirx.AttrStmt(tirx.const(0, "int32"), _IMPORT, text, body)
