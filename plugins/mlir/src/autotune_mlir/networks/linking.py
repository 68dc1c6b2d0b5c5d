"""A module as MLIR's own passes compile it: what a network that was read is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from autotune.backends import BuildFailed, aligned_empty
from autotune.networks import NetworkTensor
from autotune.networks.arrays import aligned_inputs
from autotune_mlir import bindings
from autotune_mlir.code_generation import generate
from autotune_mlir.compiler import lower
from autotune_mlir.importing.operations import decompose
from autotune_mlir.importing.untuned import Call, caller_text
from autotune_mlir.networks.function import ModuleFunction
from autotune_mlir.parsing import new_context
from autotune_mlir.traversal import operations_in

__all__ = ["kernel_text", "run_module"]

Array = NDArray[Any]

# Names of a module's own functions may be those of functions that the code calls.
_PREFIX = "network."
_INLINE = "builtin.module(inline,symbol-dce,convert-elementwise-to-linalg)"


def run_module(
    module: str,
    entries: Sequence[ModuleFunction],
    tensors: tuple[Sequence[NetworkTensor], Sequence[NetworkTensor]],
    inputs: Sequence[Array],
) -> tuple[Array, ...] | None:
    """Run functions of a module, on one thread; None where MLIR cannot compile it.

    Args:
        module: Text of the module.
        entries: What is run, in order.
        tensors: All inputs of the entries, and all outputs.
        inputs: Arrays for the inputs.
    """
    try:
        lowered = lower(kernel_text(module, entries), threads=1, by_default=True)
        kernel = generate(lowered)
    except (BuildFailed, bindings.load().ir.MLIRError):
        return None
    outputs = tuple(aligned_empty(it.shape, it.dtype) for it in tensors[1])
    kernel.run([*aligned_inputs(tensors[0], inputs), *outputs])
    return outputs


def kernel_text(module: str, entries: Sequence[ModuleFunction]) -> str:
    """A module with one function ``@kernel`` that runs functions of a module.

    Its arguments are buffers: the inputs of all entries, and then their outputs.

    Args:
        module: Text of the module.
        entries: What is run, in order.

    Raises:
        MLIRError: the module cannot be linked.
    """
    mlir = bindings.load()
    with new_context(), mlir.ir.Location.unknown():
        linked = mlir.ir.Module.parse(module)
        for view in list(linked.body.operations):
            if view.operation.name == "func.func":
                _hide(mlir.ir, view.operation)
        added = mlir.ir.Module.parse(caller_text(list(map(_call, entries))))
        for view in list(added.body.operations):
            if len(view.operation.regions[0].blocks):
                linked.body.append(view)
        mlir.passmanager.PassManager.parse(_INLINE).run(linked.operation)
        decompose(mlir, linked)
        return str(linked)


def _hide(ir: Any, function: Any) -> None:
    """Make a function private under a name that is the module's own, and so what it calls."""
    prefixed = f"{_PREFIX}{function.attributes['sym_name'].value}"
    function.attributes["sym_name"] = ir.StringAttr.get(prefixed)
    function.attributes["sym_visibility"] = ir.StringAttr.get("private")
    for operation in operations_in(function):
        if operation.name == "func.call":
            called = operation.attributes["callee"].value
            renamed = ir.FlatSymbolRefAttr.get(f"{_PREFIX}{called}")
            operation.attributes["callee"] = renamed


def _call(function: ModuleFunction) -> Call:
    inputs, outputs = (
        tuple(kind.tensor for kind in kinds) for kinds in (function.inputs, function.outputs)
    )
    return Call(f"{_PREFIX}{function.name}", inputs, outputs)
