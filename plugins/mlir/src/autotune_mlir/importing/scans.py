"""Scans of torch-mlir: operations of which each result continues the one before it."""

from __future__ import annotations

import importlib
from typing import Any

from autotune_mlir.bindings import Bindings
from autotune_mlir.importing.scalar_import import COMBINERS, Unsupported, combiner_of

__all__ = ["SCANS", "load_scans", "torch_combiner"]

SCANS = ("tm_tensor.scan",)
"""Operations that are scans."""

# Loads the dialect, which the bindings have no name for.
_LOADING = "builtin.module(func.func(convert-torch-to-tmtensor))"


def load_scans(mlir: Bindings, text: str) -> None:
    """Make the dialect of scans known to the current context, where a text may have them."""
    if "tm_tensor." not in text or mlir.root != "torch_mlir":
        return
    dialect = importlib.import_module("torch_mlir.dialects.torch")
    dialect.register_dialect(mlir.ir.Context.current)
    nothing = mlir.ir.Module.parse("func.func @f() { return }")
    mlir.passmanager.PassManager.parse(_LOADING).run(nothing.operation)


def torch_combiner(operation: Any) -> str:
    """Combination of each element with what was there, in a scan of :data:`SCANS`.

    Raises:
        Unsupported: it leaves out the element itself, its last results are used, or its body does
            something else than combine two numbers.
    """
    if not operation.attributes["inclusive"].value:
        raise Unsupported("it is exclusive; only inclusive scans are supported")
    if any(True for _ in operation.results[1].uses):
        raise Unsupported("what it ends with is used; only all results are supported")
    body = operation.regions[0].blocks[0]
    inner = [view.operation for view in body.operations]
    combiner, arguments = combiner_of(inner[0]), list(body.arguments)
    both = list(inner[0].operands) in (arguments, arguments[::-1])
    if len(inner) == 2 and combiner in COMBINERS and both:
        return combiner
    raise Unsupported("it does not combine each element with what was there by +, *, max or min")
