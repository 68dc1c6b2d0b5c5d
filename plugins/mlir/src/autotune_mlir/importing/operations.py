"""The operations of functions that are understood, and what MLIR's own passes make of others."""

from __future__ import annotations

from typing import Any

from autotune.errors import UnsupportedWorkload
from autotune_mlir.bindings import Bindings
from autotune_mlir.importing.function_reader import RESHAPES, is_number
from autotune_mlir.importing.joining import JOINS
from autotune_mlir.importing.locations import at
from autotune_mlir.importing.scalar_import import BODY_OPERATIONS
from autotune_mlir.importing.scans import SCANS

__all__ = [
    "BESIDE_LINALG",
    "check_operations",
    "decompose",
    "generalize",
    "has_scans",
    "simplify",
]

_SIMPLIFY = "builtin.module(inline,symbol-dce,convert-elementwise-to-linalg,canonicalize)"
_GENERALIZE = "builtin.module(linalg-generalize-named-ops)"
_DECOMPOSE = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op) {
    %found = transform.structured.match ops{["linalg.softmax"]} in %root
        : (!transform.any_op) -> !transform.any_op
    %parts = transform.structured.decompose_interface %found
        : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""
BESIDE_LINALG = (
    "arith.constant",
    "tensor.empty",
    "tensor.extract_slice",
    "tensor.splat",
    *JOINS,
    *RESHAPES,
    "tensor.pad",
    *SCANS,
    "func.return",
)
"""Operations that may stand in a function beside those of linalg."""


def simplify(mlir: Bindings, module: Any) -> None:
    """Inline calls, drop what is not used, and turn arithmetic on tensors into linalg.

    Softmax becomes the operations that it consists of.
    """
    mlir.passmanager.PassManager.parse(_SIMPLIFY).run(module.operation)
    decompose(mlir, module)
    mlir.passmanager.PassManager.parse("builtin.module(canonicalize)").run(module.operation)


def decompose(mlir: Bindings, module: Any) -> None:
    """Take softmax apart, for which MLIR has no loops."""
    schedule = mlir.ir.Module.parse(_DECOMPOSE)
    mlir.interpreter.apply_named_sequence(module, schedule.body.operations[0], schedule)


def generalize(mlir: Bindings, module: Any) -> None:
    """Write the named operations of linalg as ``linalg.generic``."""
    mlir.passmanager.PassManager.parse(_GENERALIZE).run(module.operation)


def has_scans(block: Any) -> bool:
    """Return whether a function has scans of torch-mlir, for which MLIR has no loops."""
    return any(view.operation.name in SCANS for view in block.operations)


def check_operations(mlir: Bindings, block: Any, file: str) -> None:
    """Check that all operations of a function are of known kinds and have known shapes.

    Raises:
        UnsupportedWorkload: one is not, or has not; says where it stands.
    """
    computing = 0
    for view in block.operations:
        operation = view.operation
        known = operation.name in BESIDE_LINALG or operation.name.startswith("linalg.")
        if not known and not _computes_number(operation):
            raise UnsupportedWorkload(
                f"operation {operation.name} is not supported{at(operation, file)}; supported are "
                "those of linalg on tensors, arithmetic on tensors and on numbers, "
                f"{', '.join(BESIDE_LINALG)}"
            )
        for result in operation.results:
            if isinstance(result.type, mlir.ir.RankedTensorType):
                _check_static(operation, result.type, file)
        computing += operation.name.startswith(
            ("linalg.", "tensor.pad", "tensor.splat", *JOINS, *RESHAPES, *SCANS)
        ) or (operation.name == "tensor.extract_slice" and len(operation.operands) > 1)
    if not computing:
        raise UnsupportedWorkload("the function has no linalg operation: nothing can be tuned")


def _computes_number(operation: Any) -> bool:
    """Return whether an operation of a function is one that bodies have, too."""
    numbers = [is_number(result.type) for result in operation.results]
    return operation.name in BODY_OPERATIONS and all(numbers)


def _check_static(operation: Any, kind: Any, file: str) -> None:
    if not kind.has_static_shape:
        raise UnsupportedWorkload(
            f"operation {operation.name}{at(operation, file)} has the dynamic shape {kind}; "
            "shapes must be known"
        )
